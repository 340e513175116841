package declock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A downPort reaches a memory node so many times.
type downPort struct {
	fabric.Port
	left int
}

func (p *downPort) Do(ops []fabric.Op) error {
	if p.left--; p.left < 0 {
		return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
	}
	return p.Port.Do(ops)
}

// A key that is set again and again is set without the lock before long: its sets have epochs be short.
func TestSlotsOpenSoon(t *testing.T) {
	c, err := Open(t.Context(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(t.Context(), "open", StoreConfig{Objects: 100, OpenSlots: true})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for st.Stats().Open == 0 && time.Since(began) < 30*time.Second {
		if err := st.Set(t.Context(), []byte("k"), []byte("v"), SetOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the slot has opened after %v", took)
	}
}

// A process frees in the background what it has left half made because the memory node was down.
func TestHalfMadeIsFreedInTheBackground(t *testing.T) {
	c, err := Open(context.Background(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := c.node.Regions()[0]
	_, _, err = r.Create(&downPort{s.Port(), 3}, memory.Spec{Name: "half", Kind: memory.KindLocks, Size: 4096, Creating: &c.creating})
	if !errors.Is(err, fabric.ErrNodeDown) || !c.creating.Left(r.Memory()) {
		t.Fatalf("error %v, left %v", err, c.creating.Left(r.Memory()))
	}
	if err := c.reclaimHalfMade(); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := r.Lookup(s.Port(), "half", memory.KindLocks)
		if errors.Is(err, memory.ErrNotFound) {
			return
		}
		if !errors.Is(err, memory.ErrHalfCreated) || time.Now().After(until) {
			t.Fatal(err)
		}
	}
}
