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

// A senseOf is a point at which the constants are moved, and the locks that headlines compare there.
type senseOf struct {
	part  string
	locks []string
	point func(o Options, lock string, front Params, tune string) Point
}

const (
	senseDefault = "default point"
	senseFew     = "64 nodes x 1 client"
	senseTree    = "B+tree"
)

var senseParts = []senseOf{
	{senseDefault, []string{"cas", "dslr+-overflow", "shift", "shift-artifact", "declock-tf", "declock-pf", "declock"}, func(o Options, lock string, front Params, tune string) Point {
		return o.point(lock, front, func(m *Micro) { m.Tune = tune })
	}},
	{senseFew, []string{"shift-artifact", "declock"}, func(o Options, lock string, front Params, tune string) Point {
		return o.point(lock, front, func(m *Micro) { m.Tune, m.CNs, m.Clients = tune, 64, 64 })
	}},
	{senseTree, []string{"cas", "sherman", "declock-tf", "declock"}, func(o Options, lock string, front Params, tune string) Point {
		x := o.index(Index{Lock: lock, Clients: 512, CNs: 512 / shermanPerCN, Mix: shermanMixes[0], Tune: tune})
		return x.point(append(front, x.params()...))
	}},
}

var expSense = &Experiment{
	Name: "sense", Title: "Which conclusions turn when a constant of the model moves",
	Paper: "Not in the paper. The default point, 64 compute nodes of one client, and Sherman's update-only mix by 512 clients; one constant moved at a time within its plausible range. " +
		"The model's constants are fitted, so a conclusion that turns is none.",
	Columns: []string{"part", "constant", "lock", "mops", "p50_us", "p99_us"},
	Points: func(o Options) []Point {
		var points []Point
		for _, v := range pick(o, plausible, plausible[0], plausible[4]) {
			for _, s := range senseParts {
				for _, name := range s.locks {
					points = append(points, s.point(o, name, Params{{"part", s.part}, {"constant", v.text()}}, v.tune))
				}
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
	for _, c := range []struct{ part, a, b, text string }{
		{senseDefault, "declock-tf", "cas", "DecLock-TF over CASLock"},
		{senseDefault, "declock-tf", "dslr+-overflow", "DecLock-TF over DSLR+ with the overflowing backoff"},
		{senseDefault, "declock-pf", "shift", "DecLock-PF over ShiftLock (letter)"},
		{senseDefault, "declock-pf", "shift-artifact", "DecLock-PF over ShiftLock (as published, no pauses)"},
		{senseDefault, "declock", "shift-artifact", "declock over ShiftLock (as published, no pauses)"},
		{senseDefault, "declock", "declock-tf", "declock over DecLock-TF"},
		{senseDefault, "declock", "declock-pf", "declock over DecLock-PF"},
		{senseFew, "declock", "shift-artifact", "declock over ShiftLock (as published, no pauses)"},
		{senseTree, "declock-tf", "cas", "Sherman with DecLock (task-fair) over Sherman-NH"},
		{senseTree, "declock-tf", "sherman", "Sherman with DecLock (task-fair) over Sherman"},
		{senseTree, "declock", "sherman", "our best DecLock (leaves stay with the lock, writes are deferred) over Sherman (plain)"},
	} {
		of := rows.Where("part", c.part)
		a := of.Along(c.a, c.b, "constant", "mops")
		note := fmt.Sprintf("%.3g as fitted, up to %.3g", Ratio(of.Find("lock", c.a, "constant", "as fitted"), of.Find("lock", c.b, "constant", "as fitted"), "mops"), a.Most())
		if a.Most() < 1 {
			note += ": so it is with each constant"
		}
		if c.b == "sherman" && c.a == "declock-tf" {
			note += ". Sherman's nodes repeat a CAS, which costs less where atomics are faster or hold up no others; a turn of task-fair DecLock at the hottest leaf is a message, a READ and a WRITE on another node, whatever an atomic costs"
		}
		claims = append(claims, Claim{Own: true, Text: c.part + ", one constant moved at a time: " + c.text + ", at least", Unit: "x", Sweep: a, Note: note}.AtLeast(a.Least(), 1))
	}
	tail := rows.Where("part", senseDefault).Along("declock", "shift-artifact", "constant", "p99_us")
	return append(claims, Claim{Own: true, Text: senseDefault + ", one constant moved at a time: p99 of declock over ShiftLock's (as published, no pauses), at most", Unit: "x", Sweep: tail}.AtMost(tail.Most(), 1.1))
}
