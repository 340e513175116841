package pswitch

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// Registers of each width keep what was stored, and do not touch each other.
func TestRegisters(t *testing.T) {
	for _, width := range []int{1, 8, 16, 32, 64} {
		m := Memory{StageBits: 100 * 64}
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
	m := Memory{Stages: 3, StageBits: 1000}
	if _, err := m.Array(100, 8); err != nil {
		t.Error(err)
	}
	if _, err := m.Beside(201, 1); !errors.Is(err, ErrMemory) {
		t.Errorf("201 bits of 200: %v", err)
	}
	if _, err := m.Beside(25, 8); err != nil {
		t.Error(err)
	}
	if _, err := m.Array(126, 8); err != nil { // 125 in a stage, and one in the next
		t.Error(err)
	}
	if stages, bits := m.Used(); stages != 3 || bits != 8*(100+25+126) {
		t.Errorf("%d stages, %d bits", stages, bits)
	}
	if _, err := m.Array(1, 1); !errors.Is(err, ErrMemory) {
		t.Errorf("a fourth stage of three: %v", err)
	}
	for _, bad := range [][2]int{{10, 9}, {0, 8}} {
		if _, err := new(Memory).Array(bad[0], bad[1]); err == nil {
			t.Errorf("%d registers of %d bits", bad[0], bad[1])
		}
	}
	if err := new(Memory).Take(Stages*StageBits/8, 8); err != nil {
		t.Errorf("all of a Tofino's memory: %v", err)
	}
	if err := new(Memory).Take(Stages*StageBits/8+1, 8); !errors.Is(err, ErrMemory) {
		t.Errorf("more than a Tofino's memory: %v", err)
	}
}

type programOf func(*Pass, *fabric.Message)

func (f programOf) Packet(p *Pass, in *fabric.Message) { f(p, in) }

// A pass accesses each array once, and arrays in the order of the stages; the next pass begins anew.
func TestOnePassOneAccess(t *testing.T) {
	m := Memory{StageBits: 1000}
	a, _ := m.Array(4, 8)
	b, _ := m.Beside(4, 8)
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
