package objstore

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/memory"
)

// anew are the memory nodes on which a store may be made that has the name of one that was dropped: nil, it is not made.
func anew(mns []fabric.MemID) map[string][]fabric.MemID {
	reversed := slices.Clone(mns)
	slices.Reverse(reversed)
	return map[string][]fabric.MemID{"nothing": nil, "the same": mns, "another order": reversed, "the first": mns[:1], "the last": mns[2:]}
}

// made makes a store on some memory nodes.
func (w *world) made(cn int, mns []fabric.MemID) {
	w.t.Helper()
	cfg := w.config()
	cfg.Nodes = mns
	wantErr(w.t, "set", w.client(cn, w.open(cn, cfg)).Set(keyOf(2), []byte("new"), Options{}), nil)
}

// A store was opened while one of its memory nodes was down. When that is back the store is dropped, and made anew on whatever memory nodes. A client of before hears of the drop, and takes no part of
// what has the name now, which works, also for a client of the same compute node.
func TestDroppedAndMadeAnewWhileAPartIsMissing(t *testing.T) {
	for down := range 2 {
		for what := range anew(make([]fabric.MemID, 3)) {
			t.Run(fmt.Sprintf("mn%d, %s", down, what), func(t *testing.T) {
				w, keys, _, s := downWorld(t, down)
				before := w.client(1, s)
				w.c.RestartServer(w.mns[down])
				wantErr(t, "drop", Stores.Drop(w.port(2), "test", w.mns, w.cns[2].View), nil)
				mns := anew(w.mns)[what]
				if mns != nil {
					w.made(2, mns)
				}
				later := w.client(1, s) // with a Port of after the restart
				err := later.Set([]byte(keys[down]), nil, Options{})
				wantErr(t, "set of what was missing", err, ErrDropped)
				if errors.Is(err, ErrGeometry) || !s.Dropped() {
					t.Errorf("set: %v, dropped is %v", err, s.Dropped())
				}
				_, err = before.Get([]byte(keys[2]))
				wantErr(t, "get by a client of before", err, ErrDropped)
				for _, mn := range w.mns {
					r, err := memory.Open(w.port(1), mn)
					wantErr(t, "region", err, nil)
					if _, err = r.Lookup(w.port(1), "test", memory.KindStore); (err == nil) != slices.Contains(mns, mn) {
						t.Errorf("look for the name on %v, made anew on %v: %v", mn, mns, err)
					}
				}
				if mns != nil {
					cfg := w.config()
					cfg.Nodes = mns
					wantValue(t, w.client(1, w.open(1, cfg)), string(keyOf(2)), "new")
				}
			})
		}
	}
}

// A compute node that has opened a store without its first part is not registered: when the store is dropped, nothing keeps its memory from being something else at once. Gets are ErrDropped then,
// whatever is there, and the compute node finds the drop while the first memory node is down again.
func TestDroppedWhileNotRegistered(t *testing.T) {
	for _, look := range []string{"get", "step"} {
		w, keys, first, s := downWorld(t, 0)
		c := w.client(1, s)
		wantValue(t, c, keys[2], "old")
		w.c.RestartServer(w.mns[0])
		wantErr(t, "leave", w.client(0, first.s).Leave(), nil)
		wantErr(t, "drop", Stores.Drop(w.port(2), "test", w.mns, w.cns[2].View), nil)
		r, err := memory.Open(w.port(2), w.mns[2])
		wantErr(t, "region", err, nil)
		if list, err := r.Retired(w.port(2)); err != nil || len(list) > 0 {
			t.Fatalf("%d entries are retired, error %v", len(list), err)
		}
		cfg := w.config()
		cfg.Name = "another"
		other := w.client(2, w.open(2, cfg))
		for i := range 200 {
			wantErr(t, "set", other.Set(keyOf(i), []byte("of another store"), Options{}), nil)
		}
		if look == "get" {
			_, err := c.Get([]byte(keys[2]))
			wantErr(t, "get", err, ErrDropped)
			continue
		}
		w.c.KillMN(w.mns[0])
		_, err = w.client(1, s).ReclaimStep(w.cns[1].View)
		wantErr(t, "step", err, ErrDropped)
	}
}

// A memory node loses its memory, and before a compute node looks that had the store open there, the name is that of a store on other memory nodes: whoever had the one of before hears that it is gone.
func TestLostAndMadeAnewElsewhere(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 3, 4<<20, 2)
	s := w.open(1, w.config())
	wantErr(t, "set", w.client(1, s).Set(keyOf(1), nil, Options{}), nil)
	w.c.RestartMN(w.mns[0])
	wantErr(t, "format", memory.Format(w.port(0), w.mns[0], memory.Params{Size: 4 << 20, CapacityLog2: 3, VersionBits: 16, Generation: 1}), nil)
	wantErr(t, "drop", Stores.Drop(w.port(0), "test", w.mns, w.cns[0].View), nil)
	w.made(0, w.mns[2:])
	s.MemoryLost(w.mns[0])
	_, err := s.Client(cas.New(w.port(1), cas.Config{}))
	wantErr(t, "client", err, ErrDropped)
}
