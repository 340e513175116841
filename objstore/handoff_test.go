package objstore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lock"
)

// A tenure is a Locker whose node keeps all locks: each holder but the first waits, and gets the handoff of the one before.
type tenure struct {
	*cas.Locker
	handoffs map[fabric.Addr][]byte
	held     map[fabric.Addr]bool
	dead     bool // the node has been declared dead
}

func (l *tenure) Acquire(h *lock.Hold, r *lock.Request) error {
	r.HandoffLen = 0
	if !l.held[r.Lock] {
		l.held[r.Lock] = true
		return l.Locker.Acquire(h, r)
	}
	h.Lock, h.Mode, h.Held = r.Lock, r.Mode, true
	l.Stats().LocalWaits++
	if data := l.handoffs[r.Lock]; len(data) > 0 && len(data) <= len(r.Handoff) {
		r.HandoffLen = copy(r.Handoff, data)
		return nil
	}
	return l.Port().Do(r.Reads)
}

func (l *tenure) Release(h *lock.Hold, before []fabric.Op) error {
	h.Held = false
	l.handoffs[h.Lock] = append([]byte(nil), h.Handoff...)
	h.Handoff = nil
	if l.dead && len(before) > 0 {
		return fmt.Errorf("%w: cn0", fabric.ErrFenced)
	}
	return l.Port().Do(before)
}

func newTenure(t *testing.T) (*tenure, *Client) {
	t.Helper()
	_, c := one(t, nil)
	l := &tenure{Locker: c.l.(*cas.Locker), handoffs: map[fabric.Addr][]byte{}, held: map[fabric.Addr]bool{}}
	c.l = l
	return l, c
}

// Holders of one node after each other change an object: each needs the chain of its change only, and finds what the one before has left.
func TestHandoffsSaveTheRead(t *testing.T) {
	_, c := newTenure(t)
	set := func(v string) func() error { return func() error { return c.Set(b("k"), b(v), Options{}) } }
	wantErr(t, "set", c.Set(b("another"), b("v"), Options{}), nil) // so that chunks are there
	remove := func() error { return c.Delete(b("k")) }
	for i, x := range []struct {
		f      func() error
		err    error
		chains uint64
		value  string
	}{
		{set("1"), nil, 2, "1"}, // the lock comes to the node
		{set("2"), nil, 2, "2"}, // waits, and finds no handoff: none has waited before
		{set("3"), nil, 1, "3"},
		{remove, nil, 1, ""},
		{set("4"), nil, 1, "4"},
		{func() error { return c.Add(b("k"), b("5"), Options{}) }, ErrExists, 1, "4"},
		{func() error { return c.Replace(b("k"), b("6"), Options{}) }, nil, 1, "6"},
		{func() error { return c.Append(b("k"), b("7")) }, nil, 2, "67"}, // a handoff has no value
		{func() error { _, err := c.Incr(b("k"), 1); return err }, nil, 2, "68"},
		{remove, nil, 1, ""},
	} {
		before := c.port.Stats().Chains
		wantErr(t, fmt.Sprint("step ", i), x.f(), x.err)
		if n := c.port.Stats().Chains - before; n != x.chains {
			t.Errorf("step %d: %d chains, want %d", i, n, x.chains)
		}
		if x.value == "" {
			wantMiss(t, c, "k")
		} else {
			wantValue(t, c, "k", x.value)
		}
	}
}

// A node that was declared dead must not answer from a handoff: others may have the lock, and have changed what the handoff says.
func TestFencedClientDoesNotAnswerFromHandoff(t *testing.T) {
	l, c := newTenure(t)
	for range 3 {
		wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
	}
	l.dead = true
	if err := c.Add(b("k"), b("w"), Options{}); errors.Is(err, ErrExists) || !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("add by a dead node: %v", err)
	}
}
