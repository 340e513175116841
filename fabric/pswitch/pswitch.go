package pswitch

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrMemory: the registers of a program need more stages, or more memory, than the switch has.
var ErrMemory = errors.New("pswitch: not enough register memory")

// A Program says what to do with a packet. It keeps nothing between packets but what is in its registers.
type Program interface {
	Packet(pass *Pass, in *fabric.Message)
}

// Memory is the register memory of a switch: some in each of its stages.
type Memory struct {
	// Stages is how many there are, and StageBits the memory of each. 0: Stages and StageBits, those of a Tofino.
	Stages    int
	StageBits uint64

	used  int    // stages that are taken
	left  uint64 // bits, in the last of these
	taken uint64 // bits, in all
	order int    // arrays
}

// Stages are the match-action units of a Tofino's ingress pipeline, and StageBits the registers that each has: 560 KB, so 6.4 MiB in all (section 7.2 of FissLock's paper).
const (
	Stages    = 12
	StageBits = 560_000 * 8
)

// Array takes n registers of a width, zeroed, in the stage after those of the arrays before: in several, of which each has a range of the registers, if one has not the memory. The width is 1, 8, 16, 32 or
// 64 bits, as the hardware has them.
func (m *Memory) Array(n, width int) (*Array, error) {
	if err := m.Take(n, width); err != nil {
		return nil, err
	}
	return m.array(n, width), nil
}

// Take is Array for a caller that wants to know only whether there is room.
func (m *Memory) Take(n, width int) error {
	per, need, err := m.need(n, width)
	if err != nil {
		return err
	}
	stages := int((need + per - 1) / per)
	if left := m.stages() - m.used; stages > left {
		return fmt.Errorf("%w: %d registers of %d bits need %d stages of %d bits, %d of %d are left", ErrMemory, n, width, stages, per, left, m.stages())
	}
	m.used += stages
	m.left = uint64(stages)*per - need
	m.take(need)
	return nil
}

// Beside takes registers in the last stage of the array before, as well. What is read in one of the two must not decide what is done in the other: a stage sees the packet as it
// has left the stage before.
func (m *Memory) Beside(n, width int) (*Array, error) {
	if err := m.TakeBeside(n, width); err != nil {
		return nil, err
	}
	return m.array(n, width), nil
}

// TakeBeside is to Beside what Take is to Array.
func (m *Memory) TakeBeside(n, width int) error {
	_, need, err := m.need(n, width)
	switch {
	case err != nil:
		return err
	case need > m.left:
		return fmt.Errorf("%w: %d registers of %d bits beside others: %d bits of the stage are left", ErrMemory, n, width, m.left)
	}
	m.left -= need
	m.take(need)
	return nil
}

// Used returns how many stages are taken, and how many bits.
func (m *Memory) Used() (stages int, bits uint64) { return m.used, m.taken }

func (m *Memory) stages() int { return cmp.Or(m.Stages, Stages) }

// need returns the memory of a stage, and what registers need.
func (m *Memory) need(n, width int) (per, need uint64, err error) {
	switch width {
	case 1, 8, 16, 32, 64:
	default:
		return 0, 0, fmt.Errorf("pswitch: registers of %d bits: 1, 8, 16, 32 or 64", width)
	}
	if n < 1 {
		return 0, 0, fmt.Errorf("pswitch: %d registers", n)
	}
	per = cmp.Or(m.StageBits, StageBits)
	return per - per%uint64(width), uint64(n) * uint64(width), nil
}

func (m *Memory) take(bits uint64) {
	m.taken += bits
	m.order++
}

func (m *Memory) array(n, width int) *Array {
	return &Array{words: make([]uint64, (uint64(n)*uint64(width)+63)/64), n: n, width: uint(width), order: m.order}
}

// An Array is registers of one stage, or of several that have a range of them each.
type Array struct {
	words []uint64
	n     int
	width uint
	order int // among the arrays of the switch
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
	order int // of the last array that it has accessed
	send  func(to fabric.ClientID, m *fabric.Message)
}

// Update reads a register, replaces it by what change returns of it, and returns what it was. change sees nothing but that register and the packet.
func (p *Pass) Update(a *Array, i int, change func(old uint64) uint64) (old uint64) {
	if a.order <= p.order {
		panic(fmt.Sprintf("pswitch: a pass has accessed array %d, and accesses array %d", p.order, a.order))
	}
	p.order = a.order
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
