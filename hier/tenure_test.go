package hier

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// stopped is a clock that shows what the test says.
type stopped struct {
	fabric.Port
	t fabric.Time
}

func (s *stopped) Now() fabric.Time { return s.t }

// The bound of shared tenure doubles while it runs out and no client here wants to write, from the third tenure
// on, up to SharingMaxNs; one that was not used up, or a local writer, ends that.
func TestSharedTenureGrowsWithReadersOnly(t *testing.T) {
	p, err := ParsePolicy("declock")
	if err != nil {
		t.Fatal(err)
	}
	x := &local{relation: relation{state: held, tenure: tenure{mode: lock.Shared, holders: 1}}}
	clock := &stopped{t: fabric.Second}
	// lasts returns for how long readers may join.
	lasts := func() fabric.Time {
		p.prolong(&x.pace)
		x.sharing = 0
		for d := fabric.Time(0); ; d += fabric.Microsecond {
			if clock.t += fabric.Microsecond; !p.admits(x, lock.Shared, clock) {
				return d
			}
		}
	}
	us := fabric.Microsecond
	for i, want := range []fabric.Time{20, 20, 20, 40, 80, 160, 320, 500, 500} {
		if got := lasts(); got != want*us {
			t.Fatalf("tenure %d: %d ns, want %d us", i, got, want)
		}
	}
	p.prolong(&x.pace)
	x.wanted() // as acquireLocal does for a writer
	for i, want := range []fabric.Time{20, 20, 20, 40} {
		if got := lasts(); got != want*us {
			t.Errorf("after a local writer, tenure %d: %d ns, want %d us", i, got, want)
		}
	}
	p, _ = ParsePolicy("paper-pf")
	x = &local{relation: relation{state: held, tenure: tenure{mode: lock.Shared, holders: 1}}}
	for range 1000 {
		if clock.t += fabric.Second; !p.admits(x, lock.Shared, clock) {
			t.Fatal("the paper's policy bounds the shared tenure")
		}
	}
}
