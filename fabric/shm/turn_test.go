package shm

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/declock/declock/fabric"
)

// A client that a message wakes runs before its sender goes on, and after a chain that only reads before the client that delivered it: it may hold a lock
// from now on. A client whose chain did more goes on, for it may hold one, too.
func TestWokenClientGoesFirst(t *testing.T) {
	dir := testDir(t)
	serve(t, Options{Name: "c", Dir: dir})
	n, other := join(t, Options{Name: "c", Dir: dir}), join(t, Options{Name: "c", Dir: dir})
	sender, waiter, remote := open(t, n), open(t, n), open(t, other)
	const turns = 40
	var taken atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 * turns {
			if _, err := waiter.Recv(fabric.Forever); err != nil {
				t.Error(err)
				return
			}
			taken.Add(1)
		}
	}()
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	chains := map[string][]fabric.Op{
		"Send":                      nil,
		"a chain that only reads":   {fabric.Load(fabric.At(0, 64))},
		"a chain that takes a lock": {fabric.FAA(fabric.At(0, 64), 1)},
	}
	for name, chain := range chains {
		first := 0
		for range turns {
			was := taken.Load()
			from := remote
			if chain == nil {
				from = sender
			}
			if err := from.Send(waiter.ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
				t.Fatal(err)
			}
			if chain != nil {
				if err := sender.Do(chain); err != nil {
					t.Fatal(err)
				}
			}
			if taken.Load() > was {
				first++
			}
			for taken.Load() == was {
				runtime.Gosched()
			}
		}
		// Now and then Go's scheduler takes turns in another order.
		if want := name != "a chain that takes a lock"; want && first < turns/2 || !want && first > turns/2 {
			t.Errorf("%s: in %d of %d turns the client that was woken went first", name, first, turns)
		}
	}
	<-done
}
