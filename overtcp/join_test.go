package overtcp_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/overtcp"
)

var joinRounds = flag.Int("joins", 1, "rounds of TestJoinInsideLease; the more, the better")

// holderEnv makes this binary a compute node that locks all the time, and tightEnv a memory node whose locks are reset all the time.
const holderEnv, tightEnv = "DECLOCK_TEST_HOLDER", "DECLOCK_TEST_TIGHT_MEMORY"

// serveTight serves a memory node with short queues and narrow versions.
func serveTight(address string) (io.Closer, error) {
	o, err := overtcp.Parse(strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		return nil, err
	}
	srv, err := o.Serve(context.Background(), overtcp.Memory{Size: 16 << 20})
	if err != nil {
		return nil, err
	}
	return mn.Start(srv, mn.Config{Participants: 4, VersionBits: 2})
}

// A traffic is what the clients of one compute node do, and which of the running clients holds the lock: readers in the low half,
// writers in the high one.
type traffic struct {
	c      *declock.Cluster
	stop   atomic.Bool
	wg     sync.WaitGroup
	held   *atomic.Uint64 // nil: not judged
	report func(format string, args ...any)
	locked atomic.Uint64
}

const writerUnit = 1 << 32

// work lets three sessions lock until stop, or until an error.
func (f *traffic) work(locks *declock.Locks) error {
	for i := range 3 {
		s, err := f.c.Session()
		if err != nil {
			return err
		}
		f.wg.Go(func() {
			defer s.Close()
			for !f.stop.Load() {
				if !f.once(s, locks.At(0), i > 0 && rand.IntN(4) > 0) {
					return
				}
				time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
			}
		})
	}
	return nil
}

func (f *traffic) once(s *declock.Session, l declock.LockID, read bool) bool {
	var g declock.Guard
	var err error
	unit, others := uint64(writerUnit), ^uint64(0)
	if read {
		g, err = s.RLock(context.Background(), l)
		unit, others = 1, ^uint64(writerUnit-1)
	} else {
		g, err = s.Lock(context.Background(), l)
	}
	if err != nil {
		f.report("lock: %v", err)
		return false
	}
	f.locked.Add(1)
	if f.held != nil {
		if now := f.held.Add(unit); (now-unit)&others != 0 {
			f.report("OVERLAP: read %v, beside %d readers and %d writers", read, uint32(now-unit), (now-unit)>>32)
		}
	}
	time.Sleep(time.Duration(rand.IntN(1500)) * time.Microsecond)
	if f.held != nil {
		f.held.Add(-unit)
	}
	if err := g.Unlock(); err != nil {
		f.report("unlock: %v", err)
		return false
	}
	return true
}

func (f *traffic) end() {
	f.stop.Store(true)
	f.wg.Wait()
}

// hold is the process that is to lose its lease.
func hold(address string) (io.Closer, error) {
	c, err := declock.Open(context.Background(), address)
	if err != nil {
		return nil, err
	}
	locks, err := c.Locks(context.Background(), "l", 1)
	if err != nil {
		return nil, err
	}
	f := &traffic{c: c, report: func(string, ...any) {}} // that it is fenced
	if err := f.work(locks); err != nil {
		return nil, err
	}
	for f.locked.Load() < 20 {
		time.Sleep(time.Millisecond)
	}
	return c, nil
}

// A heldProxy is a way to etcd on which each direction can be held up. Connections stay, and what is held up comes later.
type heldProxy struct {
	t      *testing.T
	target string
	l      net.Listener
	mu     sync.Mutex
	cond   *sync.Cond
	held   [2]bool // towards etcd, and from it
	over   bool
}

const towards, from = 0, 1

func newHeldProxy(t *testing.T, path, target string) *heldProxy {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := &heldProxy{t: t, target: target, l: l}
	p.cond = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		l.Close()
		p.set(func() { p.over = true })
	})
	go p.run()
	return p
}

func (p *heldProxy) run() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", p.target)
		if err != nil {
			in.Close()
			continue
		}
		go p.forward(in, out, towards)
		go p.forward(out, in, from)
	}
}

func (p *heldProxy) forward(src, dst net.Conn, way int) {
	defer dst.Close()
	defer src.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := src.Read(b)
		p.mu.Lock()
		for p.held[way] && !p.over {
			p.cond.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, werr := dst.Write(b[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *heldProxy) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	p.cond.Broadcast()
}

func (p *heldProxy) hold(both bool) { p.set(func() { p.held = [2]bool{both, true} }) }
func (p *heldProxy) open()          { p.set(func() { p.held = [2]bool{} }) }

// A lease is the stand of TestJoinInsideLease.
type lease struct {
	*testing.T
	direct, first string // addresses: of the others, and of the node that loses its lease
	toFirst       *heldProxy
	toMemory      *heldProxy
	o             overtcp.Options
	held          atomic.Uint64
	troubled      atomic.Bool
	mu            sync.Mutex
	trouble       []string
}

// note notes what a live node reports.
func (x *lease) note(format string, args ...any) {
	x.troubled.Store(true)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trouble = append(x.trouble, fmt.Sprintf(format, args...))
}

func (x *lease) state() *member.State {
	x.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := x.o.Members(ctx)
	if err != nil {
		x.Fatal(err)
	}
	if len(s.MNs) != 1 || s.MNs[0].Epoch != 1 {
		x.Skipf("the memory node has lost its own lease: this machine is too slow: %+v", *s)
	}
	return s
}

// await waits until etcd shows something.
func (x *lease) await(what string, ok func(*member.State) bool) {
	x.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		s := x.state()
		if ok(s) {
			return
		}
		if time.Now().After(limit) {
			x.Fatalf("not in time: %s: %+v", what, *s)
		}
	}
}

// start makes this process a compute node (once more) that works.
func (x *lease) start() (*traffic, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := declock.Open(ctx, x.direct)
	if err != nil {
		return nil, err
	}
	locks, err := c.Locks(ctx, "l", 1)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	f := &traffic{c: c, held: &x.held, report: x.note}
	return f, f.work(locks)
}

func newLease(t *testing.T) *lease {
	dir, err := os.MkdirTemp("", "declock-overtcp") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(t, dir)
	etcd := filepath.Join(dir, "etcd.sock")
	by := func(name string) (*heldProxy, string) {
		path := filepath.Join(dir, name)
		address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=%v", path, deadAfter)
		if path == etcd {
			return nil, address
		}
		return newHeldProxy(t, path, etcd), address
	}
	x := &lease{T: t}
	_, x.direct = by("etcd.sock")
	var memory string
	x.toFirst, x.first = by("a.sock")
	x.toMemory, memory = by("m.sock")
	if x.o, err = overtcp.Parse(strings.TrimPrefix(x.direct, "tcp:")); err != nil {
		t.Fatal(err)
	}
	startSelf(t, tightEnv+"="+memory)
	return x
}

// A node joins while another cannot reach etcd, stopped or not; then the lease of that one runs out, and the memory node does not hear of that
// for a while, so that the node that has gone still reaches memory, and resets locks, for nodes that it knows of. Those who
// live never hold the lock beside each other.
func TestJoinInsideLease(t *testing.T) {
	if testing.Short() {
		t.Skip("leases run out")
	}
	x := newLease(t)
	var others []*traffic
	for range 2 {
		f, err := x.start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.c.Close() })
		others = append(others, f)
	}
	shown := 0
	for tries := 0; shown < *joinRounds && tries < 2**joinRounds+3 && !x.troubled.Load(); tries++ {
		if x.round(tries%2 == 1) {
			shown++
		}
	}
	for _, f := range others {
		f.end()
	}
	x.state() // skips if the memory node was lost
	for i, what := range x.trouble {
		if i < 10 {
			t.Error(what)
		}
	}
	if shown == 0 && !t.Failed() {
		t.Skip("leases ran out too early each time: this machine is too slow")
	}
	t.Logf("%d rounds; the lock was granted %d times to the others", shown, others[0].locked.Load()+others[1].locked.Load())
}

// round plays it once. It reports whether the memory node was late.
func (x *lease) round(stopped bool) bool {
	without := x.state()
	a := startSelf(x.T, holderEnv+"="+x.first)
	defer func() {
		_ = a.Process.Kill()
		_ = a.Wait()
		x.toFirst.open()
	}()
	before := x.state()
	var first member.Incarnation
	for _, c := range before.CNs {
		if !without.Has(c.Incarnation) {
			first = c.Incarnation
		}
	}
	x.toFirst.hold(true)
	began := time.Now()
	if stopped {
		x.signal(a, syscall.SIGSTOP)
	}
	joined := make(chan *traffic, 1)
	go func() {
		f, err := x.start()
		if err != nil {
			x.note("join: %v", err)
		}
		joined <- f
	}()
	x.await("the joiner", func(s *member.State) bool { return len(s.CNs) == len(before.CNs)+1 || !s.Has(first) })
	time.Sleep(time.Until(began.Add(deadAfter * 6 / 10))) // the memory node has acknowledged that
	x.toMemory.hold(false)
	late := x.state().Has(first)
	x.await("the end of the lease", func(s *member.State) bool { return !s.Has(first) })
	if stopped {
		x.signal(a, syscall.SIGCONT)
	}
	time.Sleep(deadAfter / 3)
	if late && len(joined) > 0 {
		x.note("a node was admitted while one that had gone still reached memory, and did not know it")
	}
	x.toMemory.open()
	f := <-joined
	if f == nil {
		return false
	}
	before2 := f.locked.Load()
	for limit := time.Now().Add(patience); f.locked.Load() < before2+20 && !x.troubled.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			x.note("the node that joined gets no lock")
			break
		}
	}
	f.end()
	if err := f.c.Close(); err != nil {
		x.note("the node that joined leaves: %v", err)
	}
	x.await("all is as before", func(s *member.State) bool { return len(s.CNs) == len(before.CNs)-1 && len(s.Fencing) == 0 })
	return late
}

func (x *lease) signal(p *exec.Cmd, s syscall.Signal) {
	x.Helper()
	if err := p.Process.Signal(s); err != nil {
		x.Fatal(err)
	}
}
