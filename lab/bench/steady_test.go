package bench

import (
	"context"
	"math"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/traces"
)

// play runs a settling over a throughput of so many operations a microsecond at a time, and returns
// from when to when it would be measured, whether that is steady, and the mean then.
func play(p Pace, rate func(fabric.Time) float64) (from, to fabric.Time, steady bool, mean float64) {
	t := newSettling(p)
	for now := fabric.Time(0); ; {
		ops := 0.0
		const steps = 16
		for i := range fabric.Time(steps) {
			ops += rate(now+t.length*i/steps) * float64(t.length) / steps / 1e3
		}
		now += t.length
		done, skip, ok := t.add(uint64(ops + 0.5))
		if done {
			return fabric.Time(skip) * t.length, now, ok, meanOf(t.ops[skip:]) * 1e3 / float64(t.length)
		}
		t.join()
	}
}

// The test for a steady state by series whose course is known.
func TestSteady(t *testing.T) {
	const ms = float64(fabric.Millisecond)
	noise := func(seed uint64, share float64) func(float64) float64 {
		r := traces.NewRand(seed, 1)
		return func(v float64) float64 { return v * (1 + share*(2*r.Float64()-1)) }
	}
	p := paceOf(256, 0, 400*fabric.Millisecond)
	for _, c := range []struct {
		name     string
		rate     func(now fabric.Time) float64
		steady   bool
		mean     float64     // to within the tolerance, if it is steady
		earliest fabric.Time // from when at least it may be measured
		latest   fabric.Time // by when it must be done
	}{
		{"constant", func(fabric.Time) float64 { return 5 }, true, 5, 0, 10 * fabric.Millisecond},
		{"noise", func() func(fabric.Time) float64 {
			n := noise(1, 0.5)
			return func(fabric.Time) float64 { return n(5) }
		}(), true, 5, 0, 20 * fabric.Millisecond},
		{"a storm of 5 ms at the start", func(now fabric.Time) float64 {
			if now < 5*fabric.Millisecond {
				return 0.3
			}
			return 5
		}, true, 5, 4 * fabric.Millisecond, 40 * fabric.Millisecond},
		{"ten times too fast for 5 ms", func(now fabric.Time) float64 {
			if now < 5*fabric.Millisecond {
				return 50
			}
			return 5
		}, true, 5, 4 * fabric.Millisecond, 40 * fabric.Millisecond},
		{"it falls, by 20 ms to the e-th part, to 2", func(now fabric.Time) float64 { return 2 + 6*math.Exp(-float64(now)/20/ms) }, true, 2, 40 * fabric.Millisecond, 200 * fabric.Millisecond},
		{"it falls for ever", func(now fabric.Time) float64 { return 8 / (1 + float64(now)/5/ms) }, false, 0, 0, 420 * fabric.Millisecond},
		{"it grows for ever", func(now fabric.Time) float64 { return 1 + float64(now)/20/ms }, false, 0, 0, 420 * fabric.Millisecond},
		{"a period of 2 ms, up and down by a half", func(now fabric.Time) float64 { return 5 + 2.5*math.Sin(2*math.Pi*float64(now)/2/ms) }, true, 5, 0, 60 * fabric.Millisecond},
		{"a period of 30 ms", func(now fabric.Time) float64 { return 5 + 2.5*math.Sin(2*math.Pi*float64(now)/30/ms) }, true, 5, 0, 400 * fabric.Millisecond},
		{"a hump, then half as fast", func(now fabric.Time) float64 {
			x := float64(now) / ms
			return 3 + 4*math.Exp(-(x-10)*(x-10)/100)
		}, true, 3, 15 * fabric.Millisecond, 150 * fabric.Millisecond},
		{"nothing is done", func(fabric.Time) float64 { return 0 }, false, 0, 0, 420 * fabric.Millisecond},
		{"too little is done", func(fabric.Time) float64 { return 0.001 }, false, 0, 0, 420 * fabric.Millisecond},
	} {
		from, to, steady, mean := play(p, c.rate)
		if steady != c.steady || to > c.latest || steady && (from < c.earliest || math.Abs(mean/c.mean-1) > p.Tolerance) {
			t.Errorf("%s: measured from %.1f to %.1f ms, steady %v, mean %.2f", c.name, float64(from)/ms, float64(to)/ms, steady, mean)
		}
	}
}

// What is measured grows with the clients: each has its turns.
func TestSteadyDependsOnClients(t *testing.T) {
	for _, clients := range []int{8, 256, 4096} {
		from, to, _, mean := play(paceOf(clients, 0, 400*fabric.Millisecond), func(fabric.Time) float64 { return 5 })
		if ops := mean * float64(to-from) / 1e3; ops < float64(turns*clients) {
			t.Errorf("%d clients: %.0f operations in %d us", clients, ops, (to-from)/1e3)
		}
	}
}

// A window that is given is tested, too: one at the start, when clients come to the locks one after another, is
// refused, and so is one in which hardly a client has done anything.
func TestShortWindowIsRefused(t *testing.T) {
	m := Default("cas")
	m.CNs, m.Clients, m.Locks = 4, 64, 1000
	for _, c := range []struct {
		warmup, window fabric.Time
		steady         bool
	}{
		{1, 2 * fabric.Millisecond, false},
		{20 * fabric.Millisecond, 100 * fabric.Microsecond, false},
		{40 * fabric.Millisecond, 80 * fabric.Millisecond, true},
		{0, 0, true},
	} {
		m.WarmupNs, m.WindowNs = c.warmup, c.window
		r, err := Sim(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		if d := int64(r.Locks.Acquires) - int64(r.Ops); d > int64(m.Clients) || -d > int64(m.Clients) {
			t.Errorf("%d operations in the window, and %d acquisitions", r.Ops, r.Locks.Acquires)
		}
		got := r.Metrics()
		if got["steady"] != map[bool]float64{true: 1}[c.steady] {
			t.Errorf("%d us of warm-up, window of %d: %.3f Mops, from %.0f us on %.0f us are measured, drift %.1f %%, steady %v",
				c.warmup/1000, c.window/1000, got["mops"], got["settle_us"], got["window_us"], got["drift_pct"], got["steady"])
		}
		t.Logf("%.3f Mops, from %.0f us on %.0f us are measured, drift %.1f %%", got["mops"], got["settle_us"], got["window_us"], got["drift_pct"])
	}
}
