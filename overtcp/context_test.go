package overtcp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// The end of a context ends each wait, also that for a memory node that does not answer: every call returns while the memory node still
// stands still. What was begun is over when it goes on: no lock is held, now or later.
func TestContextEndsTheWaitForAMemoryNode(t *testing.T) {
	x := newStand(t)
	other := x.open()
	x.fill(other)
	for _, lanes := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d lanes", lanes), func(t *testing.T) { contextEnds(t, x, x.openWith(lanes), other) })
	}
}

// openWith opens a client with so many connections to each memory node.
func (x *stand) openWith(lanes int) *client {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4 * lanes)) // see tcp.Options.Lanes
	return x.open()
}

func contextEnds(t *testing.T, x *stand, k, other *client) {
	tree, err := k.c.Tree(context.Background(), "t", declock.TreeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	index, err := tree.Client(k.s)
	if err != nil {
		t.Fatal(err)
	}
	if err := index.Put([]byte("key"), []byte("value")); err != nil {
		t.Fatal(err)
	}
	shared, err := k.c.Store(context.Background(), "shared", declock.StoreConfig{Objects: 10})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the caller's reason")
	calls := map[string]func(ctx context.Context) error{
		"Lock": func(ctx context.Context) error {
			g, err := k.s.Lock(ctx, k.locks.At(0))
			if err == nil {
				err = fmt.Errorf("granted: %w", g.Unlock())
			}
			return err
		},
		"RLock": func(ctx context.Context) error {
			_, err := k.s.RLock(ctx, k.locks.At(0))
			return err
		},
		"get": func(ctx context.Context) error {
			return k.s.Do(ctx, func() error { _, err := k.cache.Get([]byte("key 1")); return err })
		},
		"set": func(ctx context.Context) error {
			return k.s.Do(ctx, func() error { return k.cache.Set([]byte("key 1"), []byte("value 1"), objstore.Options{}) })
		},
		"a handle's first get, which opens a client": func(ctx context.Context) error {
			_, err := shared.Get(ctx, []byte("key"), nil)
			return err
		},
		"tree's get": func(ctx context.Context) error {
			return k.s.Do(ctx, func() error { _, err := index.Get([]byte("key")); return err })
		},
		"tree's set": func(ctx context.Context) error {
			return k.s.Do(ctx, func() error { return index.Put([]byte("key"), []byte("value")) })
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			x.usable(k)
			x.usable(other)
			stop(t, x.memory)
			ctx, cancel := context.WithTimeoutCause(context.Background(), 20*time.Millisecond, cause)
			defer cancel()
			returned := make(chan error, 1)
			go func() { returned <- call(ctx) }()
			select {
			case err = <-returned:
			case <-time.After(10 * deadAfter): // what ends the wait sooner says something else
				err = errors.New("waits for the memory node")
			}
			if e := x.memory.Signal(syscall.SIGCONT); e != nil {
				t.Fatal(e)
			}
			for _, want := range []error{lock.ErrCanceled, lock.ErrTimeout, context.DeadlineExceeded, cause} {
				if !errors.Is(err, want) {
					t.Errorf("%v does not wrap %v", err, want)
				}
			}
			again(t, other)
			again(t, k)
		})
	}
}

// stop stops a process, and returns when all its threads stand still.
func stop(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.Pid))
		run := slices.DeleteFunc(threads, func(name string) bool {
			b, err := os.ReadFile(name)
			_, state, ok := bytes.Cut(b, []byte(") ")) // behind the program's name
			return err != nil || ok && state[0] == 'T'
		})
		if len(run) == 0 {
			return
		}
	}
	t.Fatal("not in time: the process stands still")
}

// again acquires the lock and changes the store, as soon as that is possible.
func again(t *testing.T, k *client) {
	t.Helper()
	var err error
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		var g declock.Guard
		if g, err = k.s.Lock(context.Background(), k.locks.At(0)); err == nil {
			err = errors.Join(g.Unlock(), k.cache.Set([]byte("key 1"), []byte("value 1"), objstore.Options{}))
		}
		if err == nil {
			return
		}
	}
	t.Errorf("not in time: %v", err)
}

// etcd takes connections and answers nothing: Open returns when its context ends, with a password too.
func TestContextEndsTheWaitForEtcd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"", "&etcd-user=x&etcd-password-file=" + password} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := declock.Open(ctx, "tcp://"+l.Addr().String()+"/x?insecure=true&listen=127.0.0.1:0"+user)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Open: %v", err)
		}
		end, _ := ctx.Deadline()
		if late := time.Since(end); late > 3*time.Second { // requests to etcd are given up after 5 s
			t.Errorf("Open returns %v after the end of its context", late)
		}
	}
}
