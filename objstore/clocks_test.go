package objstore

import (
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// The second at which an object expires is reckoned by the clock of the client that sets it, and judged by that of each client that
// meets it. So an object lives as much longer as the reader's clock is behind, and as much shorter as it is ahead; it never comes back
// once a client whose clock is ahead has dropped it. Objects without TTL do not depend on clocks.
func TestTTLByClocksThatDiffer(t *testing.T) {
	const set, ttl = 1_000_000, 60
	for _, x := range []struct {
		ahead, at int64 // the reader's clock, relative to the writer's; when it reads, by the writer's clock since the set
		there     bool
	}{
		{0, 59, true}, {0, 60, false},
		{-30, 89, true}, {-30, 90, false}, // a reader whose clock is behind: one that was suspended
		{30, 29, true}, {30, 30, false}, // ahead: one that joined after the writer's machine was suspended
		{3600, 0, false},                               // a step between the joins of the two
		{-3600, 3600 + 59, true}, {-3600, 3660, false}, // the same, back
	} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
		s := w.open(0, w.plain())
		writer, reader := w.plainClient(0, s), w.plainClient(0, s)
		writer.SetNow(set)
		wantErr(t, "set", writer.Set(b("k"), b("v"), Options{TTL: ttl}), nil)
		wantErr(t, "set", writer.Set(b("ever"), b("v"), Options{}), nil)
		reader.SetNow(uint32(set + x.at + x.ahead))
		_, err := reader.Get(b("k"))
		if (err == nil) != x.there {
			t.Errorf("a clock %d s ahead, %d s after the set: %v, want it there: %v", x.ahead, x.at, err, x.there)
		}
		if !x.there {
			_, err := writer.Get(b("k"))
			wantErr(t, "get by the writer of what was dropped", err, ErrNotFound)
		}
		_, err = reader.Get(b("ever"))
		wantErr(t, "get of what does not expire", err, nil)
	}
}
