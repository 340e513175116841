package tcp

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

func TestParseRunnable(t *testing.T) {
	for text, want := range map[string]int{"0.20 0.18 0.12 3/80 11206\n": 3, "0.00 0.00 0.00 120/4000 7": 120, "": 0, "0.1 0.2 x/3": 0, "/": 0} {
		if got := parseRunnable([]byte(text)); got != want {
			t.Errorf("%q: %d runnable threads, want %d", text, got, want)
		}
	}
	if n := runnableThreads()(); n < 1 { // this one
		t.Errorf("%d threads are runnable", n)
	}
}

// A machine is crowded while more threads are runnable than there are processors, and for a while after.
func TestCrowding(t *testing.T) {
	n, procs := 2, 1
	c := &crowding{count: func() int { return n }, most: 2, procs: func() int { return procs }, begun: time.Now()}
	if c.crowded() {
		t.Fatal("crowded, with as many runnable threads as processors")
	}
	n = 3
	c.next.Store(0)
	if !c.crowded() {
		t.Fatal("not crowded, with more runnable threads than processors")
	}
	for n = 0; c.crowded(); time.Sleep(crowdedFor) {
		if time.Since(c.begun) > time.Minute {
			t.Fatal("crowded for ever")
		}
	}
	for n, procs = 3, 2; n <= 4; n++ {
		c.next.Store(0)
		if crowded := c.crowded(); crowded != (n == 4) {
			t.Fatalf("a process that runs goroutines in several threads, %d threads runnable, 2 processors: crowded %v", n, crowded)
		}
	}
}

// A waiter spins for a while, then it parks; on a crowded machine it parks at once.
func TestSpinner(t *testing.T) {
	next := machine.next.Swap(1 << 62) // it is not counted
	t.Cleanup(func() { machine.next.Store(next); machine.until.Store(0) })
	machine.until.Store(0)
	k := spinner{alone: true}
	if !k.again(1) || !k.again(2) || k.again(1+patience.Max) {
		t.Fatal("a waiter does not spin for a while, and then park")
	}
	machine.until.Store(1 << 62)
	if k.again(1) {
		t.Fatal("a waiter spins on a crowded machine")
	}
}

// A client is lone while no other of its process begins to wait between two waits of its own, unless it has woken one.
func TestLoneClients(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.Serve(0, 1<<20)
	n := c.Join()
	a, b := peertest.Open(t, n).(*port), peertest.Open(t, n).(*port)
	const tries = 20
	lone, woken := 0, 0
	for range tries {
		a.isLone()
		if a.isLone() {
			lone++
		}
		b.isLone()
		if a.isLone() {
			t.Fatal("lone, though another has begun to wait")
		}
		came := make(chan error)
		go func() {
			_, err := b.Recv(fabric.Forever)
			came <- err
		}()
		time.Sleep(time.Millisecond) // until it is parked
		if err := a.Send(b.ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
			t.Fatal(err)
		}
		if !a.isLone() {
			woken++
		}
		if err := <-came; err != nil {
			t.Fatal(err)
		}
	}
	if lone < tries/2 {
		t.Errorf("a client that waits again and again was lone %d times of %d", lone, tries)
	}
	if woken < tries/2 {
		t.Errorf("one that has woken another was lone %d times of %d", tries-woken, tries)
	}
}

// A client that waits alone delivers a message that comes meanwhile: the one that it wakes runs before it waits on.
func TestLoneReaderMakesRoom(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := newTestCluster(t)
	defer c.Close()
	c.Serve(0, 1<<20)
	n, other := c.Join(), c.Join()
	a, b, from := peertest.Open(t, n), peertest.Open(t, n), peertest.Open(t, other)
	peertest.Do(t, a, fabric.FAA(peertest.Word, 1))
	w := remoteOf(n, 0).lanes[0].wire.Load()
	const tries = 20
	first := 0
	for range tries {
		var came atomic.Bool
		ended := make(chan error)
		go func() {
			_, err := b.Recv(fabric.Forever)
			came.Store(true)
			ended <- err
		}()
		time.Sleep(5 * time.Millisecond) // until it is parked, and the mail, too
		w.lead.Lock()
		pending, err := a.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)}) // park ends
		if err == nil {
			err = from.Send(b.ID(), &fabric.Message{Kind: fabric.MsgUser})
		}
		w.spinner.alone = true
		if w.park(); came.Load() {
			first++
		}
		w.unlead()
		if err == nil {
			err = a.Wait(pending)
		}
		if err == nil {
			err = <-ended
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if first < tries/2 {
		t.Errorf("one that was woken ran before the reader waited on %d times of %d", first, tries)
	}
}
