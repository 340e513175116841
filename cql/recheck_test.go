package cql

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// A waiter whose index the head has passed takes the lock only with evidence that this was no reset; else the lock is reset.
func TestPassedWaiter(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	const index = 5
	own := fabric.Client(1, 1)
	entry := func(i uint64, c fabric.ClientID) Entry { return MakeEntry(lock.Shared, c, y.Version(i), 7) }
	for _, tt := range []struct {
		name    string
		mode    lock.Mode
		header  Header
		entry   Entry // in the slot of the index
		granted bool
		asked   []Reason
	}{
		{"the head", lock.Exclusive, y.Header(index, 2, 1, 0), 0, true, nil},
		{"a reader at the head", lock.Shared, y.Header(index, 2, 0, 0), 0, true, nil},
		{"not yet", lock.Shared, y.Header(index-1, 3, 1, 0), entry(index, own), false, nil},
		{"a reader that others have passed", lock.Shared, y.Header(index+1, 1, 0, 0), entry(index, own), true, nil},
		{"a reader that others have passed, many rounds ago", lock.Shared, y.Header(index+400, 1, 0, 0), entry(index, own), true, nil},
		{"a reset has emptied the queue", lock.Shared, y.Header(index+3, 0, 0, 0), 0, false, []Reason{UnknownOutcome}},
		{"a reset, and others hold the lock", lock.Shared, y.Header(index+3, 1, 1, 0), entry(index+4, fabric.Client(2, 1)), false, []Reason{UnknownOutcome}},
		{"the same client in a later round", lock.Shared, y.Header(index+4, 1, 0, 0), entry(index+4, own), false, []Reason{UnknownOutcome}},
		{"another client", lock.Shared, y.Header(index+3, 1, 0, 0), entry(index, fabric.Client(2, 1)), false, []Reason{UnknownOutcome}},
		{"a writer that a reset has passed", lock.Exclusive, y.Header(index+3, 0, 0, 0), 0, false, []Reason{UnknownOutcome}},
		{"a writer that was passed, and has its entry", lock.Exclusive, y.Header(index+3, 1, 1, 0), entry(index, own), false, []Reason{UnknownOutcome}},
		{"a reset under way", lock.Shared, y.Header(index+3, 0, 0, 2), entry(index, own), false, []Reason{NodeFailure}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := sim.New(sim.Config{Seed: 1})
			defer c.Close()
			l := fabric.At(c.AddMN(1<<20), 4096)
			n := c.AddCN()
			c.AddCN()
			word := func(a fabric.Addr, w uint64) { c.Poke(a, binary.LittleEndian.AppendUint64(nil, w)) }
			word(l, uint64(tt.header))
			word(y.entryAddr(l, index), uint64(tt.entry))
			var asked []Reason
			c.GoAgent(n, recordResets(&asked))
			c.Go(n, "client", func(p fabric.Port) {
				var stats lock.Stats
				k := NewClient(p, n, y, Config{}, &stats)
				granted, err := k.Recheck(&Ticket{Lock: l, Index: index, Mode: tt.mode}, own, 0)
				if granted != tt.granted || err != nil {
					t.Errorf("granted %v, %v; want %v", granted, err, tt.granted)
				}
			})
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if err := c.RunUntil(c.Now() + 100_000); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked for resets %v, want %v", asked, tt.asked)
			}
		})
	}
}

// A waiter that suspects a lock has it reset when any entry that the header counts is a crashed node's, or that of the head is missing.
func TestSuspectedLock(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	const head = 5 // the waiter is three behind
	for _, tt := range []struct {
		name    string
		entries []fabric.CNID // of the compute nodes at head, head+1, ..; 0: none
		size    uint64
		moved   uint64 // by how much the head moves between the looks
		asked   []Reason
	}{
		{"all live", []fabric.CNID{1, 2, 1, 2}, 4, 0, nil},
		{"the head's node has crashed", []fabric.CNID{3, 2, 1, 2}, 4, 0, []Reason{WaitTimeout}},
		{"that of another entry has", []fabric.CNID{1, 2, 3, 2}, 4, 0, []Reason{WaitTimeout}},
		{"an entry that is not counted", []fabric.CNID{1, 2, 1, 3}, 3, 0, nil},
		{"no entry at the head", []fabric.CNID{0, 2, 1, 2}, 4, 0, []Reason{WaitTimeout}},
		{"no entry behind it", []fabric.CNID{1, 0, 1, 2}, 4, 0, nil},
		{"the head has moved", []fabric.CNID{3, 3, 3, 2}, 4, 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := sim.New(sim.Config{Seed: 1})
			defer c.Close()
			l := fabric.At(c.AddMN(1<<20), 4096)
			n := c.AddCN()
			c.AddCN()
			c.Kill(c.AddCN())
			word := func(a fabric.Addr, w uint64) { c.Poke(a, binary.LittleEndian.AppendUint64(nil, w)) }
			for k, cn := range tt.entries {
				if i := head + uint64(k); cn != 0 {
					word(y.entryAddr(l, i), uint64(MakeEntry(lock.Exclusive, fabric.Client(cn, 1), y.Version(i), 7)))
				}
			}
			var asked []Reason
			c.GoAgent(n, recordResets(&asked))
			c.Go(n, "client", func(p fabric.Port) {
				_ = p.Pause(10 * fabric.Millisecond) // until the crash is known
				var stats lock.Stats
				k := NewClient(p, n, y, Config{Suspect: func(fabric.Addr, fabric.Time) bool { return true }}, &stats)
				ticket := Ticket{Lock: l, Index: head + 3, Mode: lock.Exclusive}
				for look := range uint64(2) {
					word(l, uint64(y.Header(head+look*tt.moved, tt.size, tt.size, 0)))
					if granted, err := k.Recheck(&ticket, fabric.Client(1, 1), suspectRecheckNs); granted || err != nil {
						t.Errorf("granted %v, %v", granted, err)
					}
				}
			})
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if err := c.RunUntil(c.Now() + 100_000); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(asked, tt.asked) {
				t.Errorf("asked for resets %v, want %v", asked, tt.asked)
			}
		})
	}
}

// A compute node that was probed leaves: that it does not answer is no reason for a reset. One that lives and does not answer is.
func TestProbedNodeThatLeaves(t *testing.T) {
	y := Layout{CapacityBits: 3, VersionBits: 16}
	const head = 5
	for _, leaves := range []bool{true, false} {
		c := sim.New(sim.Config{Seed: 1})
		l := fabric.At(c.AddMN(1<<20), 4096)
		n, other := c.AddCN(), c.AddCN()
		word := func(a fabric.Addr, w uint64) { c.Poke(a, binary.LittleEndian.AppendUint64(nil, w)) }
		word(l, uint64(y.Header(head, 2, 2, 0)))
		for i, cn := range []fabric.CNID{other.ID(), n.ID()} { // a member that has gone is counted until its train ends
			word(y.entryAddr(l, head+uint64(i)), uint64(MakeEntry(lock.Exclusive, fabric.Client(cn, 1), y.Version(head+uint64(i)), 7)))
		}
		var asked []Reason
		c.GoAgent(n, recordResets(&asked))
		c.Go(n, "client", func(p fabric.Port) {
			var stats lock.Stats
			k := NewClient(p, n, y, Config{Trains: true}, &stats)
			ticket := Ticket{Lock: l, Index: head + 1, Mode: lock.Exclusive}
			for look := range fabric.Time(3) {
				_ = p.Pause((look + 1) * k.RecheckNs())
				if granted, err := k.Recheck(&ticket, fabric.Client(1, 1), 0); granted || err != nil {
					t.Errorf("granted %v, %v", granted, err)
				}
				if look == 1 && leaves {
					if err := other.Close(); err != nil {
						t.Error(err)
					}
				}
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		if err := c.RunUntil(c.Now() + 100_000); err != nil {
			t.Fatal(err)
		}
		c.Close()
		want := []Reason{WaitTimeout}
		if leaves {
			want = nil
		}
		if !slices.Equal(asked, want) {
			t.Errorf("leaves %v: asked for resets %v, want %v", leaves, asked, want)
		}
	}
}
