package btree

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// A tree is on a number with copies and on one without, in either order. Operations outlast promotions of the first, and nothing that was put is gone. They do not wait for the other one: what needs
// it fails at once, and the rest goes on.
func TestMixedCopies(t *testing.T) {
	unknown := 0
	for k := range 16 {
		w := newReplicated(t, sim.Config{Seed: uint64(k), NIC: sim.CX4(), MaxEvents: 1e7}, 1, 4<<20, 1, 3)
		copies, plain, first := w.mns[0], w.c.AddMN(4<<20), k%2 == 0
		wantErr(t, "format", memory.Format(w.port(0), plain, memory.Params{Size: 4 << 20, CapacityLog2: 3, VersionBits: 16}), nil)
		if w.mns = []fabric.MemID{copies, plain}; !first {
			w.mns = []fabric.MemID{plain, copies}
		}
		layout, locker := w.declocks()
		cfg := w.tiny()
		cfg.Lock = layout
		left, begun, done := 300+7*k, false, false
		w.c.SetObserver(observer(func(e *sim.Event) {
			if begun && e.Step == sim.StepEffect {
				if left--; left == 0 || left == -500 {
					w.c.At(w.c.Now(), func() { wantErr(t, "promote", w.c.Promote(copies), nil) })
				}
			}
		}))
		w.c.Go(w.cns[0], "client", func(p fabric.Port) {
			tree, err := Open(p, cfg)
			wantErr(t, "open", err, nil)
			c, err := tree.Client(locker(p))
			wantErr(t, "client", err, nil)
			begun = true
			have := map[string][]byte{}
			for i := range 200 {
				key, value := fmt.Appendf(nil, "%02d", i*37%80), bytes.Repeat([]byte{byte(i)}, 1+i%4*40)
				have[string(key)] = value
				if err = c.Put(key, value); err == nil && i%5 == 4 {
					delete(have, string(key))
					err = c.Delete(key)
				}
				if errors.Is(err, fabric.ErrUnknownOutcome) {
					unknown++
					delete(have, string(key))
				} else if err != nil {
					t.Errorf("run %d, change %d: %v", k, i, err)
				}
			}
			for key, value := range have {
				if v, err := c.Get([]byte(key)); err != nil || !bytes.Equal(v, value) {
					t.Errorf("run %d, %s: %d bytes, %v", k, key, len(v), err)
				}
			}
			r, err := c.Check(CheckOptions{})
			if wantErr(t, "check", err, nil); len(r.Problems) > 0 {
				t.Errorf("run %d: %v", k, r)
			}
			w.c.KillMN(plain)
			failed, worst := 0, fabric.Time(0)
			for i := range 10 {
				began := p.Now()
				if err := c.Put(fmt.Appendf(nil, "%02d", i*8), make([]byte, 10)); err != nil {
					if failed++; !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
						t.Error(err)
					}
				}
				worst = max(worst, p.Now()-began)
			}
			if worst > 100*fabric.Millisecond || failed == 0 {
				t.Errorf("run %d: %d of 10 puts have failed without a memory node that has no copies, the slowest took %v", k, failed, worst)
			}
			done = true
		})
		if err := w.c.RunUntil(w.c.Now() + 5*fabric.Second); err != nil || !done {
			t.Fatalf("run %d: %v, done: %v", k, err, done)
		}
		w.c.Close()
	}
	if t.Logf("%d changes of unknown outcome", unknown); unknown > 16 {
		t.Error("that is too many")
	}
}
