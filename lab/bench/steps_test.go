package bench

import (
	"math"
	"testing"

	"github.com/declock/declock/fabric"
)

// The steps of acquisitions and releases add up to what these take, and are where each lock waits: ShiftLock's and MCS's writers for messages, ShiftLock's readers
// and all of DSLR's by READs. Alone a client waits for neither.
func TestSteps(t *testing.T) {
	for _, c := range []struct {
		lock           string
		clients        int
		messages, rest bool
	}{
		{"shift", 16, true, true}, {"mcs", 16, true, false}, {"dslr", 16, false, true}, {"cas-backoff", 16, false, true}, {"declock", 16, true, true},
		{"shift", 1, false, false}, {"dslr", 1, false, false},
	} {
		m := Micro{Lock: c.lock, CNs: min(c.clients, 4), Clients: c.clients, Locks: 4, ReadPct: 50, Seed: 1, Steps: true, WarmupNs: fabric.Millisecond, WindowNs: 20 * fabric.Millisecond}
		if c.lock == "mcs" {
			m.ReadPct = 0
		}
		r, err := Sim(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		s := &r.Steps
		var sum, n uint64
		for _, x := range []*step{&s.Writers, &s.Readers} {
			sum, n = sum+x.FirstNs+x.MessageNs+x.RestNs, n+x.N
		}
		if mean := r.tally.acquire.Mean(); math.Abs(float64(sum)/float64(n)-mean) > 0.01*mean {
			t.Errorf("%s, %d clients: the steps of an acquisition take %.0f ns, all of it %.0f", c.lock, c.clients, float64(sum)/float64(n), mean)
		}
		x := &s.Releases
		if mean := r.tally.release.Mean(); math.Abs(float64(x.FirstNs+x.MessageNs+x.RestNs)/float64(x.N)-mean) > 0.01*mean {
			t.Errorf("%s, %d clients: the steps of a release take %d ns in %d, all of one %.0f", c.lock, c.clients, x.FirstNs+x.MessageNs+x.RestNs, x.N, mean)
		}
		if messages, rest := s.Writers.MessageNs+s.Readers.MessageNs > 0, s.Writers.RestNs+s.Readers.RestNs > 0; messages != c.messages || rest != c.rest {
			t.Errorf("%s, %d clients: waits for messages %v, tries again %v", c.lock, c.clients, messages, rest)
		}
	}
}
