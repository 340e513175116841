package traces

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// presetsCSV is the statistics table; see the head of the file for its source and licence.
//
//go:embed presets.csv
var presetsCSV string

// A Preset is what the published table says of a cluster, as far as a trace of it is made from that. A figure that the
// table does not have is NaN, and [Preset.Missing] names it. A preset is a value: set fields to vary it.
type Preset struct {
	Name      string
	MissRatio float64 // in production
	KeySize   float64 // mean, bytes
	ValueSize float64 // mean, bytes
	RateKQPS  float64 // thousand requests per second
	TTLs      []TTLShare
	Ops       [NumOps]float64 // shares as printed: rounded, they need not add up to 1
	Alpha     float64         // of the Zipf distribution of requests over keys
}

// A TTLShare is the share of writes with a TTL.
type TTLShare struct {
	TTL   uint32 // seconds
	Share float64
}

// The two clusters of DecLock's evaluation (section 6.4): many small operations, and large values.
const (
	IOPSBound      = "cluster14"
	BandwidthBound = "cluster53"
)

var presets = mustParsePresets(presetsCSV)

// Presets returns all clusters of the table, in its order.
func Presets() []Preset { return append([]Preset(nil), presets...) }

// FindPreset returns the preset of a cluster: "cluster14" or "14". Else the error is ErrNoPreset.
func FindPreset(name string) (Preset, error) {
	want := strings.ToLower(strings.TrimSpace(name))
	if _, err := strconv.Atoi(want); err == nil {
		want = "cluster" + want
	}
	for _, p := range presets {
		if p.Name == want {
			return p, nil
		}
	}
	return Preset{}, fmt.Errorf("%w: %q; there are cluster1 to cluster%d", ErrNoPreset, name, len(presets))
}

// Missing names the statistics that generation needs and the table does not have.
func (p *Preset) Missing() []string {
	var missing []string
	for _, f := range []struct {
		name string
		v    float64
	}{{"key size", p.KeySize}, {"value size", p.ValueSize}, {"request rate", p.RateKQPS}, {"Zipf alpha", p.Alpha}} {
		if math.IsNaN(f.v) {
			missing = append(missing, f.name)
		}
	}
	if p.opSum() == 0 {
		missing = append(missing, "operation mix")
	}
	if len(p.TTLs) == 0 {
		missing = append(missing, "common TTLs")
	}
	return missing
}

func (p *Preset) opSum() float64 {
	sum := 0.0
	for _, share := range p.Ops {
		sum += share
	}
	return sum
}

// Mix returns the shares of operations, normalised to add up to 1.
func (p *Preset) Mix() [NumOps]float64 {
	mix, sum := p.Ops, p.opSum()
	for op := range mix {
		if sum > 0 {
			mix[op] /= sum
		}
	}
	return mix
}

// TTLMix returns the shares of TTLs, normalised to add up to 1: TTLs too rare
// for the table are taken to be spread as the common ones are.
func (p *Preset) TTLMix() []TTLShare {
	sum := 0.0
	for _, t := range p.TTLs {
		sum += t.Share
	}
	out := append([]TTLShare(nil), p.TTLs...)
	for i := range out {
		out[i].Share /= sum
	}
	return out
}

func mustParsePresets(text string) []Preset {
	ps, err := parsePresets(text)
	if err != nil {
		panic(err) // the embedded file is part of the program
	}
	return ps
}

func parsePresets(text string) (out []Preset, err error) {
	r := csv.NewReader(strings.NewReader(text))
	r.Comment, r.FieldsPerRecord = '#', 14
	lines, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("presets.csv: %w", err)
	}
	for _, f := range lines {
		p, err := parsePreset(f)
		if err != nil {
			return nil, fmt.Errorf("presets.csv: %s: %w", f[0], err)
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePreset(f []string) (Preset, error) {
	var err error
	num := func(s string) float64 {
		if s == "" {
			return math.NaN()
		}
		v, e := strconv.ParseFloat(s, 64)
		if e != nil || v < 0 {
			err = fmt.Errorf("%q is not a figure", s)
		}
		return v
	}
	p := Preset{
		Name: f[0], MissRatio: num(f[1]), KeySize: num(f[3]), ValueSize: num(f[4]),
		RateKQPS: num(f[5]), Alpha: num(f[13]),
	}
	for _, item := range strings.Fields(f[9]) {
		text, share, ok := strings.Cut(item, ":")
		ttl, e := parseTTL(text)
		if !ok || e != nil {
			return p, fmt.Errorf("TTL %q", item)
		}
		p.TTLs = append(p.TTLs, TTLShare{TTL: ttl, Share: num(share)})
	}
	for _, item := range strings.Fields(f[12]) {
		name, share, _ := strings.Cut(item, ":")
		op := ParseOp([]byte(name))
		if op == OpNone {
			return p, fmt.Errorf("operation %q", item)
		}
		p.Ops[op] = num(share)
	}
	return p, err
}

// parseTTL reads a TTL of the table: a number and s, h or d.
func parseTTL(s string) (uint32, error) {
	unit, ok := map[byte]float64{'s': 1, 'h': 3600, 'd': 86400}[s[len(s)-1]]
	v, err := strconv.ParseFloat(s[:len(s)-1], 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%q is not a TTL", s)
	}
	return uint32(math.Round(v * unit)), nil
}
