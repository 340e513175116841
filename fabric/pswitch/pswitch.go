package pswitch

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrMemory: the registers of a program need more memory than the switch has.
var ErrMemory = errors.New("pswitch: not enough register memory")

// A Program says what to do with a packet. It keeps nothing between packets but what is in its registers.
type Program interface {
	Packet(pass *Pass, in *fabric.Message)
}

// Memory is the register memory of a switch.
type Memory struct {
	Bits   uint64 // that are left
	stages int
}

// Array takes n registers of a width out of the memory, zeroed, in the stage after those of the arrays before. The width is 1, 8, 16, 32 or 64 bits, as the
// hardware has them.
func (m *Memory) Array(n, width int) (*Array, error) {
	switch width {
	case 1, 8, 16, 32, 64:
	default:
		return nil, fmt.Errorf("pswitch: registers of %d bits: 1, 8, 16, 32 or 64", width)
	}
	need := uint64(n) * uint64(width)
	if n < 1 || need > m.Bits {
		return nil, fmt.Errorf("%w: %d registers of %d bits, %d bits are left", ErrMemory, n, width, m.Bits)
	}
	m.Bits -= need
	m.stages++
	return &Array{words: make([]uint64, (need+63)/64), n: n, width: uint(width), stage: m.stages}, nil
}

// An Array is registers of one stage.
type Array struct {
	words []uint64
	n     int
	width uint
	stage int
}

// Len returns the number of registers.
func (a *Array) Len() int { return a.n }

// Clear zeroes all registers, as the control plane does after a failure.
func (a *Array) Clear() { clear(a.words) }

// Load and Store are the control plane's: not of a program.
func (a *Array) Load(i int) uint64 {
	w, shift, mask := a.at(i)
	return *w >> shift & mask
}

// Store sets a register: see Load.
func (a *Array) Store(i int, v uint64) {
	w, shift, mask := a.at(i)
	*w = *w&^(mask<<shift) | v&mask<<shift
}

func (a *Array) at(i int) (word *uint64, shift uint, mask uint64) {
	if i < 0 || i >= a.n {
		panic(fmt.Sprintf("pswitch: register %d of %d", i, a.n))
	}
	bit := uint(i) * a.width
	return &a.words[bit>>6], bit & 63, ^uint64(0) >> (64 - a.width)
}

// A Pass is the way of one packet through the stages.
type Pass struct {
	stage int
	send  func(to fabric.ClientID, m *fabric.Message)
}

// Update reads a register, replaces it by what change returns of it, and returns what it was. change sees nothing but that register and the packet.
func (p *Pass) Update(a *Array, i int, change func(old uint64) uint64) (old uint64) {
	if a.stage <= p.stage {
		panic(fmt.Sprintf("pswitch: a pass is in stage %d, and accesses an array of stage %d", p.stage, a.stage))
	}
	p.stage = a.stage
	old = a.Load(i)
	a.Store(i, change(old))
	return old
}

// Send sends a packet to a client when the pass is over. m is copied.
func (p *Pass) Send(to fabric.ClientID, m *fabric.Message) { p.send(to, m) }

// Recirculate has a packet go through the stages again when the pass is over, in a pass of its own. Other packets may come between. It is not lost. m is copied.
func (p *Pass) Recirculate(m *fabric.Message) { p.send(Itself, m) }

// Itself is to whom a switch sends what it recirculates: the number of no client.
const Itself fabric.ClientID = 0

// A Switch runs a program.
type Switch struct {
	program Program
	pass    Pass
	packets uint64
}

// New returns a switch that runs a program.
func New(program Program) *Switch { return &Switch{program: program} }

// Handle passes a packet through the program, which sends by send.
func (s *Switch) Handle(in *fabric.Message, send func(to fabric.ClientID, m *fabric.Message)) {
	s.packets++
	s.pass = Pass{send: send}
	s.program.Packet(&s.pass, in)
}

// Packets returns how many packets the switch has handled.
func (s *Switch) Packets() uint64 { return s.packets }
