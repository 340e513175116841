package cql

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// What a client does with a lock whose memory is garbage. It may be refused, may
// be told that the lock is lost, and may hold it; but it comes back soon, sends
// only messages of this protocol, and does not panic.

const garbageAt = 4096

// onGarbage lets a client acquire, or release what it thinks it holds, over
// memory that holds image, and returns what it said to its agent.
func onGarbage(t testing.TB, y Layout, image []byte, index uint64, m lock.Mode, act int) (asked []Reason) {
	t.Helper()
	c := sim.New(sim.Config{Seed: 1, MaxEvents: 200_000})
	defer c.Close()
	mn := c.AddMN(1 << 20)
	l := fabric.At(mn, garbageAt)
	c.Poke(l, image)
	n := c.AddCN()
	c.AddCN() // where messages may go
	var stats lock.Stats
	c.Go(n, "client", func(p fabric.Port) {
		k := NewClient(p, n, y, Config{RecheckNs: 20_000, ResetAfterNs: 50_000}, &stats)
		place := Ticket{Lock: l, Index: index, Mode: m}
		var err error
		switch act % 4 {
		case 0:
			err = k.Release(&place, nil)
		case 1:
			var granted bool
			if granted, err = k.Enqueue(&place, 0, nil); err == nil && !granted {
				err = k.Await(&place, p.Now()+200_000)
			}
		case 2:
			_, err = k.TryEnqueue(&place, nil)
		case 3:
			_, err = k.Earliest(&place)
		}
		for _, known := range []error{nil, lock.ErrLost, lock.ErrCorrupt, lock.ErrExhausted, ErrAborted, fabric.ErrDeadline} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Errorf("action %d: unexpected error %v", act%4, err)
	})
	c.GoAgent(n, func(p fabric.Port) {
		for {
			m, err := p.Recv(fabric.Forever)
			if err != nil {
				return
			}
			if m.Kind == msgAskReset {
				asked = append(asked, Reason(m.Body[2]))
			}
		}
	})
	if err := c.Run(); err != nil {
		t.Fatalf("%+v, action %d, index %d, %v, image % x: %v", y, act%4, index, m, image, err)
	}
	if err := c.RunUntil(c.Now() + 10_000); err != nil {
		t.Fatal(err)
	}
	for _, why := range asked {
		if why == 0 || why >= numReasons {
			t.Errorf("asked for a reset for %v", why)
		}
	}
	if len(asked) != int(stats.Resets) {
		t.Errorf("%d wishes for a reset counted, %d sent", stats.Resets, len(asked))
	}
	return asked
}

func TestGarbage(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		y := Layout{CapacityBits: uint8(1 + seed%4), VersionBits: uint8(2 + seed%26)}
		image := make([]byte, y.Lock().Size)
		for i := range image {
			image[i] = byte(r.Uint32())
		}
		index := r.Uint64() >> (r.Uint64() % 64)
		if seed%2 == 0 {
			// A header that could be: one to Capacity participants, of this index.
			index %= 1000
			size := 1 + r.Uint64()%y.Capacity()
			h := y.Header(index, size, r.Uint64()%(size+1), fabric.CNID(r.Uint32()%8/7))
			binary.LittleEndian.PutUint64(image, uint64(h))
			// Entries that could be: versions near that of the index.
			for s := range y.Capacity() {
				v := y.Version(index) + uint32(r.Uint64()%3) - 1
				e := MakeEntry(lock.Mode(r.Uint64()%2), fabric.Client(fabric.CNID(r.Uint64()%3), int(r.Uint64()%3)), v, 0)
				binary.LittleEndian.PutUint64(image[8+8*s:], uint64(e))
			}
		}
		if onGarbage(t, y, image, index, lock.Mode(r.Uint64()%2), int(seed/2)); t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// A header that cannot be is found out by the client that acquires or releases, and reported.
func TestGarbageIsReported(t *testing.T) {
	y := Layout{CapacityBits: 2, VersionBits: 16}
	for _, c := range []struct {
		what string
		h    Header
		act  int
		m    lock.Mode
		want Reason
	}{
		{"release of a free lock", y.Header(7, 0, 0, 0), 0, lock.Exclusive, Corruption},
		{"release of a free lock", y.Header(7, 0, 0, 0), 0, lock.Shared, Corruption},
		{"release, no writer", y.Header(7, 2, 0, 0), 0, lock.Exclusive, Corruption},
		{"release, other head", y.Header(6, 1, 1, 0), 0, lock.Exclusive, Corruption},
		{"release, more writers than participants", y.Header(7, 1, 2, 0), 0, lock.Shared, Corruption},
		{"release, too many", y.Header(7, 5, 1, 0), 0, lock.Exclusive, QueueOverflow},
		{"release, waiter never writes", y.Header(7, 2, 1, 0), 0, lock.Exclusive, NodeFailure},
		{"acquire, more writers than participants", y.Header(7, 0, 1, 0), 1, lock.Exclusive, Corruption},
		{"try, more writers than participants", y.Header(7, 0, 1, 0), 2, lock.Exclusive, Corruption},
		{"acquire, too many", y.Header(7, 4, 1, 0), 1, lock.Exclusive, QueueOverflow},
		{"acquire, last round", y.Header(4*65534, 0, 0, 0), 1, lock.Exclusive, VersionOverflow},
		{"try, last round", y.Header(4*65534, 0, 0, 0), 2, lock.Shared, VersionOverflow},
		{"acquire, nobody leaves", y.Header(7, 1, 1, 0), 1, lock.Exclusive, WaitTimeout},
	} {
		image := make([]byte, y.Lock().Size)
		binary.LittleEndian.PutUint64(image, uint64(c.h))
		asked := onGarbage(t, y, image, 7, c.m, c.act)
		if len(asked) == 0 || asked[0] != c.want {
			t.Errorf("%s: asked for resets for %v, want %v", c.what, asked, c.want)
		}
	}
	// Resets: a client that releases may go on, the client that acquires is aborted, and no client asks.
	image := make([]byte, y.Lock().Size)
	binary.LittleEndian.PutUint64(image, uint64(y.Header(7, 3, 2, 2)))
	for act := range 2 {
		if asked := onGarbage(t, y, image, 7, lock.Exclusive, act); len(asked) != 0 {
			t.Errorf("action %d on a lock that is being reset: asked for %v", act, asked)
		}
	}
	// Tokens run out before the head does.
	binary.LittleEndian.PutUint64(image, uint64(y.Header(y.maxIndex(), 0, 0, 0)))
	if asked := onGarbage(t, y, image, 7, lock.Exclusive, 1); len(asked) != 0 {
		t.Errorf("exhausted lock: asked for %v", asked)
	}
}

func FuzzGarbage(f *testing.F) {
	f.Add(uint8(2), uint8(16), []byte{}, uint64(0), uint8(0))
	f.Add(uint8(1), uint8(2), []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, uint64(3), uint8(5))
	f.Add(uint8(3), uint8(27), make([]byte, 72), uint64(1)<<40, uint8(3))
	f.Fuzz(func(t *testing.T, c, v uint8, image []byte, index uint64, act uint8) {
		y := Layout{CapacityBits: MinCapacityBits + c%4, VersionBits: MinVersionBits + v%26}
		if n := int(y.Lock().Size); len(image) > n {
			image = image[:n]
		}
		onGarbage(t, y, image, index, lock.Mode(act>>2&1), int(act&3))
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(uint8(3), uint64(0x53201), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, c uint8, header, entry uint64) {
		y := Layout{CapacityBits: MinCapacityBits + c%MaxCapacityBits, VersionBits: 16}
		h, e := Header(header), Entry(entry)
		if again := y.Header(y.Head(h), y.Size(h), y.Writers(h), h.ResetID()); again != h {
			t.Errorf("%#x became %#x", h, again)
		}
		if again := MakeEntry(e.Mode(), e.Client(), e.Version(), e.Stamp()); again != e {
			t.Errorf("%#x became %#x", uint64(e), uint64(again))
		}
		_, _ = y.FormatHeader(h), e.String()
		if y.freshness(e, y.Head(h)) == 0 && e.Version() != y.Version(y.Head(h)) {
			t.Error("fresh with another version")
		}
	})
}
