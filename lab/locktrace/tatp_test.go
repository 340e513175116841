package locktrace

import (
	"slices"
	"testing"

	"github.com/declock/declock/traces"
)

// Get-New-Destination reads a facility and, if that is active, the rows of call forwarding that begin no later than asked for and end later. The published generator does not look whether
// it is active, and takes those that do not end later.
func TestNewDestination(t *testing.T) {
	const id, typ, facility = 7, 2, 20
	for _, artifact := range []bool{false, true} {
		for _, active := range []bool{false, true} {
			for end := uint8(1); end <= 24; end++ {
				for begin := range 3 {
					db := NewTATP(10, artifact)
					db.rows[id].facility[typ], db.rows[id].active[typ], db.rows[id].forwarding[typ] = facility, active, [3]uint8{5, 0, 20}
					want := []Access{{facility, 0}}
					for b, until := range db.rows[id].forwarding[typ][:begin+1] {
						if until != 0 && (artifact && until <= end || !artifact && active && until > end) {
							want = append(want, Access{uint32(db.forward(id, typ, b)), 0})
						}
					}
					if len(want) == 3 && want[1] == want[2] { // they share a lock
						want = want[:2]
					}
					src := &tatpSource{draw: draw{traces.NewRand(1, 1)}, t: db}
					if got := src.newDestination(nil, id, typ, begin, end); !slices.Equal(got, want) {
						t.Fatalf("artifact %v, active %v, from %d to %d: %v, want %v", artifact, active, 8*begin, end, got, want)
					}
				}
			}
		}
	}
}
