package memcached

import (
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/front"
)

// What clients do is counted by command and result, and what the store has counted never falls, also when it is dropped.
func TestCounters(t *testing.T) {
	cluster := openCluster(t)
	s, address := startServer(t, cluster, Options{MaxItem: 1000})
	c := dial(t, address)
	c.want("set a 0 0 1\r\n1\r\nget a b\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n")
	c.want("set a 0 0 2000\r\n"+strings.Repeat("x", 2000)+"\r\n", "SERVER_ERROR object too large for cache\r\n")
	c.want("set a 0 0 1\r\n1\r\nincr a 1\r\ndelete b\r\nflush_all\r\n", "STORED\r\n2\r\nNOT_FOUND\r\nOK\r\n")
	n := s.Counters()
	if n.Protocol != "memcached" || n.Connections != 1 || n.Accepted != 1 || n.Rejected != 0 || n.Read < 2000 || n.Written < 50 {
		t.Errorf("%+v", n)
	}
	want := map[front.Requests]bool{{Command: "get", Result: "hit", Count: 1}: true, {Command: "get", Result: "miss", Count: 1}: true,
		{Command: "set", Result: "stored", Count: 2}: true, {Command: "set", Result: "too_large", Count: 1}: true,
		{Command: "incr", Result: "hit", Count: 1}: true, {Command: "delete", Result: "miss", Count: 1}: true, {Command: "flush", Count: 1}: true}
	for _, r := range n.Requests {
		if r.Count != 0 && !want[r] {
			t.Errorf("not expected: %+v", r)
		}
		delete(want, r)
	}
	if len(want) != 0 {
		t.Errorf("missing: %v in %+v", want, n.Requests)
	}
	before := s.StoreStats()
	if before.Stores == 0 {
		t.Fatal("no stores")
	}
	// A store that is dropped is made anew, and takes nothing from what has been counted.
	if err := cluster.DropStore(t.Context(), "memcached"); err != nil {
		t.Fatal(err)
	}
	if got := c.line("get a\r\n"); !strings.HasPrefix(got, "SERVER_ERROR") {
		t.Errorf("of a store that was dropped: %q", got)
	}
	c.want("set a 0 0 1\r\n1\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n")
	now := s.StoreStats()
	for until := time.Now().Add(10 * time.Second); now.Stores != before.Stores+1 && time.Now().Before(until); now = s.StoreStats() {
		time.Sleep(time.Millisecond) // an operation is counted a moment after its answer
	}
	if now.Stores != before.Stores+1 || now.Gets < before.Gets {
		t.Errorf("after a drop: %+v, then %+v", before, now)
	}
}

// stats items and stats slabs have all of memcached's names: exporters fail when one is missing. Items are counted.
func TestStatsOfClasses(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("stats items\r\n", "END\r\n")
	c.want("set a 0 0 1\r\n1\r\nget a\r\n", "STORED\r\nVALUE a 0 1\r\n1\r\nEND\r\n")
	for what, names := range map[string][]string{
		"items": {"number 1", "number_hot 0", "age 0", "evicted 0", "evicted_nonzero 0", "evicted_time 0", "outofmemory 0", "tailrepairs 0", "reclaimed 0", "expired_unfetched 0",
			"evicted_unfetched 0", "crawler_reclaimed 0", "lrutail_reflocked 0", "moves_to_cold 0", "moves_within_lru 0", "hits_to_hot 0", "hits_to_temp 0"},
		"slabs": {"chunk_size 1048576", "chunks_per_page 0", "total_pages 0", "total_chunks 0", "used_chunks 1", "free_chunks 0", "free_chunks_end 0", "get_hits 1", "cmd_set 1", "touch_hits 0"},
	} {
		c.send("stats " + what + "\r\n")
		var got strings.Builder
		for line := ""; line != "END\r\n"; got.WriteString(line) {
			line = c.line("")
		}
		for _, name := range names {
			if !strings.Contains(got.String(), "1:"+name+"\r\n") {
				t.Errorf("stats %s has no %q: %q", what, name, got.String())
			}
		}
	}
}
