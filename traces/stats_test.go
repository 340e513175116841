package traces

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestStatsAgreeWithEveryPreset: what is generated from a row of the table has the figures of the row.
func TestStatsAgreeWithEveryPreset(t *testing.T) {
	for _, p := range Presets() {
		if len(p.Missing()) > 0 {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			// 1000 keys asked for 300 times each: with alpha near 0 all keys are alike, and
			// at fewer requests the order of chance would look like skew.
			g, err := NewGenerator(GenConfig{Preset: p, Seed: 11, Keys: 1000, Requests: 300000, Clients: 3})
			if err != nil {
				t.Fatal(err)
			}
			s := NewStats(0)
			if err := s.AddAll(g.All()); err != nil {
				t.Fatal(err)
			}
			m := s.Summary()
			for op, share := range p.Mix() {
				if got := m.Share(Op(op)); math.Abs(got-share) > 0.01 {
					t.Errorf("%s: share %.4f, preset %.4f", Op(op), got, share)
				}
			}
			near(t, "key size", m.MeanKey, p.KeySize, 0.05)
			near(t, "value size", m.MeanValue, p.ValueSize, 0.05)
			near(t, "rate", m.RateKQPS, p.RateKQPS, 0.1) // timestamps are whole seconds
			if m.Alpha == nil || math.Abs(*m.Alpha-p.Alpha) > 0.1 {
				t.Errorf("Zipf alpha %v, preset %g", deref(m.Alpha), p.Alpha)
			}
			if m.Sampled != 1 || m.Keys > 1000 || m.Clients != 3 || m.OutOfOrder != 0 {
				t.Errorf("%+v", m)
			}
			want := p.TTLMix()
			if len(m.TTLs) > 0 && m.TTLs[0].Share > 0.3 && math.Abs(m.TTLs[0].Share-want[0].Share) > 0.02 {
				t.Errorf("TTL %+v, preset %+v", m.TTLs[0], want[0])
			}
		})
	}
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*want {
		t.Errorf("%s %.4g, want %.4g", what, got, want)
	}
}

func deref(p *float64) string {
	if p == nil {
		return "none"
	}
	return fmt.Sprint(*p)
}

// TestStatsLargeKeySpace: the calibration of sizes and families holds behind the head too.
func TestStatsLargeKeySpace(t *testing.T) {
	if testing.Short() {
		t.Skip("long statistics")
	}
	for _, name := range []string{"cluster23", "cluster53", "cluster1"} {
		p := mustPreset(name)
		g, err := NewGenerator(GenConfig{Preset: p, Seed: 1, Keys: 3e6, Requests: 600000})
		if err != nil {
			t.Fatal(err)
		}
		s := NewStats(50000)
		_ = s.AddAll(g.All())
		m := s.Summary()
		near(t, name+" key size", m.MeanKey, p.KeySize, 0.05)
		near(t, name+" value size", m.MeanValue, p.ValueSize, 0.05)
		for op, share := range p.Mix() {
			if got := m.Share(Op(op)); math.Abs(got-share) > 0.01 {
				t.Errorf("%s %s: share %.4f, preset %.4f", name, Op(op), got, share)
			}
		}
		if len(s.keys.keys) > 50000 {
			t.Errorf("%s: %d keys are tracked, and not 50000", name, len(s.keys.keys))
		}
	}
}

// TestStatsSampling: beyond the bound, figures are estimates near the exact ones.
func TestStatsSampling(t *testing.T) {
	if testing.Short() {
		t.Skip("long statistics")
	}
	p := mustPreset("cluster40")
	cfg := GenConfig{Preset: p, Seed: 5, Keys: 200000, Requests: 2000000}
	g, _ := NewGenerator(cfg)
	exact, bounded := NewStats(1<<20), NewStats(20000)
	var rec Record
	for src := g.All(); src.Next(&rec); {
		exact.Add(&rec)
		bounded.Add(&rec)
	}
	e, b := exact.Summary(), bounded.Summary()
	if e.Sampled != 1 || b.Sampled >= 0.2 || b.Sampled < 0.02 {
		t.Errorf("sampled %g and %g", e.Sampled, b.Sampled)
	}
	near(t, "keys", b.Keys, e.Keys, 0.05)
	near(t, "one-hit ratio", b.OneHitRatio, e.OneHitRatio, 0.15)
	near(t, "working set", b.WorkingSet, e.WorkingSet, 0.05)
	if math.Abs(*b.Alpha-*e.Alpha) > 0.1 || math.Abs(*e.Alpha-p.Alpha) > 0.1 {
		t.Errorf("alpha %g sampled, %g exact, %g preset", *b.Alpha, *e.Alpha, p.Alpha)
	}
}

func TestStatsOfSample(t *testing.T) {
	r, err := Open("testdata/sample.csv", ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s := NewStats(0)
	if err := s.AddAll(r); err != nil {
		t.Fatal(err)
	}
	m := s.Summary()
	if m.Requests != 13 || m.Keys != 6 || m.Clients != 6 || m.TraceMisses != 1.0/3 || m.Alpha != nil || m.OneHitRatio != 3.0/6 ||
		m.MeanPiece != 3.5 || m.DurationS != 1<<32 || len(m.TTLs) != 3 || m.TTLs[0] != (TTLCount{60, 0.6}) {
		t.Errorf("%+v", m)
	}
	if z := NewStats(0).Summary(); z.Requests != 0 || z.Alpha != nil {
		t.Errorf("%+v", z)
	}
	bad, _ := NewReader(strings.NewReader("x\n"), ReaderOptions{})
	if err := s.AddAll(bad); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

func BenchmarkStats(b *testing.B) {
	g, _ := NewGenerator(GenConfig{Preset: mustPreset("cluster14"), Keys: 1e6, Requests: 100000})
	var recs []Record
	for rec := range All(g.All()) {
		c := *rec
		c.Key = append([]byte(nil), rec.Key...)
		recs = append(recs, c)
	}
	s := NewStats(0)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		s.Add(&recs[i])
		if i++; i == len(recs) {
			i = 0
		}
	}
}
