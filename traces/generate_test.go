package traces

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
)

func TestPresets(t *testing.T) {
	all := Presets()
	if len(all) != 54 {
		t.Fatalf("%d presets", len(all))
	}
	for i, p := range all {
		if p.Name != fmt.Sprintf("cluster%d", i+1) {
			t.Errorf("preset %d is %s", i, p.Name)
		}
		if len(p.Ops) > 0 && p.opSum() > 0 && math.Abs(p.opSum()-1) > 0.031 {
			t.Errorf("%s: operations add up to %g", p.Name, p.opSum())
		}
	}
	p := mustPreset("14")
	if p.KeySize != 96 || p.ValueSize != 414 || p.Ops[OpGet] != 0.65 || p.Ops[OpDelete] != 0.22 || p.Ops[OpSet] != 0.13 || p.Alpha != 1.2959 ||
		p.RateKQPS != 5.81 || p.MissRatio != 0.1218 || len(p.TTLs) != 1 || p.TTLs[0].TTL != 86400 {
		t.Errorf("%+v", p)
	}
	p = mustPreset("Cluster53")
	if p.KeySize != 36 || p.ValueSize != 9213 || p.Ops[OpPrepend] != 0.09 || p.Alpha != 1.2061 || p.TTLs[1] != (TTLShare{21 * 86400, 0.34}) {
		t.Errorf("%+v", p)
	}
	if mix := p.Mix(); math.Abs(mix[OpGet]-0.89/1.01) > 1e-9 {
		t.Errorf("mix %v", mix)
	}
	_, err := FindPreset("clutser14")
	if !errors.Is(err, ErrNoPreset) || !strings.Contains(err.Error(), "cluster54") {
		t.Error(err)
	}
	if _, err := parsePresets("a,b\n"); err == nil {
		t.Error("a line of two columns is a preset")
	}
}

// TestIncompletePresets: three clusters lack a figure, and the refusal names it.
func TestIncompletePresets(t *testing.T) {
	refused := map[string]string{"cluster5": "key size, value size, request rate, Zipf alpha, operation mix, common TTLs", "cluster43": "Zipf alpha", "cluster46": "Zipf alpha"}
	for _, p := range Presets() {
		_, err := NewGenerator(GenConfig{Preset: p, Keys: 10, Requests: 10})
		if missing, ok := refused[p.Name]; ok {
			if !errors.Is(err, ErrIncomplete) || !strings.Contains(err.Error(), missing) {
				t.Errorf("%s: %v", p.Name, err)
			}
		} else if err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
	p := mustPreset("cluster43")
	p.Alpha = 0.9 // the user knows better
	if _, err := NewGenerator(GenConfig{Preset: p, Keys: 10, Requests: 10}); err != nil {
		t.Error(err)
	}
	for _, cfg := range []GenConfig{{Keys: 0}, {Keys: MaxKeys + 1}, {Keys: 1, Clients: -1}} {
		cfg.Preset = p
		if _, err := NewGenerator(cfg); !errors.Is(err, ErrConfig) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// TestZipfIsExact compares draws with the exact probabilities by chi-square, for alpha below, at and above 1.
func TestZipfIsExact(t *testing.T) {
	if testing.Short() {
		t.Skip("long statistics")
	}
	for _, n := range []uint64{1, 2, 10, 1000} {
		for _, alpha := range []float64{0, 0.0242, 0.5, 0.99, 1 - 1e-7, 1, 1 + 1e-7, 1.01, 1.2959, 2.6774, 5} {
			z, err := NewZipf(n, alpha)
			if err != nil {
				t.Fatal(err)
			}
			const draws = 200000
			count, sum := make([]float64, n+1), 0.0
			r := NewRand(1, uint64(n))
			for range draws {
				count[z.Rank(r)]++
			}
			for k := uint64(1); k <= n; k++ {
				sum += math.Pow(float64(k), -alpha)
			}
			// Ranks are pooled until 20 draws are expected.
			var chi, cells, e, o float64
			for k := uint64(1); k <= n; k++ {
				e += draws * math.Pow(float64(k), -alpha) / sum
				o += count[k]
				if e >= 20 {
					chi += (o - e) * (o - e) / e
					cells++
					e, o = 0, 0
				}
			}
			// Mean cells-1, deviation sqrt(2 cells): five of those are never chance.
			if limit := cells + 5*math.Sqrt(2*cells); chi > limit {
				t.Errorf("n %d, alpha %g: chi-square %.0f over %.0f cells", n, alpha, chi, cells)
			}
		}
	}
	for _, bad := range []float64{-0.1, math.NaN(), 21} {
		if _, err := NewZipf(10, bad); !errors.Is(err, ErrConfig) {
			t.Errorf("alpha %g: %v", bad, err)
		}
	}
	z, _ := NewZipf(MaxKeys, 0.99)
	for r, i := NewRand(3, 0), 0; i < 100000; i++ {
		if k := z.Rank(r); k < 1 || k > MaxKeys {
			t.Fatal(k)
		}
	}
}

// TestPermutation: a bijection, and neighbours in rank are not neighbours in number.
func TestPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 7, 64, 65, 1000, 4096, 100000} {
		p := newPermutation(n, 42)
		seen, near := make([]bool, n), 0
		last := uint64(0)
		for x := range n {
			y := p.apply(x)
			if y >= n || seen[y] {
				t.Fatalf("n %d: %d -> %d", n, x, y)
			}
			seen[y] = true
			if y == last+1 {
				near++
			}
			last = y
		}
		if n >= 1000 && near > int(n/50) {
			t.Errorf("n %d: %d neighbours stay neighbours", n, near)
		}
	}
}

func genLines(t *testing.T, cfg GenConfig) []string {
	t.Helper()
	g, err := NewGenerator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rec := range All(g.All()) {
		out = append(out, rec.String())
	}
	return out
}

// TestDeterministic: a seed means the same trace, in this version and the next (the golden lines), and streams are
// the substreams of the whole.
func TestDeterministic(t *testing.T) {
	cfg := GenConfig{Preset: mustPreset("cluster23"), Seed: 7, Keys: 1000, Requests: 1001, Clients: 4}
	a, b := genLines(t, cfg), genLines(t, cfg)
	if strings.Join(a, "\n") != strings.Join(b, "\n") {
		t.Fatal("the same seed made two traces")
	}
	if len(a) != 1001 {
		t.Fatalf("%d records", len(a))
	}
	other := cfg
	other.Seed = 8
	if strings.Join(a, "\n") == strings.Join(genLines(t, other), "\n") {
		t.Fatal("another seed made the same trace")
	}
	g, _ := NewGenerator(cfg)
	for i := range 4 {
		j := i
		for rec := range All(g.Stream(i)) {
			if a[j] != rec.String() {
				t.Fatalf("record %d: %s, in the stream of client %d: %s", j, a[j], i, rec)
			}
			j += 4
		}
	}
	golden := goldenGenerated
	if got := strings.Join(a[:4], "\n"); got != golden {
		t.Errorf("the generator's output has changed: seeds of published results lose their meaning\n%s", got)
	}
}

const goldenGenerated = `0,Ex9N2idJOjLuFfaYBLRbFo5UV-qZg1khs,33,423,0,get,0
0,#:4Uvl5dJ_RHiGCntqb-1ZufwN75pC,30,0,1,incr,0
0,#:4waztVrhToxEFGOhL9jd8i5Um9FKtQhbQv8oV,39,10,2,get,0
0,#:11hsr5vl5dJ_RHiGCntqb-1ZufwN75pCsZrMiv-,41,0,3,delete,0`

// TestKeysKeepTheirSizes, are unique and of the wanted size; counters are told apart.
func TestKeysKeepTheirSizes(t *testing.T) {
	for _, name := range []string{"cluster14", "cluster23", "cluster45"} {
		g, err := NewGenerator(GenConfig{Preset: mustPreset(name), Seed: 3, Keys: 5000, Requests: 100000, Clients: 3})
		if err != nil {
			t.Fatal(err)
		}
		sizes := make(map[string]uint32)
		bytes := 0
		for i := range 3 {
			last := ""
			for rec := range All(g.Keys(i, 3)) {
				if _, dup := sizes[string(rec.Key)]; dup || rec.Op != OpSet || rec.ValueSize == 0 || rec.TTL == 0 {
					t.Fatalf("%s: %s", name, rec)
				}
				sizes[string(rec.Key)] = rec.ValueSize
				bytes += len(rec.Key)
				last = string(rec.Key)
			}
			if hottest := string(g.putKey(make([]byte, 250), uint64(i)+1, g.counters && g.sizer.isCounter(uint64(i)+1))); last != hottest {
				t.Errorf("%s: the last key to warm is %s, not the hottest %s", name, last, hottest)
			}
		}
		if len(sizes) != 5000 {
			t.Fatalf("%s: %d keys", name, len(sizes))
		}
		for rec := range All(g.All()) {
			size, known := sizes[string(rec.Key)]
			switch {
			case !known:
				t.Fatalf("%s: %s is not of the population", name, rec)
			case (rec.Op.IsRead() || rec.Op.Stores()) && rec.ValueSize != size:
				t.Fatalf("%s: %s, but the key's value size is %d", name, rec, size)
			case rec.Op.Counts() != IsCounterKey(rec.Key) && rec.Op.Counts():
				t.Fatalf("%s: %s is not a counter", name, rec)
			case IsCounterKey(rec.Key) && rec.ValueSize > 20:
				t.Fatalf("%s: %s is no number of 64 bits", name, rec)
			}
		}
	}
	g, _ := NewGenerator(GenConfig{Preset: mustPreset("14"), Keys: 101, Requests: 1, Clients: 1})
	n := 0
	for range All(g.Keys(1, 2)) {
		n++
	}
	if n != 50 {
		t.Errorf("share 1 of 2 of 101 keys has %d", n)
	}
}

func TestGeneratorAllocates0(t *testing.T) {
	g, _ := NewGenerator(GenConfig{Preset: mustPreset("22"), Keys: 100000})
	s := g.Stream(0)
	var rec Record
	if n := testing.AllocsPerRun(10000, func() { s.Next(&rec) }); n != 0 {
		t.Errorf("%g allocations per record", n)
	}
}

func BenchmarkZipf(b *testing.B) {
	for _, alpha := range []float64{0.5, 1, 1.2959, 2.6774} {
		b.Run(fmt.Sprint(alpha), func(b *testing.B) {
			z, _ := NewZipf(1e6, alpha)
			r := NewRand(1, 1)
			for b.Loop() {
				z.Rank(r)
			}
		})
	}
}

func BenchmarkGenerate(b *testing.B) {
	for _, name := range []string{"cluster14", "cluster53", "cluster23"} {
		b.Run(name, func(b *testing.B) {
			g, _ := NewGenerator(GenConfig{Preset: mustPreset(name), Keys: 1e6})
			s := g.Stream(0)
			var rec Record
			b.ReportAllocs()
			for b.Loop() {
				s.Next(&rec)
			}
		})
	}
}

func BenchmarkNewGenerator(b *testing.B) {
	for b.Loop() {
		if _, err := NewGenerator(GenConfig{Preset: mustPreset("cluster14"), Keys: 1e7}); err != nil {
			b.Fatal(err)
		}
	}
}
