package bench

import "fmt"

// A moved constant of the model, within what is plausible.
type moved struct{ tune, about string }

// plausible are constants moved one at a time. Where measurements of others are known they bound the range.
var plausible = []moved{
	{"", "the model"},
	{"LocalWake=1600", "messages within a node as slow as between nodes"},
	{"MessageMin=1100,MessageMax=1200", "messages between nodes faster by 0.5 us"},
	{"MessageMin=2600,MessageMax=2700", "... slower by 1 us"},
	{"Atomic=100", "atomics on one address twice as fast"},
	{"Atomic=270", "270 ns, as ShiftLock's authors measured on ConnectX-5"},
	{"PCIeAtomic=800", "atomics take twice as long until the answer: in host memory, on newer NICs"},
	{"Pipe=10", "100 M operations a second"},
	{"Pipe=32", "31 M, as ShiftLock's goodputs imply"},
	{"OneWay=500", "a faster network"},
	{"OneWay=1000", "a slower one"},
	{"AtomicQueue=1024", "atomics that wait hold up no others"},
}

var senseLocks = []string{"dslr+-overflow", "shift", "shift-artifact", "declock-tf", "declock-pf", "declock"}

var expSense = &Experiment{
	Name: "sense", Title: "Which conclusions turn when a constant of the model moves",
	Paper:   "Not in the paper. The default point, one constant moved at a time within its plausible range. The model's constants are fitted, so a conclusion that turns is none.",
	Columns: []string{"constant", "lock", "mops", "p50_us", "p99_us"},
	Points: func(o Options) []Point {
		var points []Point
		for _, v := range pick(o, plausible, plausible...) {
			for _, name := range senseLocks {
				p := o.point(name, Params{{"constant", v.text()}}, func(m *Micro) { m.Tune = v.tune })
				p.Seeds = 1
				points = append(points, p)
			}
		}
		return points
	},
	Judge: judgeSense,
}

func (v moved) text() string {
	if v.tune == "" {
		return "as fitted"
	}
	return v.tune
}

func judgeSense(rows Rows) (claims []Claim) {
	for _, c := range []struct{ a, b, text string }{
		{"declock-tf", "dslr+-overflow", "DecLock-TF over DSLR+ with the overflowing backoff"},
		{"declock-pf", "shift", "DecLock-PF over ShiftLock (letter)"},
		{"declock-pf", "shift-artifact", "DecLock-PF over ShiftLock (as its authors run it)"},
		{"declock", "shift-artifact", "declock over ShiftLock (as its authors run it)"},
		{"declock", "declock-pf", "declock over DecLock-PF"},
	} {
		a := rows.Along(c.a, c.b, "constant", "mops")
		note := fmt.Sprintf("%.3g as fitted, up to %.3g", Ratio(rows.Find("lock", c.a, "constant", "as fitted"), rows.Find("lock", c.b, "constant", "as fitted"), "mops"), a.Most())
		if a.Most() < 1 {
			note += ": so it is with each constant. Fig. 12 has the same ratio over clients, sections, reads, locks and skew"
		}
		claims = append(claims, Claim{Own: true, Text: "the default point, one constant moved at a time: " + c.text + ", at least", Unit: "x", Row: a.String(), Note: note}.AtLeast(a.Least(), 1))
	}
	return claims
}
