package memcached

import (
	"fmt"
	"strings"
	"testing"
)

// A get of many keys is answered in their order, with those that are there, each as often as it is asked for: small items and large ones, more than are got at
// a time, and more than a buffer holds.
func TestGetOfManyKeys(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	request, answer := "get", ""
	for i := range 300 {
		value := strings.Repeat("v", i)
		if i%40 == 7 {
			value = strings.Repeat("v", 500_000+i)
		}
		if i%3 != 0 {
			c.want(fmt.Sprintf("set key%d %d 0 %d\r\n%s\r\n", i, i, len(value), value), "STORED\r\n")
			answer += fmt.Sprintf("VALUE key%d %d %d\r\n%s\r\n", i, i, len(value), value)
		}
		request += fmt.Sprintf(" key%d", i)
		if i%10 == 7 {
			request += fmt.Sprintf(" key1  key%d", i)
			answer += "VALUE key1 1 1\r\nv\r\n"
			if i%3 != 0 {
				answer += fmt.Sprintf("VALUE key%d %d %d\r\n%s\r\n", i, i, len(value), value)
			}
		}
	}
	for range 2 {
		go c.send(request + "\r\n")
		c.want("", answer+"END\r\n")
	}
	n := fmt.Sprint(strings.Count(answer, "VALUE"))
	c.send("stats\r\n")
	for line := ""; line != "END\r\n"; line = c.line("") {
		if hits, ok := strings.CutPrefix(line, "STAT get_hits "); ok && strings.TrimSpace(hits) != fmt.Sprint(2*strings.Count(answer, "VALUE")) {
			t.Errorf("%s hits counted, of %s items twice", strings.TrimSpace(hits), n)
		}
	}
	c.want("get key1 "+strings.Repeat("k", 251)+"\r\n", badLine+"\r\n")
	c.want("get none none\r\n", "END\r\n")
}
