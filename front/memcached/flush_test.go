package memcached

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
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
		time.Sleep(20 * time.Millisecond)
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
	readNumber(t, s)
}

// A flush that a crashed server has left is ended by another: nothing is lost by it, and the next one takes place.
func TestAbandonedFlush(t *testing.T) {
	cluster := openCluster(t)
	s, address := startServer(t, cluster, Options{})
	c := dial(t, address)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	changeRecord(t, s, func(record []byte) { record[0] = 99 })
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

// An operation that took the number of the last flush before a flush, and finds an item that was stored after it, takes place after the flush: nothing of the
// time before replaces it.
func TestOperationFromBeforeFlush(t *testing.T) {
	cluster := openCluster(t)
	s, late := startServer(t, cluster, Options{})
	_, other := startServer(t, cluster, Options{})
	c, d := dial(t, late), dial(t, other)
	d.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	for _, request := range []string{"set k 0 0 1\r\n3\r\n", "append k 0 0 1\r\n3\r\n", "incr k 1\r\n", "mg k T100\r\n", "ms k 1\r\n4\r\n"} {
		// Under the lock of the key, for which the request waits with the number from before the flush, an item is stored as one from after it.
		if err := s.do(items, func(k *objstore.Client) error {
			return k.Update([]byte("k"), objstore.Update{Apply: func(o *objstore.Object) objstore.Change {
				c.send(request)
				time.Sleep(20 * time.Millisecond)
				d.want("flush_all\r\n", "OK\r\n")
				h := item.Head{Unique: item.Unique([]byte("k"), o.Token), Flush: readNumber(t, s)}
				value := append(make([]byte, headSize), '2')
				h.Encode(value)
				return objstore.Change{Action: objstore.Put, Value: value}
			}})
		}); err != nil {
			t.Fatal(err)
		}
		c.send("mn\r\n")
		for c.line("") != "MN\r\n" {
		}
		if line := d.line("get k\r\n"); line == "END\r\n" {
			t.Errorf("%q: the item is gone", request)
			continue
		}
		_, _ = d.line(""), d.line("")
	}
}

// readNumber returns the number of the last flush that the record has, which must have none under way and none due.
func readNumber(t *testing.T, s *Server) (number uint32) {
	t.Helper()
	if err := s.do(control, func(k *objstore.Client) error {
		it, err := k.Get(flushKey)
		if err == nil && (binary.LittleEndian.Uint64(it.Value) != 0 || binary.LittleEndian.Uint32(it.Value[12:]) != 0) {
			t.Errorf("record of flushes: % x", it.Value)
		}
		number = binary.LittleEndian.Uint32(it.Value[8:])
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return number
}

// changeRecord changes the bytes of the record of flushes.
func changeRecord(t *testing.T, s *Server, f func(record []byte)) {
	t.Helper()
	if err := s.do(control, func(k *objstore.Client) error {
		return k.Update(flushKey, objstore.Update{Read: -1, Apply: func(o *objstore.Object) objstore.Change {
			f(o.Value)
			return objstore.Change{Action: objstore.Put, Value: o.Value}
		}})
	}); err != nil {
		t.Fatal(err)
	}
}

var flushKey = []byte("flush")

// A record that was lost, and made anew, may have a lower number than items that are still there: they are not there for clients, who store them anew.
func TestLostRecord(t *testing.T) {
	s, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("set a 0 0 1\r\n1\r\nset b 0 0 1\r\n1\r\nset c 0 0 1\r\n1\r\n", "STORED\r\nSTORED\r\nSTORED\r\n")
	changeRecord(t, s, func(record []byte) {
		binary.LittleEndian.PutUint32(record[8:], binary.LittleEndian.Uint32(record[8:])-10)
	})
	time.Sleep(200 * time.Millisecond)
	c.want("get a\r\nincr b 1\r\ndelete c\r\nset a 0 0 1\r\n2\r\nadd b 0 0 1\r\n3\r\nget a b\r\n",
		"END\r\nNOT_FOUND\r\nNOT_FOUND\r\nSTORED\r\nSTORED\r\nVALUE a 0 1\r\n2\r\nVALUE b 0 1\r\n3\r\nEND\r\n")
}

// A server that was unused learns of a flush from before its next operation, and the watcher reads often again.
func TestFirstOperationOfAnUnusedServer(t *testing.T) {
	cluster := openCluster(t)
	_, unused := startServer(t, cluster, Options{})
	_, other := startServer(t, cluster, Options{})
	c, d := dial(t, unused), dial(t, other)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	time.Sleep(2 * time.Second)
	d.want("flush_all\r\n", "OK\r\n")
	c.want("get k\r\n", "END\r\n")
}

// What is set in a store that is made anew, since both were dropped, has the number of the new record: it is there still when that has been read. An operation that had
// taken the number before takes it anew.
func TestSetAfterDrop(t *testing.T) {
	cluster := openCluster(t)
	s, address := startServer(t, cluster, Options{})
	c := dial(t, address)
	for range 2 {
		changeRecord(t, s, func(record []byte) { // the number of the next record is another
			binary.LittleEndian.PutUint32(record[8:], binary.LittleEndian.Uint32(record[8:])-1000)
		})
		n, err := s.flushes.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
		era := s.flushes.Era()
		for _, name := range []string{"memcached" + item.ControlSuffix, "memcached"} {
			if err := cluster.DropStore(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.home.Load().open(); err != nil {
			t.Fatal(err)
		}
		if _, _, again := s.opened(&objstore.Object{}, era, n, n); !again {
			t.Error("an operation with the number from before goes on with it")
		}
		c.want("set k 0 0 1\r\n2\r\n", "STORED\r\n")
		if _, err := s.flushes.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.want("get k\r\n", "VALUE k 0 1\r\n2\r\nEND\r\n")
	}
}
