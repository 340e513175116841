package processtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// goOn uses a lock, a store and a tree over and over. It says "works" and a fencing token when all three work, then "lost"
// when it is notified of a loss, and so on.
func goOn(dir string) error {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:killed", declock.WithDir(dir))
	if err != nil {
		return err
	}
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		return err
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{})
	if err != nil {
		return err
	}
	tree, err := c.Tree(ctx, "t", declock.TreeConfig{})
	if err != nil {
		return err
	}
	s, err := c.Session()
	if err != nil {
		return err
	}
	k, err := st.Client(s)
	if err != nil {
		return err
	}
	b, err := tree.Client(s)
	if err != nil {
		return err
	}
	working := false
	for {
		token, err := once(ctx, s, l, k, b)
		switch {
		case errors.Is(err, declock.ErrMemoryLost) && working:
			working = false
			fmt.Println("lost")
		case err == nil && !working:
			working = true
			fmt.Println("works", token)
		}
		time.Sleep(time.Millisecond) // others want the processor, too
	}
}

func once(ctx context.Context, s *declock.Session, l *declock.Locks, k *objstore.Client, b *btree.Client) (uint64, error) {
	g, err := s.Lock(ctx, l.At(0))
	if err != nil {
		return 0, err
	}
	key, value := fmt.Appendf(nil, "key %d", os.Getpid()), bytes.Repeat([]byte("v"), 3000)
	err = errors.Join(k.Set(key, value, objstore.Options{}), b.Put(key, value[:10]))
	if err == nil {
		it, gerr := k.Get(key)
		v, berr := b.Get(key)
		err = errors.Join(gerr, berr)
		if err == nil && (!bytes.Equal(it.Value, value) || !bytes.Equal(v, value[:10])) {
			err = errors.New("other values")
		}
	}
	return uint64(g.Token()), errors.Join(err, g.Unlock())
}

// A memory node whose memory ends with its process is killed under clients of several processes, and started again, twice: all go on
// by themselves, are notified, and get greater tokens.
func TestKilledMemoryNodeWithoutItsMemory(t *testing.T) {
	dir := t.TempDir()
	server := startChild(t, "serve-without-keep", dir)
	server.says("ready")
	users := []*process{startChild(t, "go-on", dir), startChild(t, "go-on", dir)}
	tokens := make([]uint64, len(users))
	works := func() {
		for i, u := range users {
			u.says("works")
			var token uint64
			if _, err := fmt.Sscanf(u.lines.Text(), "works %d", &token); err != nil || token <= tokens[i] {
				t.Errorf("process %d says %q, and token %d before (%v)", i, u.lines.Text(), tokens[i], err)
			}
			tokens[i] = token
		}
	}
	works()
	for range 2 {
		server.kill(syscall.SIGKILL)
		_ = server.cmd.Wait()
		server = startChild(t, "serve-without-keep", dir)
		server.says("ready")
		for _, u := range users {
			u.says("lost")
		}
		works()
	}
}
