package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/overtcp"
)

// serveMemory serves the memory node of a cluster.
func serveMemory(address string) (io.Closer, error) { return serveMemoryOf(address, 32<<20) }

func serveMemoryOf(address string, size uint64) (io.Closer, error) {
	o, err := overtcp.Parse(strings.TrimPrefix(address, "tcp:"))
	if err != nil {
		return nil, err
	}
	o.Report = func(err error) { fmt.Fprintln(os.Stderr, "memory node:", err) }
	srv, err := o.Serve(context.Background(), overtcp.Memory{Size: size})
	if err != nil {
		return nil, err
	}
	return mn.Start(srv, mn.Config{Participants: 8})
}

// A stand is a cluster of processes: an etcd, and a memory node.
type stand struct {
	t       *testing.T
	dir     string
	address string
	etcd    *os.Process
	memory  *os.Process
	lost    chan lock.Loss
}

func newStand(t *testing.T) *stand { return newStandOf(t, deadAfter) }

// newStandOf makes a stand in which leases last for so long.
func newStandOf(t *testing.T, deadAfter time.Duration) *stand {
	if testing.Short() {
		t.Skip("leases run out")
	}
	dir, err := os.MkdirTemp("", "declock-overtcp") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	x := &stand{t: t, dir: dir, lost: make(chan lock.Loss, 10)}
	x.address = fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=%v", filepath.Join(dir, "etcd.sock"), deadAfter)
	x.etcd = startEtcd(t, dir).Process
	x.memory = startSelf(t, memoryEnv+"="+x.address).Process
	return x
}

// A client is what one process has of the stand.
type client struct {
	c     *declock.Cluster
	s     *declock.Session
	locks *declock.Locks
	cache *objstore.Client
}

func (x *stand) open() *client {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := &client{}
	var err error
	if k.c, err = declock.Open(ctx, x.address, declock.WithOnLoss(func(l lock.Loss) { x.lost <- l })); err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { k.c.Close() })
	if k.s, err = k.c.Session(); err != nil {
		x.t.Fatal(err)
	}
	if k.locks, err = k.c.Locks(ctx, "l", 1); err != nil {
		x.t.Fatal(err)
	}
	st, err := k.c.Store(ctx, "s", declock.StoreConfig{Objects: 1000})
	if err != nil {
		x.t.Fatal(err)
	}
	if k.cache, err = st.Client(k.s); err != nil {
		x.t.Fatal(err)
	}
	return k
}

// fill stores something, and lock acquires the lock.
func (x *stand) fill(k *client) {
	x.t.Helper()
	for i := range 100 {
		if err := k.cache.Set(fmt.Appendf(nil, "key %d", i), fmt.Appendf(nil, "value %d", i), objstore.Options{}); err != nil {
			x.t.Fatal(err)
		}
	}
}

func (x *stand) lock(k *client) declock.Guard {
	x.t.Helper()
	g, err := k.s.Lock(context.Background(), k.locks.At(0))
	if err != nil {
		x.t.Fatal(err)
	}
	return g
}

// usable waits until an operation is possible again.
func (x *stand) usable(k *client) {
	x.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := k.cache.Get([]byte("key 0"))
		switch {
		case err == nil:
			return
		case !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrStaleEpoch) && !errors.Is(err, fabric.ErrUnknownOutcome):
			x.t.Fatal(err)
		case time.Now().After(limit):
			x.t.Fatalf("not in time: %v", err)
		}
	}
}

// intact checks that all that was stored is there, and that tokens go on growing.
func (x *stand) intact(k *client, before lock.Token) {
	x.t.Helper()
	for i := range 100 {
		it, err := k.cache.Get(fmt.Appendf(nil, "key %d", i))
		if err != nil || string(it.Value) != fmt.Sprintf("value %d", i) {
			x.t.Fatalf("key %d: %q, %v", i, it.Value, err)
		}
	}
	g := x.lock(k)
	if g.Token() <= before {
		x.t.Errorf("token %#x after %#x", g.Token(), before)
	}
	if err := g.Unlock(); err != nil {
		x.t.Error(err)
	}
}

// await waits until etcd says something.
func (x *stand) await(what string, ok func(mns, cns int) bool) {
	x.t.Helper()
	o, err := overtcp.Parse(strings.TrimPrefix(x.address, "tcp:"))
	if err != nil {
		x.t.Fatal(err)
	}
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := o.Members(ctx)
		cancel()
		if err == nil && ok(len(s.MNs), len(s.CNs)) {
			return
		}
		if time.Now().After(limit) {
			x.t.Fatalf("not in time: %s: %+v, %v", what, s, err)
		}
	}
}

// told waits for the news that a lock is lost.
func (x *stand) told(g declock.Guard) {
	x.t.Helper()
	select {
	case l := <-x.lost:
		if l.Token != g.Token() || !errors.Is(l.Err, lock.ErrLost) && !errors.Is(l.Err, fabric.ErrFenced) {
			x.t.Errorf("told of %+v, held %#x", l, g.Token())
		}
	case <-time.After(patience):
		x.t.Error("no client was notified that the lock is lost")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		x.t.Errorf("Unlock of a lock that is lost: %v", err)
	}
}

// A memory node that is stopped for longer than its lease keeps its memory, and joins again with it. Locks of before are lost, and who held
// them is told.
func TestMemoryNodeStoppedForLongerThanItsLease(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	k := x.open()
	x.fill(k)
	for range 2 {
		g := x.lock(k)
		if err := x.memory.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		x.await("the memory node is given up", func(mns, _ int) bool { return mns == 0 })
		if err := x.memory.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		x.await("it is back", func(mns, cns int) bool { return mns == 1 && cns == 1 })
		// The first user finds out that it has restarted.
		for limit := time.Now().Add(patience); len(x.lost) == 0 && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
			other, err := k.c.Session()
			if err != nil {
				t.Fatal(err)
			}
			_, _ = other.TryLock(k.locks.At(0))
			_ = other.Close()
		}
		x.told(g)
		x.usable(k)
		x.intact(k, g.Token())
	}
}

// etcd loses all its data, as one without a disk that is started anew. No process ends: the memory node joins again with its memory; a compute node
// is given up, its locks are lost and it is told, and the process can open the cluster again.
func TestEtcdLosesItsData(t *testing.T) {
	t.Parallel()
	x := newStand(t)
	k := x.open()
	x.fill(k)
	for range 2 {
		g := x.lock(k)
		if err := x.etcd.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = x.etcd.Wait()
		if err := os.RemoveAll(filepath.Join(x.dir, "data")); err != nil {
			t.Fatal(err)
		}
		x.etcd = startEtcd(t, x.dir).Process
		x.await("the memory node is back", func(mns, _ int) bool { return mns == 1 })
		x.told(g)
		if _, err := k.s.Lock(context.Background(), k.locks.At(0)); !errors.Is(err, fabric.ErrFenced) || !strings.Contains(err.Error(), "etcd") {
			t.Errorf("Lock by a compute node that was given up, which does not say so, and why: %v", err)
		}
		again := x.open()
		x.intact(again, g.Token())
		k = again
	}
}
