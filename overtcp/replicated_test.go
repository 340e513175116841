package overtcp_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/overtcp"
)

var failovers = flag.Int("failovers", 3, "how often TestFailover kills the primary")

var touched = flag.Uint64("touched", 0, "how many MiB the primary that TestStoreFailover kills has touched: the kernel frees them before others see its end")

// patience bounds the waits of tests: far more than any takes on a machine that has other things to do.
const patience = 5 * time.Minute

// replicaSize is the memory of a memory node, besides that.
const replicaSize = 4 << 20

// replicaEnv makes this binary a memory node with replicas: its number, and the address of the cluster.
const replicaEnv = "DECLOCK_TEST_REPLICA"

func serveReplica(with string) (io.Closer, error) {
	var id fabric.MemID
	var address string
	var size uint64
	if _, err := fmt.Sscan(with, &id, &address, &size); err != nil {
		return nil, err
	}
	o, err := overtcp.Parse(strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		return nil, err
	}
	srv, err := o.Serve(context.Background(), overtcp.Memory{ID: id, Size: size, Replicas: 2, Room: 4 * size, Huge: true})
	if err != nil {
		return nil, err
	}
	return mn.Start(srv, mn.Config{Participants: 8})
}

// A replicas is a cluster of an etcd and three memory nodes with two copies each, all of them processes.
type replicas struct {
	t       *testing.T
	dir     string
	address string
	options overtcp.Options
	etcd    *exec.Cmd
	mns     [3]*exec.Cmd
	opened  []*declock.Cluster
	hosts   *hosts        // one for each memory node and each client; nil: all are on this one
	ways    [3]*heldProxy // to etcd, of memory nodes; nil: direct
}

func newReplicas(t *testing.T) *replicas { return newReplicasOn(t, nil, false, "") }

// newReplicasOn is newReplicas on hosts; with ways, memory nodes reach etcd over what can be held up. more comes behind the address.
func newReplicasOn(t *testing.T, h *hosts, ways bool, more string) *replicas {
	if testing.Short() {
		t.Skip("leases run out")
	}
	dir, err := os.MkdirTemp("", "declock-overtcp") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	x := &replicas{t: t, dir: dir, hosts: h, address: fmt.Sprintf("tcp://%s/test?insecure=true&listen=%s&dead-after=%v%s", filepath.Join(dir, "etcd.sock"), h.own(), deadAfter, more)}
	x.etcd = startEtcd(t, dir)
	if x.options, err = overtcp.Parse(strings.TrimPrefix(x.address, "tcp:")); err != nil {
		t.Fatal(err)
	}
	for id := range x.mns {
		if ways {
			x.ways[id] = newHeldProxy(t, filepath.Join(dir, fmt.Sprintf("way%d.sock", id)), x.options.Etcd[0])
		}
		x.start(fabric.MemID(id))
	}
	x.open() // a compute node, which copies to backups
	x.whole()
	return x
}

func (x *replicas) start(id fabric.MemID) {
	x.t.Helper()
	address := x.on(int(id))
	if w := x.ways[id]; w != nil {
		address = strings.Replace(address, x.options.Etcd[0], w.l.Addr().String(), 1)
	}
	again := x.mns[id] != nil
	x.mns[id] = startSelfBehind(x.t, x.hosts.behind(int(id)), fmt.Sprintf("%s=%d %s %d", replicaEnv, id, address, replicaSize+*touched<<20))
	if again {
		x.t.Cleanup(func() { // before it is stopped
			for _, c := range x.opened {
				c.Close()
			}
		})
	}
}

// open opens the cluster, until the memory nodes are stopped: else to close it waits for another to take their place.
func (x *replicas) open() *declock.Cluster {
	c, _ := open(x.t, x.address)
	x.opened = append(x.opened, c)
	return c
}

// on returns the address of the cluster for a program on a host.
func (x *replicas) on(host int) string {
	return strings.Replace(x.address, x.hosts.own(), x.hosts.listen(host), 1)
}

// await waits until the coordinator's state shows something.
func (x *replicas) await(what string, ok func(*member.State) bool) *member.State {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := x.options.Membership().Coordinator(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Watch(ctx)
	if err != nil {
		x.t.Fatal(err)
	}
	for {
		s, newer := w.State()
		if s != nil && ok(s) {
			return s
		}
		select {
		case <-newer:
		case <-ctx.Done():
			for _, g := range s.Groups {
				x.t.Logf("%+v", *g)
			}
			x.t.Fatalf("not in time: %s: %+v", what, *s)
		}
	}
}

// whole waits until each number has its copies.
func (x *replicas) whole() *member.State {
	x.t.Helper()
	return x.await("all copies in sync", func(s *member.State) bool {
		return len(s.Groups) == len(x.mns) && !slices.ContainsFunc(s.Groups, func(g *member.Group) bool {
			return !g.Serving || len(g.Replicas) < 2 || slices.ContainsFunc(g.Replicas, func(r member.Replica) bool { return r.Phase != member.InSync || !s.Has(r.Host) })
		})
	})
}

// primary returns the memory node, as a process, that serves number 0.
func (x *replicas) primary() fabric.MemID {
	x.t.Helper()
	return x.whole().Group(0).Replicas[0].ID
}

// A history judges what clients of all compute nodes of the test are granted. It goes by tokens and by what it sees itself.
type history struct {
	t *testing.T

	mu      sync.Mutex
	last    lock.Token
	holds   map[lock.Token]bool // that have not ended: whether a later one was granted in another term
	first   chan time.Time      // gets the time of the first grant in a new term
	granted int
	lost    int
}

func termOf(token lock.Token) uint64 { return uint64(token) >> 48 }

func (h *history) grant(token lock.Token) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.granted++; token <= h.last {
		h.t.Errorf("token %#x after %#x", uint64(token), uint64(h.last))
	}
	for other := range h.holds {
		if termOf(other) == termOf(token) {
			h.t.Errorf("OVERLAP: %#x is granted while %#x holds", uint64(token), uint64(other))
		}
		h.holds[other] = true
	}
	if termOf(token) != termOf(h.last) {
		select {
		case h.first <- now:
		default:
		}
	}
	h.last, h.holds[token] = token, false
}

// release ends a hold, and reports whether its client has heard that it was lost.
func (h *history) release(token lock.Token, unlock func() error) (lost bool) {
	h.mu.Lock()
	passed := h.holds[token]
	delete(h.holds, token) // before others can get it
	h.mu.Unlock()
	err := unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case errors.Is(err, lock.ErrLost):
		h.lost++
	case err == nil && passed:
		h.t.Errorf("the release of %#x succeeds, and a later term has begun", uint64(token))
	case err != nil && !errors.Is(err, fabric.ErrUnknownOutcome):
		h.t.Errorf("release: %v", err)
	}
	return errors.Is(err, lock.ErrLost)
}

// work has clients of some compute nodes lock all the time, until stop is called.
func (h *history) work(x *replicas, nodes int) (stop func()) {
	var over atomic.Bool
	var wg sync.WaitGroup
	ctx := context.Background()
	for range nodes {
		c, _ := open(x.t, x.address)
		locks, err := c.Locks(ctx, "l", 3)
		if err != nil {
			x.t.Fatal(err)
		}
		for range 3 {
			s, err := c.Session()
			if err != nil {
				x.t.Fatal(err)
			}
			wg.Go(func() {
				for !over.Load() {
					bounded, cancel := context.WithTimeout(ctx, 30*time.Second)
					g, err := s.Lock(bounded, locks.At(0))
					cancel()
					if err != nil {
						h.t.Errorf("lock: %v", err)
						return
					}
					h.grant(g.Token())
					time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
					h.release(g.Token(), g.Unlock)
					time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
				}
			})
		}
	}
	return func() {
		over.Store(true)
		wg.Wait()
	}
}

// The primary of a replicated number is killed again and again under load: holders hear of it, clients that wait get the lock from the backup, tokens grow, and within a term
// one holds.
func TestFailover(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	h := &history{t: t, holds: map[lock.Token]bool{}, first: make(chan time.Time, 1)}
	stop := h.work(x, 2)
	c, holder := open(t, x.address)
	locks, err := c.Locks(t.Context(), "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for range *failovers {
		p := x.primary()
		time.Sleep(50 * time.Millisecond)
		select {
		case <-h.first: // of an earlier one
		default:
		}
		g, err := holder.Lock(t.Context(), locks.At(0))
		if err != nil {
			t.Fatal(err)
		}
		h.grant(g.Token())
		killed := time.Now()
		kill(t, x.mns[p])
		took = append(took, h.awaitTerm().Sub(killed).Round(time.Millisecond))
		if !h.release(g.Token(), g.Unlock) {
			t.Error("the holder has not heard of the loss")
		}
		late, _ := open(t, x.address)
		if found, err := late.Locks(t.Context(), "l", 3); err != nil || found.At(0).Addr() != locks.At(0).Addr() {
			t.Errorf("a process that joins after a failover finds lock %v, %v; others have %v", found, err, locks.At(0))
		}
		if err := late.Close(); err != nil {
			t.Error(err)
		}
		x.start(p)
	}
	stop()
	slices.Sort(took)
	t.Logf("%d grants, %d holds lost; from the kill to the first grant: %v", h.granted, h.lost, took)
}

// awaitTerm returns when the first lock was granted in a new term.
func (h *history) awaitTerm() time.Time {
	h.t.Helper()
	select {
	case at := <-h.first:
		return at
	case <-time.After(30 * time.Second):
		h.t.Fatal("no grant within 30 s")
	}
	return time.Time{}
}

// A primary that stands still is deposed when its lease has run out. When it goes on, it is not believed.
func TestFailoverStopped(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	h := &history{t: t, holds: map[lock.Token]bool{}, first: make(chan time.Time, 1)}
	stop := h.work(x, 2)
	for range 2 {
		p := x.primary()
		select {
		case <-h.first:
		default:
		}
		stopped := time.Now()
		if err := x.mns[p].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Logf("from the stop to the first grant: %v", h.awaitTerm().Sub(stopped).Round(time.Millisecond))
		if err := x.mns[p].Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	x.whole()
	stop()
	t.Logf("%d grants, %d holds lost", h.granted, h.lost)
}

// A compute node that is cut off from etcd learns by its own clock that its lease is over, and that its hold is lost, before another is granted the lock: though nothing reaches it, and
// memory nodes do.
func TestFailoverCutOff(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	etcd := x.options.Etcd[0]
	path := filepath.Join(filepath.Dir(etcd), "cut.sock")
	proxy := newHeldProxy(t, path, etcd)
	lost := make(chan time.Time, 1)
	cut, err := declock.Open(t.Context(), strings.Replace(x.address, etcd, path, 1), declock.WithOnLoss(func(lock.Loss) { lost <- time.Now() }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cut.Close() })
	s, err := cut.Session()
	if err != nil {
		t.Fatal(err)
	}
	c, other := open(t, x.address)
	var ids []declock.LockID
	for _, c := range []*declock.Cluster{cut, c} {
		locks, err := c.Locks(t.Context(), "l", 3)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, locks.At(0))
	}
	g, err := s.Lock(t.Context(), ids[0])
	if err != nil {
		t.Fatal(err)
	}
	proxy.hold(true)
	began := time.Now()
	bounded, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := other.Lock(bounded, ids[1])
	granted := time.Now()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case at := <-lost:
		t.Logf("cut off: the hold is lost after %v, and granted to another after %v", at.Sub(began).Round(time.Millisecond), granted.Sub(began).Round(time.Millisecond))
		if at.After(granted) {
			t.Error("another was granted the lock before")
		}
	default:
		t.Error("the holder does not know, and another was granted the lock")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock of what is lost: %v", err)
	}
	if err := got.Unlock(); err != nil {
		t.Error(err)
	}
	if _, err := s.Lock(t.Context(), ids[0]); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("a lock of the node that is cut off: %v", err)
	}
	proxy.open()
}

// etcd is away for longer than leases last: then no replicated number serves, and compute nodes give up what they hold there. When it is back, the memory nodes are the replicas that they
// were, in the same terms, and compute nodes that open the cluster again find their locks.
func TestReplicatedEtcdAway(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	before := x.whole()
	c, s := open(t, x.address)
	locks, err := c.Locks(t.Context(), "l", 3)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Lock(t.Context(), locks.At(0))
	if err != nil {
		t.Fatal(err)
	}
	kill(t, x.etcd)
	for limit := time.Now().Add(patience); err == nil && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		var other declock.Guard
		if other, err = s.Lock(t.Context(), locks.At(1)); err == nil {
			err = other.Unlock()
		}
	}
	if !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("without etcd: %v", err)
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("unlock of what is lost: %v", err)
	}
	time.Sleep(deadAfter)
	x.etcd = startEtcd(t, x.dir)
	again, other := open(t, x.address)
	after := x.whole()
	for i, g := range after.Groups {
		if was := before.Groups[i]; g.Term != was.Term || g.Origin != was.Origin || g.Replicas[0].ID != was.Replicas[0].ID {
			t.Errorf("%+v, and before etcd was away %+v", *g, *was)
		}
	}
	var found *declock.Locks
	var got declock.Guard
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		if found, err = again.Locks(t.Context(), "l", 3); err == nil {
			got, err = other.Lock(t.Context(), found.At(0))
		}
		if !errors.Is(err, fabric.ErrNodeDown) { // until memory nodes have their leases again
			break
		}
	}
	if err == nil && found.At(0).Addr() != locks.At(0).Addr() {
		t.Errorf("lock %v was %v", found.At(0), locks.At(0))
	}
	if err != nil || got.Token() <= g.Token() {
		t.Fatalf("token %#x after %#x, %v", uint64(got.Token()), uint64(g.Token()), err)
	}
	if err := got.Unlock(); err != nil {
		t.Error(err)
	}
}
