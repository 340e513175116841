package memcached

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Dumps show each item that is there, with its size, and nothing that was flushed or has expired.
func TestDump(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("set before 0 0 1\r\nx\r\n", "STORED\r\n")
	c.want("flush_all\r\n", "OK\r\n")
	c.want("set gone 0 -1 1\r\nx\r\n", "STORED\r\n")
	var want []string
	for i := range 300 {
		size := i * 97 % 2000
		c.want(fmt.Sprintf("set key%d 0 0 %d\r\n%s\r\n", i, size, strings.Repeat("v", size)), "STORED\r\n")
		want = append(want, fmt.Sprintf("ITEM key%d [%d b; 0 s]", i, size))
	}
	slices.Sort(want)
	got := c.lines("stats cachedump 1 0\r\n")
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%d items, there are %d: %q", len(got), len(want), got)
	}
	if got := c.lines("stats cachedump 1 7\r\n"); len(got) != 7 {
		t.Errorf("7 items are %q", got)
	}
	got = c.lines("lru_crawler metadump all\r\n")
	if len(got) != len(want) || slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "key=key") || !strings.Contains(s, " exp=-1 ") }) {
		t.Errorf("%d items, there are %d: %q", len(got), len(want), got)
	}
}

// lines are those of an answer before END.
func (c *client) lines(request string) (list []string) {
	c.t.Helper()
	c.send(request)
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			c.t.Fatal(err)
		}
		if line = strings.TrimRight(line, "\r\n"); line == "END" {
			return list
		}
		list = append(list, line)
	}
}
