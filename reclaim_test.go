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
