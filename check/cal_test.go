package check
import ("testing";"fmt")
func TestCal(t *testing.T) {
	most := map[string]float64{}
	abs := map[string]int{}
	line := map[string]string{}
	for seed := range uint64(3000) {
		s := Draw(seed, Fair)
		r, err := Run(s)
		if err != nil { t.Fatal(err) }
		k := fmt.Sprintf("%s w%d r%d", s.Policy, s.Writers, s.Reads)
		if s.Writers > 0 { k = fmt.Sprintf("%s w%d", s.Policy, s.Writers)}
		if x := float64(r.Overtaken)/float64(s.CNs*s.Clients); x > most[k] { most[k] = x; line[k]=s.String()}
		abs[k] = max(abs[k], r.Overtaken)
	}
	for k, x := range most { t.Logf("%-30s %.1f %d", k, x, abs[k]) }
}
