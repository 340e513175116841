package objstore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory/handle"
)

// keyAt stores objects in a bucket until one is in an overflow block, or in none, and returns its key and where it is.
func keyAt(t *testing.T, c *Client, overflow bool) (key []byte, at candidate, n *handle.Part) {
	t.Helper()
	for i := range 100 {
		wantErr(t, "set", c.Set(keyOf(i), b("v"), Options{TTL: 50}), nil)
		k := work{look: look{head: true}}
		wantErr(t, "begin", c.beginChange(&k, keyOf(i)), nil)
		wantErr(t, "lookup", c.lookup(&k, lock.Exclusive), nil)
		wantErr(t, "unlock", c.unlock(nil), nil)
		c.endChange()
		if k.found && k.depth > 0 == overflow {
			return keyOf(i), candidate{bucket: k.bucket, slot: k.slot, word: k.word}, k.n
		}
	}
	t.Fatal("no such key")
	return nil, at, nil
}

// An operation of any kind fails when a backup has what the primary has not: its compute node repairs the bucket by itself, though none has gone, be the object in the bucket or in an overflow
// block of it.
func TestWhatFailsIsRepaired(t *testing.T) {
	changes := map[string]func(c *Client, key []byte, at candidate, n *handle.Part) error{
		"delete": func(c *Client, key []byte, _ candidate, _ *handle.Part) error { return c.Delete(key) },
		"touch":  func(c *Client, key []byte, _ candidate, _ *handle.Part) error { return c.Touch(key, 1000) },
		"flush":  func(c *Client, _ []byte, _ candidate, _ *handle.Part) error { _, err := c.Flush(); return err },
		"evict": func(c *Client, _ []byte, at candidate, n *handle.Part) error {
			_, err := c.unlink(n, at.bucket, at.slot, at.word, expiry{})
			return err
		},
		"move": func(c *Client, _ []byte, at candidate, n *handle.Part) error {
			to, err := c.alloc(n, at.word.class())
			wantErr(t, "alloc", err, nil)
			_, err = c.move(n, &at, to)
			return err
		},
	}
	for op, change := range changes {
		for _, overflow := range []bool{false, true} {
			for _, early := range []bool{false, true} { // before all backups have it
				what := fmt.Sprintf("%s, overflow %t, early %t", op, overflow, early)
				w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 1<<20, 1, 3)
				cfg := w.config()
				cfg.Objects = 1
				p := &interrupted{Port: w.port(0).(*sim.Port)}
				l := &unsure{Locker: cas.New(p, cas.Config{}), n: w.cns[0]}
				c, err := w.open(0, cfg).Client(l)
				wantErr(t, "client", err, nil)
				c.SetNow(10)
				key, at, n := keyAt(t, c, overflow)
				walkAll(t, c, w.cns[0].View)
				if early {
					p.left = 2
				} else {
					l.then = func() {}
				}
				if err := change(c, key, at, n); err == nil {
					t.Fatalf("%s: it has not failed", what)
				}
				r, err := c.Check(CheckOptions{Backups: true})
				if wantErr(t, what, err, nil); r.Sound() {
					t.Fatalf("%s: the backups are what the primary is", what)
				}
				if walkAll(t, c, w.cns[0].View) {
					t.Errorf("%s: a walk, though none has gone", what)
				}
				r, err = c.Check(CheckOptions{Backups: true})
				if wantErr(t, what, err, nil); !r.Sound() {
					t.Errorf("%s: not repaired: %v", what, r)
				}
				w.c.Close()
			}
		}
	}
}

// An interrupted is a Port that is interrupted at the so many-th chain to a backup from now on, once; 0: at none.
type interrupted struct {
	*sim.Port
	left int
}

func (p *interrupted) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.left--; p.left == 0 {
		return 0, fabric.ErrInterrupted
	}
	return p.Port.PostBackup(g, i, ops)
}
