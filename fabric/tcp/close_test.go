package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// A closee is a Port that another goroutine closes while its owner is at work: it adds to a word of its own, and reads it.
type closee struct {
	fabric.Port
	word        fabric.Addr
	sure, maybe uint64 // FAAs that were executed, and of unknown outcome
}

// work goes on until an error, which it returns. What succeeds has the results that the memory node's word has.
func (c *closee) work(how int) error {
	for {
		add, read := []fabric.Op{fabric.FAA(c.word, 1), fabric.Load(c.word)}, []fabric.Op{fabric.Load(c.word)}
		add[0].Old, add[1].Old, read[0].Old = 1<<60, 1<<60, 1<<60
		var errs [2]error
		switch how {
		case 0:
			if errs[0] = c.Do(add); errs[0] == nil {
				errs[1] = c.Do(read)
			}
		default:
			var pending [2]fabric.Pending
			if pending[0], errs[0] = c.Post(add); errs[0] == nil {
				pending[1], errs[1] = c.Post(read)
				errs[0] = c.Wait(pending[0])
				if errs[1] == nil {
					errs[1] = c.Wait(pending[1])
				}
			}
		}
		switch {
		case errs[0] == nil:
			if old := add[0].Old; old < c.sure || old > c.sure+c.maybe || add[1].Old != old+1 {
				return fmt.Errorf("FAA %d, or up to %d more, returned %#x, and the READ behind it %#x", c.sure, c.maybe, old, add[1].Old)
			}
			c.sure, c.maybe = add[1].Old, 0 // nothing overtakes an operation of unknown outcome
		case errors.Is(errs[0], fabric.ErrUnknownOutcome):
			c.maybe++
		}
		if errs[0] == nil && errs[1] == nil && read[0].Old != c.sure {
			return fmt.Errorf("READ behind FAA %d returned %#x", c.sure, read[0].Old)
		}
		if err := errors.Join(errs[:]...); err != nil && !errors.Is(err, fabric.ErrInterrupted) {
			return err
		}
	}
}

// Another goroutine closes Ports while their owners are at work: each operation has its true results or ends with fabric.ErrClosed, and is
// counted right. Nothing is left of it, and the other clients of the lane notice nothing. Interrupts, fencing and the end of the node come
// at the same time.
func TestCloseBesideOperations(t *testing.T) {
	for _, lanes := range []int{1, 4} {
		for _, beside := range []string{"close", "interrupt", "fence", "node"} {
			t.Run(fmt.Sprintf("%d lanes/%s", lanes, beside), func(t *testing.T) { closeBeside(t, lanes, beside) })
		}
	}
}

func closeBeside(t *testing.T, lanes int, beside string) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Lanes = lanes }
	c.Serve(0, 1<<20)
	other := peertest.Open(t, c.Join())
	n := c.Join()
	word := uint64(64)
	for round := range 40 {
		if round > 0 && beside != "close" && beside != "interrupt" {
			n = c.Join()
		}
		var clients [6]*closee
		begun := make(chan bool, len(clients))
		for i := range clients {
			clients[i] = &closee{Port: peertest.Open(t, n), word: fabric.At(0, word)}
			word += 64
			c.Go(clients[i], func(fabric.Port) {
				begun <- true
				err := clients[i].work(i % 2)
				if !errors.Is(err, fabric.ErrClosed) && (beside != "fence" || !errors.Is(err, fabric.ErrFenced)) {
					t.Errorf("client %d: %v", i, err)
				}
			})
		}
		for range clients {
			<-begun
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		var tasks sync.WaitGroup
		switch beside {
		case "interrupt":
			for _, k := range clients {
				tasks.Go(func() { k.Interrupt(); k.ClearInterrupt(); k.Interrupt() })
			}
		case "fence":
			tasks.Go(func() { n.Fence(fabric.ErrFenced) })
		case "node":
			tasks.Go(func() { n.Close() })
		}
		for _, k := range clients {
			tasks.Go(func() { k.Close(); k.Close() })
		}
		tasks.Wait()
		c.Wait()
		if beside != "fence" && beside != "node" {
			nothingLeft(t, n)
		}
		for i, k := range clients {
			got := peertest.Do(t, other, fabric.Load(k.word))[0].Old
			if got < k.sure || got > k.sure+k.maybe {
				t.Errorf("round %d, client %d: the word is %d, want %d to %d", round, i, got, k.sure, k.sure+k.maybe)
			}
		}
	}
}

// nothingLeft waits until no chain of a node's closed Ports is on its way.
func nothingLeft(t *testing.T, n *node) {
	t.Helper()
	r := remoteOf(n, 0)
	peertest.Await(t, "nothing is left of closed Ports", func() bool {
		k := r.limbo.Load()
		for _, l := range r.lanes {
			k += l.left.Load() + l.parked.Load() + int32(l.posted.Load()-l.answered.Load())
		}
		return k == 0
	})
}

// A Port is closed while its owner waits for a memory node that does not answer, as the reader of the lane or asleep: the owner ends with
// fabric.ErrClosed, of unknown outcome where it changes memory. The late answers touch nothing, and break no connection.
func TestCloseEndsTheWaitForAMemoryNode(t *testing.T) {
	s, n, first, second := patientLanes(t, 20*time.Second)
	word, data := fabric.At(0, 64), fabric.At(0, 4096)
	conns := connsOf(n)
	goOn := s.stall(0, 1)
	defer goOn()
	type waiter struct {
		p   fabric.Port
		op  fabric.Op
		err chan error
	}
	var waiters []*waiter
	waits := func(p fabric.Port, op fabric.Op) {
		w := &waiter{p, op, make(chan error, 1)}
		waiters = append(waiters, w)
		if len(waiters)%2 == 0 {
			pending, err := p.Post([]fabric.Op{op})
			if err != nil {
				t.Fatal(err)
			}
			go func() { w.err <- p.Wait(pending) }()
			return
		}
		go func() { w.err <- p.Do([]fabric.Op{op}) }()
	}
	var bufs [][]byte
	for range 4 {
		p := peertest.Open(t, n)
		buf := p.Alloc(512)
		bufs = append(bufs, buf)
		waits(p, fabric.Read(data, buf))
		waits(peertest.Open(t, n), fabric.FAA(word, 1))
		waits(peertest.Open(t, n), fabric.FAA(word, 1))
	}
	idle := peertest.Open(t, n)
	posted := []fabric.Op{fabric.FAA(word, 1)}
	pending, err := idle.Post(posted)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(10 * time.Millisecond)
	for _, w := range waiters {
		w.p.Close()
	}
	idle.Close()
	for _, w := range waiters {
		select {
		case err := <-w.err:
			if !errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrUnknownOutcome) != (w.op.Kind == fabric.OpFAA) {
				t.Errorf("%v on a Port that was closed meanwhile: %v", w.op, err)
			}
		case <-time.After(4 * time.Second):
			t.Fatalf("%v: a closed Port waits for a memory node that does not answer", w.op)
		}
	}
	if err := idle.Wait(pending); !errors.Is(err, fabric.ErrClosed) || !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("Wait for a chain that was under way at Close: %v", err)
	}
	if err := idle.Wait(pending); !errors.Is(err, fabric.ErrClosed) {
		t.Errorf("Wait again: %v", err)
	}
	for i := range bufs {
		copy(bufs[i], bytes.Repeat([]byte{0xee}, len(bufs[i])))
	}
	goOn()
	settles(t, first, word)
	settles(t, second, word)
	nothingLeft(t, n)
	for _, b := range bufs {
		if !bytes.Equal(b, bytes.Repeat([]byte{0xee}, len(b))) {
			t.Error("the late answer to a READ has changed memory of a closed Port")
		}
	}
	for i, conn := range connsOf(n) {
		if conn != conns[i] {
			t.Errorf("the connection of lane %d has broken", i)
		}
	}
}

func connsOf(n *node) (conns []*stream) {
	for _, l := range remoteOf(n, 0).lanes {
		conns = append(conns, l.conn.Load())
	}
	return conns
}

// Close by the owner, or by another goroutine between Post and Wait: what the memory node answers is the outcome of Wait.
func TestWaitBehindClose(t *testing.T) {
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.Serve(0, 1<<20)
	n := c.Join()
	for i := range uint64(100) {
		p := peertest.Open(t, n)
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
		pending, err := p.Post(ops)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		switch err := p.Wait(pending); {
		case err == nil && ops[0].Old != i:
			t.Fatalf("FAA %d returned %d", i, ops[0].Old)
		case err != nil && !(errors.Is(err, fabric.ErrClosed) && errors.Is(err, fabric.ErrUnknownOutcome)):
			t.Fatal(err)
		}
	}
}

// A cluster is closed while its sessions lock and unlock, each a lock of its own: no Lock says that it has a lock that it has not, which its
// token would show, no Unlock says that the lock was lost, and nothing panics.
func TestClusterClosedUnderItsSessions(t *testing.T) {
	if fabrictest.RaceEnabled {
		t.Skip("Close adds up the counters of sessions that are in use")
	}
	ctx := context.Background()
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	if _, err := mn.Start(c.Serve(0, 32<<20), mn.Config{Participants: 8}); err != nil {
		t.Fatal(err)
	}
	for round := range 20 {
		x, err := declock.OpenNode(c.Join())
		if err != nil {
			t.Fatal(err)
		}
		locks, err := x.Locks(ctx, "l", 4)
		if err != nil {
			t.Fatal(err)
		}
		var tasks sync.WaitGroup
		begun := make(chan bool, 4)
		for k := range 4 {
			s, err := x.Session()
			if err != nil {
				t.Fatal(err)
			}
			tasks.Go(func() {
				last := lock.Token(0)
				for n := 0; ; n++ {
					g, err := s.Lock(ctx, locks.At(k))
					if err == nil && g.Token() <= last {
						t.Errorf("round %d: Lock has token %#x after %#x", round, g.Token(), last)
					}
					if err == nil {
						last = g.Token()
						err = g.Unlock()
					}
					if n == 0 {
						begun <- true
					}
					if err != nil {
						// Close releases what a session holds that it finds between two operations: Unlock then has nothing to release, or
						// comes while Close uses the session's Port.
						released := errors.Is(err, lock.ErrMisuse) || errors.Is(err, fabric.ErrBadChain)
						if !errors.Is(err, declock.ErrClosed) && !released || errors.Is(err, lock.ErrLost) {
							t.Errorf("round %d: lock %d: %v", round, k, err)
						}
						return
					}
				}
			})
		}
		for range 4 {
			<-begun
		}
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		if err := x.Close(); err != nil && !errors.Is(err, declock.ErrInUse) && !errors.Is(err, declock.ErrHeld) {
			t.Errorf("round %d: Close: %v", round, err)
		}
		tasks.Wait()
	}
}

// What Options.Left says to do is done once, when the node has left, by Close and by Fail, and its error is theirs.
func TestLeft(t *testing.T) {
	members := coordinator.NewMemory(4)
	o := testOptions(t, members)
	failing, left := errors.New("of Left"), 0
	o.Left = func() error { left++; return failing }
	o.Size = 1 << 20
	srv, err := Serve(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	watching, err := members.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range []func(fabric.Node) error{fabric.Node.Close, fabric.Node.Fail} {
		n, err := Join(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Left = func() error {
			left++
			if st, _ := watching.State(); len(st.CNs) != 0 {
				t.Errorf("%v is a member still", st.CNs)
			}
			return failing
		}
		if err := end(n); !errors.Is(err, failing) || left != i+1 {
			t.Errorf("%v, called %d times", err, left)
		}
		if err := n.Close(); err != nil || left != i+1 {
			t.Errorf("closed again: %v, called %d times", err, left)
		}
		// A node that crashed counts once the memory node has acknowledged its end.
		for st, change := watching.State(); st.Lost != uint64(i); st, change = watching.State() {
			select {
			case <-change:
			case <-time.After(time.Minute):
				t.Fatalf("%d nodes are lost, want %d", st.Lost, i)
			}
		}
	}
	if err := srv.Close(); !errors.Is(err, failing) || left != 3 {
		t.Errorf("the memory node: %v, called %d times", err, left)
	}
}

// A client sends messages while another goroutine closes it.
func TestSendBesideClose(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.Serve(0, 1<<20)
	n := c.Join()
	for range 50 {
		a, b := peertest.Open(t, n), peertest.Open(t, n)
		for range 8 {
			if _, err := a.Post([]fabric.Op{fabric.FAA(peertest.Word, 1)}); err != nil {
				t.Fatal(err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.Close()
		}()
		for range 50 {
			_ = a.Send(b.ID(), &fabric.Message{Kind: fabric.MsgUser})
		}
		<-done
		_ = b.Close()
	}
}
