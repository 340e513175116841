package memory_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory"
)

// A client that looks at memory while its memory node formats it finds it not formatted, half formatted, or a region: at no time
// something else.
func TestOpenBesideFormat(t *testing.T) {
	prm := memory.Params{Size: 1 << 20, CapacityLog2: 3, VersionBits: 16}
	opened := 0
	for after := range fabric.Time(400) {
		c := sim.New(sim.Config{Seed: uint64(after), NIC: sim.Ideal(), Tear: sim.Tear{Prob: 1, Grain: 64, Window: 3 * fabric.Microsecond}})
		mn := c.AddMN(prm.Size)
		c.Go(c.AddCN(), "opens", func(p fabric.Port) {
			switch _, err := memory.Open(p, mn); {
			case err == nil:
				opened++
			case !errors.Is(err, memory.ErrNotFormatted) && !errors.Is(err, memory.ErrHalfFormatted):
				t.Errorf("formatted after %d ns: %v", 10*after, err)
			}
		})
		c.At(10*after, func() {
			if err := memory.FormatOwn(mn, own{c, mn}, prm, memory.UUID{1, 2}); err != nil {
				t.Error(err)
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if opened == 0 || opened == 400 {
		t.Errorf("%d of 400 found a region", opened)
	}
}
