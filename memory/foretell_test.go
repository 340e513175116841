package memory_test

import "testing"

// A word that backups are to have before the primary does is to be put again if there is another backup by then: it was written to those of before.
func TestForetellToANewBackup(t *testing.T) {
	w := newReplicated(t, 2)
	p := open(t, w.nodes[0])
	a := w.r.At(size - 64)
	for _, added := range []bool{false, true} {
		put, err := w.r.Foretell(p)
		want(t, err, nil)
		if added {
			w.c.AddBackup(w.mn, w.c.AddMN(4096))
		}
		if again, err := put(a, 5, func() error { return nil }); err != nil || again != added {
			t.Errorf("a new backup %v: again %v, %v", added, again, err)
		}
	}
}
