package declock_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// cluster starts a memory node and joins it n times from this process.
func cluster(tb testing.TB, n int, opts ...declock.Option) []*declock.Cluster {
	tb.Helper()
	dir := tb.TempDir()
	so := shm.Options{Name: "test", Dir: dir, Size: 64 << 20, Sparse: true}
	srv, err := shm.Serve(so)
	if err != nil {
		tb.Fatal(err)
	}
	m, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
	if err != nil {
		tb.Fatal(err)
	}
	opts = append(opts, declock.WithDir(dir), declock.WithReport(func(err error) { tb.Error(err) }))
	var cs []*declock.Cluster
	for range n {
		c, err := declock.Open(context.Background(), "shm:test", opts...)
		if err != nil {
			tb.Fatal(err)
		}
		cs = append(cs, c)
	}
	tb.Cleanup(func() {
		for _, c := range cs {
			if err := c.Close(); err != nil {
				tb.Error(err)
			}
		}
		if err := m.Close(); err != nil {
			tb.Error(err)
		}
	})
	return cs
}

// Several compute nodes with several sessions each, real goroutines, few locks:
// exclusion of holders, seen in remote memory and in the process; tokens grow;
// waiters that give up never hold.
func TestConcurrentSessions(t *testing.T) {
	const nodes, sessions, locks = 3, 4, 3
	rounds := 2000
	if testing.Short() {
		rounds = 300
	}
	for _, policy := range hier.PolicyNames() {
		t.Run(policy, func(t *testing.T) {
			cs := cluster(t, nodes, declock.WithPolicy(policy))
			var witnesses [locks]witness
			var data [locks]declock.LockID // 64 bytes of data for each lock
			var wg sync.WaitGroup
			var ls [nodes]*declock.Locks
			for i := range ls {
				var err error
				if ls[i], err = cs[i].Locks(context.Background(), "locks", locks); err != nil {
					t.Fatal(err)
				}
			}
			d, err := cs[0].Locks(context.Background(), "data", locks)
			if err != nil {
				t.Fatal(err)
			}
			for i := range locks {
				data[i] = d.At(i)
			}
			for i := range nodes * sessions {
				s, err := cs[i%nodes].Session()
				if err != nil {
					t.Fatal(err)
				}
				wg.Add(1)
				go func() {
					defer wg.Done()
					rnd := rand.New(rand.NewPCG(uint64(i), 7))
					for range rounds {
						n := rnd.IntN(locks)
						if err := visit(s, ls[i%nodes].At(n), data[n], &witnesses[n], rnd); err != nil {
							t.Errorf("session %d: %v", i, err)
							return
						}
					}
				}()
			}
			wg.Wait()
		})
	}
}

type witness struct {
	writers, readers atomic.Int32
	token            atomic.Uint64
}

// visit acquires a lock, possibly with a context that ends soon, and checks
// that it is alone (or among readers) and that the data is whole.
func visit(s *declock.Session, id, data declock.LockID, w *witness, rnd *rand.Rand) error {
	ctx := context.Background()
	if rnd.IntN(8) == 0 {
		c, cancel := context.WithTimeout(ctx, time.Duration(rnd.IntN(50))*time.Microsecond)
		defer cancel()
		ctx = c
	}
	write := rnd.IntN(2) == 0
	acquire := s.RLock
	if write {
		acquire = s.Lock
	}
	g, err := acquire(ctx, id)
	if errors.Is(err, lock.ErrCanceled) {
		return nil
	}
	if err != nil {
		return err
	}
	if write && w.writers.Add(1) != 1 || w.readers.Load() != 0 && write || !write && w.writers.Load() != 0 {
		return fmt.Errorf("not alone: %d writers, %d readers", w.writers.Load(), w.readers.Load())
	}
	if !write {
		w.readers.Add(1)
	}
	if err := touch(s, data, write); err != nil {
		return err
	}
	if write {
		if last := w.token.Swap(uint64(g.Token())); last >= uint64(g.Token()) {
			return fmt.Errorf("token %#x after %#x", g.Token(), last)
		}
		w.writers.Add(-1)
	} else {
		w.readers.Add(-1)
	}
	return g.Unlock()
}

// touch reads 64 bytes, which must be 8 equal words, and may write 8 new ones.
func touch(s *declock.Session, at declock.LockID, write bool) error {
	p := s.Port()
	buf := p.Alloc(64)
	defer p.Free(buf)
	ops := [1]fabric.Op{fabric.Read(at.Addr(), buf)}
	if err := p.Do(ops[:]); err != nil {
		return err
	}
	first := binary.LittleEndian.Uint64(buf)
	for i := 8; i < 64; i += 8 {
		if w := binary.LittleEndian.Uint64(buf[i:]); w != first {
			return fmt.Errorf("data %d is not data %d", w, first)
		}
	}
	if !write {
		return nil
	}
	for i := 0; i < 64; i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], first+1)
	}
	ops[0] = fabric.Write(at.Addr(), buf)
	return p.Do(ops[:])
}
