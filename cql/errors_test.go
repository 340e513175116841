package cql

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// failing is a Port whose chain of a number fails, from 0: at an operation of it, those before that are executed.
type failing struct {
	fabric.Port
	chain, op, n int
	err          error
}

func (f *failing) Do(ops []fabric.Op) error {
	f.n++
	if f.n-1 != f.chain {
		return f.Port.Do(ops)
	}
	if f.op > 0 {
		if err := f.Port.Do(ops[:f.op]); err != nil {
			return err
		}
	}
	return &fabric.ChainError{Index: f.op, Op: ops[f.op], Err: f.err}
}

// A client that fails where the header counts it, or may count it, or with a grant that it owes, asks for a reset: no other
// knows. One whose operation has certainly not taken ticket asks for none.
func TestErrorsAskForAReset(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	down, unknown := fabric.ErrNodeDown, fabric.ErrUnknownOutcome
	for _, tt := range []struct {
		name      string
		header    Header
		entry     Entry // of index 8
		fenced    bool  // the node that the entry names has been given up
		acquire   bool  // else it releases index 7
		mode      lock.Mode
		chain, op int
		err       error
		asked     []Reason
	}{
		{"acquire, nothing done", y.Header(7, 0, 0, 0), 0, false, true, lock.Exclusive, 0, 0, down, nil},
		{"acquire, outcome unknown", y.Header(7, 0, 0, 0), 0, false, true, lock.Exclusive, 0, 0, unknown, []Reason{UnknownOutcome}},
		{"the entry is not written", y.Header(7, 1, 1, 0), 0, false, true, lock.Exclusive, 1, 0, down, []Reason{UnknownOutcome}},
		{"release, outcome unknown", y.Header(7, 1, 1, 0), 0, false, false, lock.Exclusive, 0, 0, unknown, []Reason{UnknownOutcome}},
		{"release, the queue is read again", y.Header(7, 2, 2, 0), MakeEntry(lock.Exclusive, fabric.Client(2, 1), y.Version(8), 0), false, false,
			lock.Exclusive, 0, 1, down, nil},
		{"release, an entry that has not come is not read", y.Header(7, 2, 2, 0), 0, false, false, lock.Exclusive, 1, 0, down, []Reason{UnknownOutcome}},
		{"release to a dead node", y.Header(7, 2, 2, 0), MakeEntry(lock.Exclusive, fabric.Client(2, 1), y.Version(8), 0), true, false,
			lock.Exclusive, -1, 0, nil, []Reason{NodeFailure}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked, err := failingClient(t, y, tt.header, tt.entry, tt.fenced, func(k *Client) error {
				k.port = &failing{Port: k.port, chain: tt.chain, op: tt.op, err: tt.err}
				p := Ticket{Lock: fabric.At(0, garbageAt), Index: 7, Mode: tt.mode}
				if !tt.acquire {
					return k.Release(&p, nil)
				}
				_, err := k.Enqueue(&p, 0, nil)
				return err
			})
			if !errors.Is(err, tt.err) && len(tt.asked) > 0 {
				t.Errorf("%v, want %v", err, tt.err)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked for resets %v, want %v", asked, tt.asked)
			}
		})
	}
}

// A release whose queue cannot be read, twice, asks for a reset: whom it owes the grant only the queue says.
func TestQueueThatCannotBeRead(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	asked, err := failingClient(t, y, y.Header(7, 2, 2, 0), 0, false, func(k *Client) error {
		k.port = &failing{Port: &failing{Port: k.port, chain: 1, err: fabric.ErrNodeDown}, chain: 0, op: 1, err: fabric.ErrNodeDown}
		return k.Release(&Ticket{Lock: fabric.At(0, garbageAt), Index: 7, Mode: lock.Exclusive}, nil)
	})
	if !errors.Is(err, fabric.ErrNodeDown) || !slices.Equal(asked, []Reason{UnknownOutcome}) {
		t.Errorf("%v, asked for resets %v", err, asked)
	}
}

// A reader releases, and the slot of the next in the queue has been used again by the time that it reads: the head has passed that
// one, so there is no client to notify, and nothing to wait for.
func TestReaderFindsTheNextSlotUsedAgain(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	again := MakeEntry(lock.Shared, fabric.Client(2, 1), y.Version(8+y.Capacity()), 0)
	var refetches uint64
	asked, err := failingClient(t, y, y.Header(7, 3, 1, 0), again, false, func(k *Client) error {
		defer func() { refetches = k.stats.Refetches }()
		return k.Release(&Ticket{Lock: fabric.At(0, garbageAt), Index: 7, Mode: lock.Shared}, nil)
	})
	if err != nil || refetches != 0 || len(asked) != 0 {
		t.Errorf("%v, %d refetches, asked for resets %v", err, refetches, asked)
	}
}

// A release that misses the entry of a client that was refused, for its index is exhausted, asks for the reset and does not wait for it.
// Readers that were granted at once have no entries either: there it may be a writer before that client that is slow, for a while.
func TestReleaseDoesNotAwaitARefusedClient(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 2}
	if !y.exhausted(8) || y.exhausted(7) {
		t.Fatal("index 8 is not the first that is exhausted")
	}
	for _, tt := range []struct {
		name      string
		header    Header
		ticket    Ticket
		refetches uint64
		asked     []Reason
	}{
		{"a writer, the next is refused", y.Header(7, 2, 2, 0), Ticket{Index: 7, Mode: lock.Exclusive}, 1, []Reason{VersionOverflow}},
		{"a reader, the next is refused", y.Header(7, 2, 1, 0), Ticket{Index: 7, Mode: lock.Shared}, 1, []Reason{VersionOverflow}},
		{"a reader, a later one is refused", y.Header(5, 4, 1, 0), Ticket{Index: 5, Mode: lock.Shared}, refetchEager + 1, []Reason{VersionOverflow}},
		{"a writer that is slow is before the refused", y.Header(6, 3, 3, 0), Ticket{Index: 6, Mode: lock.Exclusive}, refetchEager + 1, []Reason{VersionOverflow}},
		{"the reset is under way", y.Header(7, 2, 2, 0), Ticket{Index: 7, Mode: lock.Exclusive}, 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var refetches uint64
			asked, err := failingClient(t, y, tt.header, 0, false, func(k *Client) error {
				tt.ticket.Lock = fabric.At(0, garbageAt)
				if tt.asked == nil {
					port := k.port
					k.port = &raced{Port: port, meet: func() { _ = port.Do([]fabric.Op{fabric.FAA(tt.ticket.Lock, 2)}) }}
				}
				defer func() { refetches = k.stats.Refetches }()
				return k.Release(&tt.ticket, nil)
			})
			if err != nil || refetches != tt.refetches || !slices.Equal(asked, tt.asked) {
				t.Errorf("%v, %d refetches, asked for resets %v; want %d, %v", err, refetches, asked, tt.refetches, tt.asked)
			}
		})
	}
}

// raced is a Port before whose second chain another client changes the lock.
type raced struct {
	fabric.Port
	n    int
	meet func()
}

func (r *raced) Do(ops []fabric.Op) error {
	if r.n++; r.n == 2 {
		r.meet()
	}
	return r.Port.Do(ops)
}

// A CAS that adds no client, with a READ behind it that fails or at the deadline, leaves no ticket that the caller would have to give up.
func TestFailedCASLeavesNoTicket(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	for _, want := range []error{fabric.ErrNodeDown, fabric.ErrDeadline} {
		asked, err := failingClient(t, y, y.Header(7, 0, 0, 0), 0, false, func(k *Client) error {
			l, port := fabric.At(0, garbageAt), k.port
			k.port = &raced{Port: port, meet: func() { _ = port.Do([]fabric.Op{fabric.FAA(l, y.acquireDelta(lock.Shared))}) }}
			reads := []fabric.Op{fabric.Load(l.Add(8))}
			if want == fabric.ErrNodeDown {
				k.port = &failing{Port: k.port, chain: 1, op: 1, err: want}
			}
			p := Ticket{Lock: l, Mode: lock.Shared}
			_, err := k.EnqueueCautious(&p, 0, reads, 0)
			if p.Index != 0 {
				t.Errorf("%v: index %d, in a header that does not count it", err, p.Index)
			}
			return err
		})
		if !errors.Is(err, want) || len(asked) != 0 {
			t.Errorf("%v, want %v; asked for resets %v", err, want, asked)
		}
	}
}

// failingClient has a client act on a lock with a header and an entry of index 8, and returns the resets that it asked for.
func failingClient(t *testing.T, y Layout, h Header, e Entry, fenced bool, act func(*Client) error) (asked []Reason, err error) {
	c := sim.New(sim.Config{Seed: 1})
	defer c.Close()
	l := fabric.At(c.AddMN(1<<20), garbageAt)
	n, other := c.AddCN(), c.AddCN()
	c.Poke(l, binary.LittleEndian.AppendUint64(nil, uint64(h)))
	c.Poke(y.entryAddr(l, 8), binary.LittleEndian.AppendUint64(nil, uint64(e)))
	if fenced {
		c.Fence(other)
	}
	c.GoAgent(n, recordResets(&asked))
	c.Go(n, "client", func(p fabric.Port) {
		var stats lock.Stats
		err = act(NewClient(p, n, y, Config{}, &stats))
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if err := c.RunUntil(c.Now() + 100_000); err != nil {
		t.Fatal(err)
	}
	return asked, err
}

// recordResets is an agent that answers nothing: it appends the reasons for which resets are asked for.
func recordResets(asked *[]Reason) func(fabric.Port) {
	return func(p fabric.Port) {
		for {
			m, err := p.Recv(fabric.Forever)
			if err != nil {
				return
			}
			if m.Kind == msgAskReset {
				*asked = append(*asked, Reason(m.Body[2]))
			}
		}
	}
}
