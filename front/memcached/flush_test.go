package memcached

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A seen is what a get has seen.
type seen struct {
	from, to time.Duration
	hit      bool
}

// flush_all is one step for all servers of a store: when a get has missed an item because of it, on whichever server, no later get finds an item that was there
// before. And what is stored after it stays.
func TestFlushIsOneStep(t *testing.T) {
	cluster := openCluster(t)
	var addresses []string
	for range 3 {
		_, address := startServer(t, cluster, Options{})
		addresses = append(addresses, address)
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	const keys = 4
	begun := time.Now()
	writer := dial(t, addresses[0])
	for round := range rounds {
		for k := range keys {
			writer.want(fmt.Sprintf("set k%d 0 0 1\r\n%d\r\n", k, round%10), "STORED\r\n")
		}
		var stop atomic.Bool
		var mu sync.Mutex
		var all []seen
		var wg sync.WaitGroup
		for i, address := range addresses {
			wg.Go(func() {
				c := dial(t, address)
				var mine []seen
				for n := i; !stop.Load(); n++ {
					s := seen{from: time.Since(begun)}
					s.hit = c.line(fmt.Sprintf("get k%d\r\n", n%keys)) != "END\r\n"
					if s.hit {
						c.want("", fmt.Sprintf("%d\r\nEND\r\n", round%10))
					}
					s.to = time.Since(begun)
					mine = append(mine, s)
				}
				mu.Lock()
				all = append(all, mine...)
				mu.Unlock()
			})
		}
		flusher := dial(t, addresses[round%3])
		flusher.want("flush_all\r\n", "OK\r\n")
		flushed := time.Since(begun)
		time.Sleep(2 * pollEvery)
		stop.Store(true)
		wg.Wait()
		slices.SortFunc(all, func(a, b seen) int { return int(a.to - b.to) })
		missed := flushed // the first miss is over then
		for _, s := range all {
			if !s.hit {
				missed = min(missed, s.to)
			}
		}
		for _, s := range all {
			if s.hit && s.from > missed {
				t.Fatalf("round %d: a get that began at %v found an item; it was flushed before %v", round, s.from, missed)
			}
		}
		writer.want("set after 0 0 1\r\n1\r\nget after\r\n", "STORED\r\nVALUE after 0 1\r\n1\r\nEND\r\n")
	}
}

// Flushes at the same time, of several servers, all take place, and leave nothing under way.
func TestFlushesAtATime(t *testing.T) {
	cluster := openCluster(t)
	s, one := startServer(t, cluster, Options{})
	_, two := startServer(t, cluster, Options{})
	c := dial(t, one)
	for range 3 {
		c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() { dial(t, []string{one, two}[i%2]).want("flush_all\r\n", "OK\r\n") })
		}
		wg.Wait()
		c.want("get k\r\nget k k\r\n", "END\r\nEND\r\n")
	}
	if r, err := s.worker().readRecord(); err != nil || r.underWay != 0 || r.due != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A flush that a crashed server has left is ended by another: nothing is lost by it, and the next one takes place.
func TestAbandonedFlush(t *testing.T) {
	cluster := openCluster(t)
	s, address := startServer(t, cluster, Options{})
	c := dial(t, address)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	if err := s.worker().changeRecord(func(r *record) bool { r.underWay = 99; return true }); err != nil {
		t.Fatal(err)
	}
	c.want("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
	c.want("flush_all\r\n", "OK\r\n")
	c.want("get k\r\n", "END\r\n")
}

// flush_all with a delay takes place then, once, and not before.
func TestFlushLater(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{Debug: true})
	c := dial(t, address)
	c.want("set k 0 0 1\r\n1\r\nflush_all 100\r\nget k\r\n", "STORED\r\nOK\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
	c.want("debugtime 98\r\nget k\r\n", "OK\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
	c.want("debugtime 2\r\nget k\r\n", "OK\r\nEND\r\n")
	c.want("set k 0 0 1\r\n1\r\ndebugtime 100\r\nget k\r\n", "STORED\r\nOK\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
	c.want("flush_all 100\r\nflush_all 0 noreply\r\nset k 0 0 1\r\n1\r\ndebugtime 200\r\nget k\r\n", "OK\r\nSTORED\r\nOK\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
}

// An operation that began before a flush, and finds an item that was stored after it, takes place after the flush: nothing of the time before replaces it.
func TestOperationFromBeforeFlush(t *testing.T) {
	cluster := openCluster(t)
	s, late := startServer(t, cluster, Options{})
	_, other := startServer(t, cluster, Options{})
	c, d := dial(t, late), dial(t, other)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	before := s.last.number.Load()
	for _, request := range []string{"set k 0 0 1\r\n3\r\n", "append k 0 0 1\r\n3\r\n", "incr k 1\r\n", "mg k T100\r\n", "ms k 1\r\n4\r\n"} {
		d.want("flush_all\r\nset k 0 0 1\r\n2\r\n", "OK\r\nSTORED\r\n")
		// The server takes the number from before the flush for that of now, as an operation has it that was stopped after its first step.
		s.last.mu.Lock()
		s.last.number.Store(before)
		s.last.readAt.Store(int64(s.clock() + time.Minute))
		s.last.mu.Unlock()
		c.send(request)
		c.send("mn\r\n")
		for c.line("") != "MN\r\n" {
		}
		s.last.readAt.Store(0)
		if line := d.line("get k\r\n"); line == "END\r\n" {
			t.Errorf("%q: the item is gone", request)
			continue
		}
		_, _ = d.line(""), d.line("")
	}
}

// A record that was lost, and made anew, may have a lower number than items that are still there: they are not there for clients, who store them anew.
func TestLostRecord(t *testing.T) {
	s, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\nSTORED\r\n")
	if err := s.worker().changeRecord(func(r *record) bool { r.number -= 10; return true }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * lease)
	c.want("get a\r\nincr b 1\r\ndelete c\r\nset a 0 0 1\r\n2\r\nadd b 0 0 1\r\n3\r\nget a b\r\n",
		"END\r\nNOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nVALUE b 0 1\r\n3\r\nEND\r\n")
}

// The record is read often as long as operations ask for it or a flush is to come, and seldom after a second without both.
func TestUnusedServerReadsSeldom(t *testing.T) {
	wait, unneeded := untilPoll(true, 7)
	for n := range idleAfter {
		if wait != pollEvery {
			t.Fatalf("a wait of %v after %d readings in vain", wait, n)
		}
		wait, unneeded = untilPoll(false, unneeded)
	}
	if wait != idlePoll {
		t.Errorf("a wait of %v after %d readings in vain", wait, idleAfter)
	}
	if wait, unneeded = untilPoll(true, unneeded); wait != pollEvery || unneeded != 0 {
		t.Errorf("in use again: a wait of %v", wait)
	}
}

// A server that was unused learns of a flush from before its next operation, and the watcher reads often again.
func TestFirstOperationOfAnUnusedServer(t *testing.T) {
	cluster := openCluster(t)
	_, unused := startServer(t, cluster, Options{})
	_, other := startServer(t, cluster, Options{})
	c, d := dial(t, unused), dial(t, other)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	time.Sleep(idleAfter*pollEvery + idlePoll)
	d.want("flush_all\r\n", "OK\r\n")
	c.want("get k\r\n", "END\r\n")
}
