package dslr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lock"
)

// How many slots a lease may take is bounded by how many clients there are: an error says so.
func TestSlotsByClients(t *testing.T) {
	const lease = fabric.Millisecond
	for _, x := range []struct {
		clients, slots int
		multi, ok      bool
	}{
		{326, 100, true, true}, {327, 100, true, false}, {326, 1000, true, true}, // of 1000 slots, 100 are drawn
		{1023, 32, true, true}, {1023, 33, true, false}, {8192, 3, true, true}, {8192, 40, true, false}, {8192, 40, false, true},
		{32767, 1, false, true}, {32768, 1, false, false}, {0, 100, true, true},
	} {
		cfg := dslr.Config{MultiSlot: x.multi, LeaseNs: lease, Clients: x.clients}
		if err := cfg.Check(fabric.Time(x.slots) * lease); (err == nil) != x.ok || err != nil && !errors.Is(err, lock.ErrMisuse) {
			t.Errorf("%+v: %v", x, err)
		}
	}
	err := dslr.Config{MultiSlot: true, LeaseNs: lease, Clients: 1000}.Check(40 * lease)
	for _, want := range []string{"1000 clients", "40 slots of 1 ms", "so many clients 32"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	scene(t, dslr.Config{MultiSlot: true, LeaseNs: lease, Clients: 400}, 1, func(k *actor) {
		if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, LeaseNs: 100 * lease}); !errors.Is(err, lock.ErrMisuse) || k.PeekWord(k.Lock) != 0 {
			t.Errorf("%v; the word is %#x", err, k.PeekWord(k.Lock))
		}
	})
	// No client draws more than 100.
	s := scene(t, dslr.Config{MultiSlot: true, LeaseNs: lease}, 1, func(k *actor) {
		k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, LeaseNs: 1000 * lease}))
		k.Release()
	})
	if nX, _, maxX, _ := dslr.Counters(s.PeekWord(s.Lock)); nX != 100 || maxX != 100 {
		t.Errorf("%d of %d tickets given back, want 100", nX, maxX)
	}
}

// Many clients that draw as many tickets as they may of counters that are about to be reset: none runs over into another, all get the lock, and no reader beside a writer.
func TestManySlotsAtTheLimit(t *testing.T) {
	const clients, slots = 600, 54 // 601 x 54 is 32454
	cfg := dslr.Config{Plain: true, MultiSlot: true, LeaseNs: 10 * fabric.Millisecond, Wait: dslr.Truncated, Clients: clients}
	c := sim.New(sim.Config{NIC: sim.Ideal()})
	defer c.Close()
	a := fabric.At(c.AddMN(1<<20), 4096)
	c.Poke(a, []byte{0xf0, 0x7f, 4: 0xf0, 5: 0x7f, 7: 0}) // 32752 readers have come and left: the first that comes now is the last of the cycle
	writers, readers, beside, done := 0, 0, 0, 0
	for i := range 8 {
		n := c.AddCN()
		c.GoAgent(n, func(fabric.Port) { _ = dslr.NewAgent(n, cfg).Run(nil) })
		for k := range clients / 8 {
			c.Go(n, "client", func(p fabric.Port) {
				l, h, mode, mine := dslr.New(p, cfg), lock.Hold{}, lock.Shared, &readers
				if (i+k)%10 == 0 {
					mode, mine = lock.Exclusive, &writers
				}
				if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: mode, LeaseNs: slots * cfg.LeaseNs, Deadline: fabric.Second}); err != nil {
					return
				}
				if *mine++; writers > 1 || writers > 0 && readers > 0 {
					beside++
				}
				_ = p.Pause(p.Now() + 500)
				*mine--
				if l.Release(&h, nil) == nil {
					done++
				}
			})
		}
	}
	if err := c.RunUntil(2 * fabric.Second); err != nil {
		t.Error(err)
	}
	if nX, nS, maxX, maxS := dslr.Counters(c.PeekWord(a)); beside > 0 || done != clients || nX != maxX || nS != maxS {
		t.Errorf("%d of %d clients are done, %d with others beside them; the word is {%d %d %d %d}", done, clients, beside, nX, nS, maxX, maxS)
	}
}

// A client that gives up while counters are to be reset, and comes again, draws no second ticket in vain.
func TestInVainOnce(t *testing.T) {
	most := uint16(0)
	scene(t, dslr.Config{CountMax: 3}, 2, func(k *actor) {
		if k.I == 0 {
			for i := range 3 {
				k.Acquire(lock.Exclusive)
				if i < 2 {
					k.Release()
				}
			}
			k.At(500 * us)
			k.Release()
			return
		}
		k.At(50 * us)
		for k.P.Now() < 400*us {
			err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: k.P.Now() + 20*us})
			if !errors.Is(err, lock.ErrTimeout) {
				t.Error(err)
				return
			}
			_, _, maxX, _ := dslr.Counters(k.PeekWord(k.Lock))
			most = max(most, maxX)
		}
		k.Acquire(lock.Exclusive)
		k.Release()
	})
	if most != 4 {
		t.Errorf("tickets up to %d are drawn, want 3 and one in vain", most)
	}
}

// A holder of several slots whose counters are full has its whole lease, also beside those that find no ticket.
func TestFullCountersWaitForSlots(t *testing.T) {
	var left, got fabric.Time
	scene(t, dslr.Config{MultiSlot: true, LeaseNs: 100 * us, CountMax: 10}, 2, func(k *actor) {
		if k.I == 0 {
			k.Must(k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, LeaseNs: 1000 * us}))
			k.At(900 * us)
			left = k.P.Now()
			k.Release()
			return
		}
		k.At(50 * us)
		k.Acquire(lock.Exclusive)
		got = k.P.Now()
		k.Release()
	})
	if got < left {
		t.Errorf("one holds until %d us, and another is granted at %d", left/us, got/us)
	}
}
