package bench

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// A quick run has so few measurements: it takes some minutes. How long each takes is not bounded here.
func TestQuickPoints(t *testing.T) {
	const most = 1100
	count := func(o Options) (n int) {
		c := Config{Options: o}
		for _, e := range Experiments() {
			if e.Long || e.Apart {
				continue
			}
			for _, p := range e.Points(o) {
				n += c.seedsOf(&p)
			}
		}
		return n
	}
	if quick, all := count(Options{Quick: true, NIC: DefaultNIC}), count(Options{NIC: DefaultNIC}); quick > most || 5*quick > 2*all {
		t.Errorf("%d measurements of a quick run, %d of a full one: want %d at most, and two fifths", quick, all, most)
	}
}

// Quick runs that do not become steady end soon, those of trees, too.
func TestQuickPace(t *testing.T) {
	const most = 60 * fabric.Millisecond
	o := Options{Quick: true, NIC: DefaultNIC}
	m := Default("cas").sized(o)
	if p := m.pace(); p.LimitNs > most {
		t.Errorf("a run goes on for %d ns", p.LimitNs)
	}
	if x := o.index(Index{Clients: 512}); !x.Quick {
		t.Error("runs of trees are as long as others")
	}
}
