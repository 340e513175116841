package check

import "testing"

// What a Rerun prints is what ParseRerun reads.
func TestRerunsParse(t *testing.T) {
	for _, x := range Explorations(false, "") {
		back, err := ParseExploration(x.String())
		if err != nil || back != x {
			t.Errorf("%v is read as %v, %v", x, back, err)
		}
	}
	good := Rerun{Program: Explorations(true, "")[0]}
	for _, bad := range []string{"", "x", "nonsense; -", good.Program.String(), good.String() + "x", "cql [1q] x1, 4 entries, 27 version bits; -",
		"cql [1s] x1, 5 entries, 27 version bits; -", "nopolicy [1s] x1, 4 entries, 27 version bits; -", "cql [1s] x1, 4 entries, 99 version bits; -"} {
		if r, err := ParseRerun(bad); err == nil {
			t.Errorf("%q is read as %v", bad, r)
		}
	}
}
