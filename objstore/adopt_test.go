package objstore

import "testing"

// Sizes that are not given are those of the store that is there; the largest value is the same for all, the index and the bound
// of the memory are as their maker chose.
func TestOpenAdopts(t *testing.T) {
	w, c := one(t, func(cfg *Config) { cfg.Objects, cfg.MaxValue, cfg.MemoryLimit = 5000, 3000, 8<<20 })
	made := c.s
	if n := made.Objects(); n < 5000 || n > 5100 {
		t.Fatalf("made for %d objects", n)
	}
	again := func(f func(*Config)) (*Store, error) {
		cfg := Config{Name: made.cfg.Name, Nodes: w.mns, Lock: made.cfg.Lock}
		f(&cfg)
		return Open(c.port, cfg)
	}
	for name, f := range map[string]func(*Config){
		"nothing": func(cfg *Config) {}, "same": func(cfg *Config) { cfg.Objects, cfg.MaxValue, cfg.MemoryLimit = 5000, 3000, 8<<20 },
		"other index": func(cfg *Config) { cfg.Objects = 77 }, "other bound": func(cfg *Config) { cfg.MemoryLimit = 1 << 20 },
	} {
		s, err := again(f)
		wantErr(t, name, err, nil)
		if s.geo != made.geo || s.Objects() != made.Objects() || s.MaxValue() != 3000 || s.MemoryLimit() != 8<<20 || len(s.places.list) != len(made.places.list) {
			t.Errorf("%s: %+v, %d places; made as %+v with %d", name, s.geo, len(s.places.list), made.geo, len(made.places.list))
		}
	}
	_, err := again(func(cfg *Config) { cfg.MaxValue = 4000 })
	wantErr(t, "other value", err, ErrGeometry)
}
