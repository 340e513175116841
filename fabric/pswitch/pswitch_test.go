package pswitch

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// Registers of each width keep what was stored, and do not touch each other.
func TestRegisters(t *testing.T) {
	for _, width := range []int{1, 8, 16, 32, 64} {
		m := Memory{Bits: 100 * 64}
		a, err := m.Array(100, width)
		if err != nil {
			t.Fatal(err)
		}
		value := func(i int) uint64 { return uint64(i) * 0x9e3779b97f4a7c15 >> (64 - width) }
		for i := range 100 {
			a.Store(i, value(i))
		}
		for i := range 100 {
			if got := a.Load(i); got != value(i) {
				t.Errorf("%d bits: register %d is %#x, want %#x", width, i, got, value(i))
			}
		}
	}
}

// The memory is bounded, and widths are the hardware's.
func TestMemoryIsBounded(t *testing.T) {
	m := Memory{Bits: 1000}
	if _, err := m.Array(100, 8); err != nil {
		t.Error(err)
	}
	if _, err := m.Array(201, 1); !errors.Is(err, ErrMemory) {
		t.Errorf("201 bits of 200: %v", err)
	}
	if _, err := m.Array(10, 9); err == nil {
		t.Error("registers of 9 bits")
	}
}

type programOf func(*Pass, *fabric.Message)

func (f programOf) Packet(p *Pass, in *fabric.Message) { f(p, in) }

// A pass accesses each array once, and arrays in the order of the stages; the next pass begins anew.
func TestOnePassOneAccess(t *testing.T) {
	m := Memory{Bits: 1000}
	a, _ := m.Array(4, 8)
	b, _ := m.Array(4, 8)
	add := func(old uint64) uint64 { return old + 1 }
	run := func(arrays ...*Array) (failed any) {
		defer func() { failed = recover() }()
		New(programOf(func(p *Pass, _ *fabric.Message) {
			for _, x := range arrays {
				p.Update(x, 1, add)
			}
		})).Handle(new(fabric.Message), nil)
		return nil
	}
	for range 2 {
		if err := run(a, b); err != nil {
			t.Error(err)
		}
	}
	if a.Load(1) != 2 || b.Load(1) != 2 {
		t.Errorf("registers are %d and %d after two passes", a.Load(1), b.Load(1))
	}
	if run(a, a) == nil || run(b, a) == nil {
		t.Error("a pass may access an array twice, or go back")
	}
}
