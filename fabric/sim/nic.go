package sim

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrConfig is wrapped by what [Config.Validate] and [NIC.Validate] return.
var ErrConfig = errors.New("sim: bad configuration")

// A NIC is the model of a network and its NICs: all its numbers in one place.
// Unless a field says otherwise, its value in [CX4] is fitted: chosen so that
// the locks of the paper show the paper's figures, and no measurement of ours.
// A figure made with it must say so.
type NIC struct {
	Name string

	// What the client's CPU core does. Fitted; drawn uniformly per doorbell.
	PostMin, PostMax fabric.Time // to post a chain or a message
	Poll             fabric.Time // to see a completion or an empty inbox

	OneWay fabric.Time // from NIC to NIC through the switch. Fitted.

	// What the target adds between its pipeline and the answer. Fitted.
	PCIeRead   fabric.Time // a READ fetches host memory
	PCIeWrite  fabric.Time // a WRITE is handed to the PCIe bus
	PCIeAtomic fabric.Time // an atomic: from entering its slot to the answer

	// Pipe is the time an operation holds the memory node's NIC pipeline. Fitted.
	Pipe fabric.Time

	// The atomic unit. Atomics of one slot are serialised; others are not.
	// The slot is that of the address bits above SlotShift, so with 512 slots
	// of 16 bytes words 8 KiB apart collide. That NICs index by address bits is
	// cited (DSLR; Kalia et al., "Design Guidelines for High Performance RDMA
	// Systems", ATC'16); the sizes and the time are fitted.
	Atomic      fabric.Time
	AtomicSlots int // a power of two
	SlotShift   int
	// AtomicQueue is how many atomics may wait for their slots. One more
	// stalls the pipeline, and all operations behind it (head-of-line blocking). Without that, and with a
	// queue pair for each client, CASLock's median latency does not collapse. Fitted.
	AtomicQueue int

	// MaxAtomics is how many READs and atomics a queue pair may have under
	// way. 16 is what ConnectX devices report (max_qp_rd_atom).
	MaxAtomics int
	// Fence: an atomic or WRITE behind a READ or atomic of the same client waits
	// at the sender for the answer (InfiniBand specification, table
	// "work request operation ordering"). Cited.
	Fence bool

	BytePs   int64 // picoseconds per byte on a link: 80 is 100 Gb/s (the paper's). 0: no limit
	Overhead int   // bytes of headers per operation, answer or message. Fitted.

	// A message between compute nodes, from Send to Recv, both idle. Fitted;
	// MessageScale stretches it (paper, appendix C).
	MessageMin, MessageMax fabric.Time
	MessageScale           float64
	// LocalWake is from Send to Recv on one compute node. Fitted.
	LocalWake fabric.Time

	// On the machine of a memory node (Cluster.Place). Assumed: a load, store or atomic of the CPU is to a line that another core wrote last, and takes a
	// thirtieth of an operation by NIC (the paper of the asymmetric lock: at least an order of magnitude less). Loopback is the way of an operation
	// through the NIC to the own machine, without wires and switch; it passes the NIC's pipeline twice.
	CPUAccess fabric.Time
	Loopback  fabric.Time

	SendQueue int         // chains a client may have under way
	Retry     fabric.Time // until a NIC gives a silent peer up. Assumed.

	Masked, Atomic16 bool // operations that the NIC has
}

// CX4 is fitted to the paper's testbed: ConnectX-4, 100 Gb/s. It has masked and 16-byte
// atomics, as all mlx5 devices do (ShiftLock, section 2.1: Connect-IB to ConnectX-7).
func CX4() NIC {
	return NIC{
		Name:    "cx4",
		PostMin: 100, PostMax: 200, Poll: 100,
		OneWay:   700,
		PCIeRead: 400, PCIeWrite: 100, PCIeAtomic: 400,
		Pipe:   20,
		Atomic: 200, AtomicSlots: 512, SlotShift: 4, AtomicQueue: 16,
		MaxAtomics: 16, Fence: true,
		BytePs: 80, Overhead: 40,
		MessageMin: 1600, MessageMax: 1700, MessageScale: 1,
		LocalWake: 150,
		CPUAccess: 60, Loopback: 400,
		SendQueue: 64, Retry: 100 * fabric.Microsecond,
		Masked: true, Atomic16: true,
	}
}

// CX5 is CX4 with three constants fitted to measurements of others on ConnectX-5 (ShiftLock, FAST 2025). 240 clients that contend for one
// lock by CAS get it 15.5 thousand times a second (section 2.3): a release waits for the CASes of all others, 270 ns apart. Goodputs
// (clients over the sums of Tables 3 and 4) imply about 32 M operations a second. MCS locks are handed over 5.2 million times a second in all, which
// takes messages of 3.2 us: that is Table 3's ShiftLock, 8.5, over Fig. 4's ratio of 1.65. ShiftLock's own goodputs were not used otherwise: they come out to within 11 %.
func CX5() NIC {
	n := CX4()
	n.Name = "cx5"
	n.Atomic, n.Pipe = 270, 31
	n.MessageMin, n.MessageMax = 3150, 3250
	return n
}

// CX6 is an assumption, not a fit: CX4 with the 200 Gb/s of ConnectX-6, a pipeline for about 110
// M operations a second, half of the messages that its manual promises, and atomics twice as fast, for which there is no source.
func CX6() NIC {
	n := CX4()
	n.Name = "cx6"
	n.OneWay, n.PCIeRead, n.PCIeAtomic = 600, 350, 350
	n.Pipe, n.Atomic, n.BytePs = 9, 100, 40
	return n
}

// Ideal has the latencies of CX4 and no contention anywhere: what a protocol
// costs by its round trips alone.
func Ideal() NIC {
	n := CX4()
	n.Name = "ideal"
	n.PostMin, n.PostMax = 150, 150
	n.Pipe, n.Atomic, n.BytePs = 0, 0, 0
	n.MessageMin, n.MessageMax = 1650, 1650
	n.Fence = false
	n.MaxAtomics, n.SendQueue = 1024, 1024
	return n
}

// CXL is an assumption: memory behind a CXL switch, reached by loads, stores
// and atomics of the CPU with some 400 ns a round trip; no queue pairs.
func CXL() NIC {
	n := CX4()
	n.Name = "cxl"
	n.PostMin, n.PostMax, n.Poll = 10, 20, 10
	n.OneWay, n.PCIeRead, n.PCIeWrite, n.PCIeAtomic = 150, 80, 40, 100
	n.Pipe, n.Atomic, n.BytePs, n.Overhead = 2, 80, 20, 16
	n.MessageMin, n.MessageMax = 700, 800
	n.Fence = false
	n.MaxAtomics = 64
	n.Masked, n.Atomic16 = false, false
	return n
}

// Preset returns the NIC of a name: cx4, cx5, cx6, ideal or cxl.
func Preset(name string) (NIC, error) {
	for _, f := range []func() NIC{CX4, CX5, CX6, Ideal, CXL} {
		if n := f(); n.Name == name {
			return n, nil
		}
	}
	return NIC{}, fmt.Errorf("%w: no NIC %q; there are cx4, cx5, cx6, ideal, cxl", ErrConfig, name)
}

func (n NIC) String() string { return n.Name }

// Validate says what is wrong with the model, if anything.
func (n *NIC) Validate() error {
	bad := func(ok bool, format string, args ...any) error {
		if ok {
			return nil
		}
		return fmt.Errorf("%w: NIC %q: %s", ErrConfig, n.Name, fmt.Sprintf(format, args...))
	}
	for _, t := range []struct {
		name string
		v    fabric.Time
	}{{"PostMin", n.PostMin}, {"Poll", n.Poll}, {"OneWay", n.OneWay}, {"PCIeRead", n.PCIeRead},
		{"PCIeWrite", n.PCIeWrite}, {"Pipe", n.Pipe}, {"Atomic", n.Atomic}, {"MessageMin", n.MessageMin},
		{"LocalWake", n.LocalWake}, {"CPUAccess", n.CPUAccess}, {"Loopback", n.Loopback}, {"Retry", n.Retry}, {"BytePs", fabric.Time(n.BytePs)}, {"Overhead", fabric.Time(n.Overhead)}} {
		if t.v < 0 || t.v > fabric.Second {
			return bad(false, "%s is %d ns, not 0 to 1 s", t.name, t.v)
		}
	}
	return errors.Join(
		bad(n.PostMax >= n.PostMin, "PostMax %d is less than PostMin %d", n.PostMax, n.PostMin),
		bad(n.MessageMax >= n.MessageMin, "MessageMax %d is less than MessageMin %d", n.MessageMax, n.MessageMin),
		bad(n.PCIeAtomic >= n.Atomic, "PCIeAtomic %d is less than Atomic %d", n.PCIeAtomic, n.Atomic),
		bad(n.OneWay+n.Poll > 0, "OneWay and Poll are 0: time would stand still"),
		bad(n.AtomicSlots > 0 && n.AtomicSlots&(n.AtomicSlots-1) == 0, "AtomicSlots %d is no power of two", n.AtomicSlots),
		bad(n.SlotShift >= 3 && n.SlotShift < 32, "SlotShift %d is not 3 to 31", n.SlotShift),
		bad(n.AtomicQueue > 0 && n.AtomicQueue <= 1024, "AtomicQueue %d is not 1 to 1024", n.AtomicQueue),
		bad(n.MaxAtomics > 0 && n.MaxAtomics <= 1024, "MaxAtomics %d is not 1 to 1024", n.MaxAtomics),
		bad(n.SendQueue > 0, "SendQueue %d is less than 1", n.SendQueue),
		bad(n.MessageScale > 0 && n.MessageScale <= 1e6, "MessageScale %v is not positive (to 1e6)", n.MessageScale),
	)
}

// NICStats are the counters of a memory node's NIC.
type NICStats struct {
	Kinds [len(fabric.Stats{}.Ops)]OpStats // by fabric.OpKind

	BytesOut uint64      // on the wire, headers included
	PipeBusy fabric.Time // pipeline held by operations, without stalls
}

// OpStats are the counters of the operations of one kind.
type OpStats struct {
	Ops       uint64      // executed
	Bytes     uint64      // of memory read or written
	QueueWait fabric.Time // waited for the link and the pipeline
	SlotWait  fabric.Time // atomics: waited for their slots
	Stalls    uint64      // found the atomic unit full ...
	StallTime fabric.Time // ... and stalled the pipeline
}

// Total returns the sum over the kinds.
func (s *NICStats) Total() OpStats {
	var t OpStats
	for i := range s.Kinds {
		k := &s.Kinds[i]
		t.Ops += k.Ops
		t.Bytes += k.Bytes
		t.QueueWait += k.QueueWait
		t.SlotWait += k.SlotWait
		t.Stalls += k.Stalls
		t.StallTime += k.StallTime
	}
	return t
}

// A link is one direction of a wire. Work is queued in the order of calls, at
// the present: what was decided earlier for a later time holds nothing up.
type link struct{ free fabric.Time }

// carry puts n bytes on the link now and returns when the last has passed, not
// before they are ready.
func (l *link) carry(now, ready fabric.Time, n int, ps int64) fabric.Time {
	l.free = max(l.free, now) + fabric.Time((int64(n)*ps+500)/1000)
	return max(l.free, ready)
}

// A nic is the state of one NIC. Compute nodes use only its links.
type nic struct {
	in, out  link
	pipeFree fabric.Time
	slotFree []fabric.Time
	waiting  []fabric.Time // when the atomics that wait for slots will enter them
	stats    NICStats
}

func newNIC(m *NIC) nic {
	return nic{
		slotFree: make([]fabric.Time, m.AtomicSlots),
		waiting:  make([]fabric.Time, 0, m.AtomicQueue),
	}
}

// admit takes an operation that arrives now through link, pipeline and
// atomic unit, and returns when it takes effect.
func (n *nic) admit(m *NIC, now fabric.Time, op *fabric.Op) fabric.Time {
	bytes := m.Overhead + requestBytes(op)
	start := max(n.in.carry(now, now, bytes, m.BytePs), n.pipeFree)
	n.stats.Kinds[op.Kind].QueueWait += start - now
	n.stats.PipeBusy += m.Pipe
	out := start + m.Pipe
	n.pipeFree = out
	switch {
	case op.Kind == fabric.OpRead:
		return out + m.PCIeRead
	case op.Kind == fabric.OpWrite:
		return out + m.PCIeWrite
	}
	return n.admitAtomic(m, out, op)
}

func (n *nic) admitAtomic(m *NIC, out fabric.Time, op *fabric.Op) fabric.Time {
	k := &n.stats.Kinds[op.Kind]
	slot := &n.slotFree[op.Addr.Offset()>>m.SlotShift&uint64(m.AtomicSlots-1)]
	if *slot > out {
		first := n.expire(out)
		if len(n.waiting) == m.AtomicQueue {
			k.Stalls++
			k.StallTime += first - out
			out = first
			n.pipeFree = out
			n.expire(out)
		}
		if *slot > out {
			n.waiting = append(n.waiting, *slot)
			k.SlotWait += *slot - out
		}
	}
	*slot = max(*slot, out) + m.Atomic
	return *slot
}

// expire forgets the atomics that have entered their slots by t, and returns
// when the next of the others will.
func (n *nic) expire(t fabric.Time) fabric.Time {
	first := fabric.Forever
	keep := n.waiting[:0]
	for _, w := range n.waiting {
		if w > t {
			keep = append(keep, w)
			first = min(first, w)
		}
	}
	n.waiting = keep
	return first
}

// answer sends the answer of an operation that took effect now, and returns
// when it has left.
func (n *nic) answer(m *NIC, now fabric.Time, op *fabric.Op) fabric.Time {
	ready := now
	if op.Kind.IsAtomic() {
		ready += m.PCIeAtomic - m.Atomic
	}
	bytes := m.Overhead + answerBytes(op)
	n.stats.BytesOut += uint64(bytes)
	k := &n.stats.Kinds[op.Kind]
	k.Ops++
	k.Bytes += uint64(op.Size())
	return n.out.carry(now, ready, bytes, m.BytePs)
}

func requestBytes(op *fabric.Op) int {
	switch op.Kind {
	case fabric.OpRead:
		return 0
	case fabric.OpWrite:
		return op.Size()
	}
	return 2 * op.Size()
}

func answerBytes(op *fabric.Op) int {
	if op.Kind == fabric.OpWrite {
		return 0
	}
	return op.Size()
}
