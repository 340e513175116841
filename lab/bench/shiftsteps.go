package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric/sim"
)

// ShiftLock's Tables 3 and 4: how long its steps take, in microseconds on average. IA, its first atomic, is the first chain here; WP, the wait for the writer
// before, that for messages; WR and WW, READs that wait for readers and for writers, and RT, tries, are the rest; NS is a release's wait for the message of the next one. NP, the time in which a client hands a message
// to its NIC, is nothing in the model. Their script for these tables builds ShiftLock without a bound of writers in a row; the tables have writers that wait for 43 us and readers that
// wait for 3, which is a bound's doing: without one it is 3 and 21 us here (shift-artifact:pause:2147483648). So they are set beside the bound of 16.

// stepTimes are figures of these tables: of a writer's acquisition its first atomic, its wait for a message and the rest; of a reader's the first atomic
// and the rest; of a release the first atomic and the rest.
type stepTimes [7]float64

func (t stepTimes) metrics() Metrics {
	m := Metrics{"reader_message_us": 0} // readers get none
	for i, name := range stepMetrics {
		m[name] = t[i]
	}
	return m
}

var stepMetrics = [7]string{"writer_first_us", "writer_message_us", "writer_rest_us", "reader_first_us", "reader_rest_us", "release_first_us", "release_message_us"}

// theirSteps are those of Table 3, by clients; of each item those of its Table 2. NP is part of the wait for messages.
var theirSteps = map[string]map[int]stepTimes{
	"WI": {
		5: {2.05, 0.02, 0.01, 2.03, 0.01, 2.05, 0.02}, 20: {2.24, 0.17, 0.05, 2.22, 0.20, 2.25, 0.10}, 40: {2.27, 0.40, 0.07, 2.25, 0.78, 2.27, 0.18}, 80: {2.41, 2.11, 0.09, 2.38, 2.00, 2.39, 0.28},
		120: {2.41, 10.36, 0.09, 2.38, 2.14, 2.40, 0.29}, 160: {2.43, 19.73, 0.09, 2.40, 2.32, 2.42, 0.31}, 200: {2.49, 31.98, 0.09, 2.46, 2.63, 2.49, 0.33}, 240: {2.50, 42.86, 0.09, 2.47, 2.87, 2.51, 0.34}},
	"RI": {
		5: {2.41, 0.46, 0.32, 2.32, 0.00, 2.29, 0.00}, 20: {2.49, 0.33, 1.24, 2.41, 0.01, 2.38, 0.00}, 40: {2.64, 0.75, 2.09, 2.49, 0.04, 2.46, 0.02}, 80: {3.60, 2.53, 3.57, 2.68, 0.24, 2.69, 0.08},
		120: {5.14, 4.50, 4.45, 3.44, 0.59, 3.48, 0.14}, 160: {5.91, 5.25, 4.97, 4.52, 0.87, 4.58, 0.18}, 200: {6.96, 6.36, 5.83, 5.79, 1.21, 5.87, 0.21}, 240: {7.84, 8.21, 6.57, 6.95, 1.66, 7.03, 0.24}},
}

// theirOthers are those of Table 4 that are not in Table 3, with 240 clients.
var theirOthers = map[string]map[string]stepTimes{
	"WI": {"cas-backoff": {2.48, 0, 37.23, 2.48, 37.23, 2.34, 0}, "cas": {38.50, 0, 412.98, 38.50, 412.98, 37.92, 0}, theirDSLR: {7.76, 0, 75.36, 7.76, 74.86, 7.73, 0}},
	"RI": {theirDSLR: {3.47, 0, 18.01, 3.46, 20.26, 3.51, 0}},
}

// stepClients are the numbers of clients of Table 3.
var stepClients = []float64{5, 20, 40, 80, 120, 160, 200, 240}

// stepOthers are the locks of Table 4 beside ShiftLock.
var stepOthers = shiftSweep(sweep{of: "here", course: byCores, all: []float64{240}, few: []float64{240}, loads: shift8.loads, locks: []string{"cas-backoff", "cas", theirDSLR, "dslr+"}})

// theirs returns the figures of the paper as rows.
func theirs(part, lock string, clients int, t stepTimes) Point {
	return Point{Measure: one(Params{{"part", part}, {"of", "paper"}, {"lock", lock}, {"clients", clients}}, func(context.Context, uint64) (Metrics, error) { return t.metrics(), nil })}
}

func stepPoints(o Options) (points []Point) {
	here := shiftSweep(sweep{of: "here", course: byCores, all: stepClients, few: shift8.few, loads: shift8.loads, locks: []string{delayed, "declock-pf", "declock"}})
	points = append(here.points(o), stepOthers.points(o)...)
	for _, part := range []string{"WI", "RI"} {
		for _, n := range pick(o, stepClients, shift8.few...) {
			points = append(points, theirs(part, delayed, int(n), theirSteps[part][int(n)]))
		}
		for _, lock := range stepOthers.locks {
			if t, ok := theirOthers[part][lock]; ok {
				points = append(points, theirs(part, lock, 240, t))
			}
		}
	}
	return points
}

var expShiftSteps = &Experiment{
	Name: "shiftsteps", Other: true, Title: "ShiftLock's Tables 3 and 4: mean times of the steps of an acquisition and a release, by clients and by lock",
	Paper: "ShiftLock's paper, section 4.6, Zipf 0.99, 50 % (WI) and 95 % reads (RI): with WI the first atomic takes 2.05 us with 5 clients and 2.50 with 240, a reader's wait for writers (WW) 2.00 with 80 and 2.87 with 240, a writer's for the one before " +
		"(WP) 42.6; with up to 80 clients writers wait for less time than readers. With RI first atomics take up to 3.13x as long. With 240 clients CAS-B's mean for writers is 12.7 % below ShiftLock's, ShiftLock's for readers 7.44x better; " +
		"releases' atomics take 37.92 us of CAS-NB, 2.34 of CAS-B and 7.73 of DSLR (RI: 3.51), their notifications (NS) 0.34 us of ShiftLock (RI: 0.24); with RI its writers wait for 15.21 us (NP, WP and WR); CAS-NB's CAS takes 15.39x, DSLR's FAA 3.10x as long as ShiftLock's first atomic; with RI ShiftLock's takes 2.29x as long as DSLR's, and its readers wait 91.6 % less.",
	Columns: []string{"part", "of", "lock", "clients", "writer_first_us", "writer_message_us", "writer_rest_us", "reader_first_us", "reader_message_us", "reader_rest_us", "release_first_us", "release_message_us"},
	Points:  stepPoints, Judge: judgeSteps,
	Plots: func(rows Rows) []Plot {
		rows = rows.Where("lock", delayed)
		return []Plot{stepPlot("shiftsteps-wi", "With 50 % reads", rows.Where("part", "WI")), stepPlot("shiftsteps-ri", "With 95 % reads", rows.Where("part", "RI"))}
	},
}

// stepPlot draws the steps that take time, ours and the paper's.
func stepPlot(name, title string, rows Rows) Plot {
	p := Plot{Name: name, Title: "ShiftLock's steps: " + title, X: shift8.axis, Y: Axis{Label: "mean (us)", Log: true}}
	for _, of := range []string{"here", "paper"} {
		for _, x := range [][2]string{{"release_first_us", "an atomic of a release"}, {"writer_message_us", "a writer's wait for writers"}, {"reader_rest_us", "a reader's wait for writers"}} {
			p.Series = append(p.Series, rows.Where("of", of).Line(x[1]+", "+of, "clients", x[0]))
		}
	}
	return p
}

// stepNotes say what explains steps that take longer, or less long, than in the paper.
const (
	busyNote = "the paper puts longer messages with RI down to pressure on the compute nodes, which do 15 M acquisitions a second there: the model's clients cost nothing, and few of their writers meet. "

	messageNote = "a turn of a writer is a message between compute nodes, which takes the model 3.2 us, fitted to MCS with 240 clients, where it takes theirs 2.4 with 80: "
	nextNote    = "a client hands a message to its NIC in no time in the model, so that this is the wait for the message of the next writer, where that has queued and its message is on the way: theirs has the SEND, too. "
	atomicNote  = "in the model an atomic that waits for none takes the same time whatever the number of clients, until the NIC's pipeline is full: "
)

func judgeSteps(rows Rows) (claims []Claim) {
	at := func(part, of, lock string, clients int) Row {
		return rows.Find("part", part, "of", of, "lock", lock, "clients", clients)
	}
	here := func(part string) Rows { return rows.Where("part", part, "of", "here") }
	// beside compares a step with the paper's at each number of clients, and is judged at the last.
	beside := func(part, metric, text, note string, factor float64) Claim {
		a := Along{Param: "clients", Neutral: 1}
		for _, v := range rows.Where("part", part, "lock", delayed).Distinct("clients") {
			a.add(v, Ratio(rows.Find("part", part, "of", "here", "lock", delayed, "clients", v), rows.Find("part", part, "of", "paper", "lock", delayed, "clients", v), metric))
		}
		return Claim{Text: part + ", 240 clients: " + text, Unit: "us", Paper: at(part, "paper", delayed, 240).Value(metric), Sweep: a, Note: note + "over theirs " + a.String()}.
			Near(valueOf(at(part, "here", delayed, 240), metric), factor)
	}
	for _, part := range []string{"WI", "RI"} {
		writers, readers := messageNote, "readers leave by one atomic each: "
		if part == "RI" {
			writers, readers = busyNote, busyNote
		}
		claims = append(claims,
			beside(part, "writer_first_us", "a writer's first atomic", atomicNote, 1.25), beside(part, "reader_first_us", "a reader's first atomic", atomicNote, 1.25),
			beside(part, "release_first_us", "the atomic of a release", atomicNote, 1.25), beside(part, "writer_message_us", "a writer waits for the writer before it", writers, 1.5),
			beside(part, "writer_rest_us", "a writer waits for readers", readers, 1.5), beside(part, "reader_rest_us", "a reader waits for writers", messageNote, 1.5),
			beside(part, "release_message_us", "a release waits for the next writer's message, and notifies it", nextNote, 1.5))
	}
	return append(append(claims, judgeGrowth(at, here)...), judgeTable4(at)...)
}

type rowAt func(part, of, lock string, clients int) Row

// judgeGrowth judges what the paper says of ShiftLock's steps by number of clients.
func judgeGrowth(at rowAt, here func(part string) Rows) []Claim {
	shift := func(part string, clients int) Row { return at(part, "here", delayed, clients) }
	few := shift("WI", 80)
	writers := max(valueOf(few, "writer_message_us"), valueOf(few, "writer_rest_us"))
	steps := func(r Row) string {
		return fmt.Sprintf("with 80 clients a writer waits %s us for the one before it and %s for readers, a reader %s", Figure(r.Value("writer_message_us")), Figure(r.Value("writer_rest_us")), Figure(r.Value("reader_rest_us")))
	}
	return []Claim{
		Claim{Text: "WI: a writer's first atomic with 240 clients over 5", Unit: "x", Paper: 1.22, Note: atomicNote + inWords(here("WI"), delayed, "clients", "writer_first_us")}.Near(Ratio(shift("WI", 240), shift("WI", 5), "writer_first_us"), 1.25),
		Claim{Text: "RI: a writer's first atomic with 240 clients over 5", Unit: "x", Paper: 3.13}.Near(Ratio(shift("RI", 240), shift("RI", 5), "writer_first_us"), 1.25),
		Claim{Text: "WI: a reader's wait for writers with 240 clients over 80", Unit: "x", Paper: 1.43, Note: messageNote + steps(few)}.Near(Ratio(shift("WI", 240), few, "reader_rest_us"), 1.25),
		Claim{Text: "WI, 80 clients: a writer's longest wait over a reader's", Unit: "x", Paper: 0.94, Note: messageNote + steps(few)}.AtMost(writers/valueOf(few, "reader_rest_us"), 1),
		Claim{Text: "240 clients: a reader's wait with RI over that with WI", Unit: "x", Paper: 0.58}.AtMost(Ratio(shift("RI", 240), shift("WI", 240), "reader_rest_us"), 1),
		Claim{Text: "240 clients: a writer's wait for readers with RI over that with WI", Unit: "x", Paper: 73}.AtLeast(Ratio(shift("RI", 240), shift("WI", 240), "writer_rest_us"), 1),
	}
}

// judgeTable4 judges the comparison of locks with 240 clients.
func judgeTable4(at rowAt) []Claim {
	of := func(part, lock string) Row { return at(part, "here", lock, 240) }
	// all is the mean of an acquisition; a lock without shared holders has only writers.
	all := func(r Row, mode string) float64 {
		if r.Value("read_pct") == 0 {
			mode = "writer"
		}
		return valueOf(r, mode+"_first_us") + r.Value(mode+"_message_us") + r.Value(mode+"_rest_us")
	}
	shift, casB, casNB, dslr := of("WI", delayed), of("WI", "cas-backoff"), of("WI", "cas"), of("WI", theirDSLR)
	dslrNote := polling[theirDSLR] + fmt.Sprintf("dslr+ has first atomics of %s us and tries for %s", Figure(of("WI", "dslr+").Value("writer_first_us")), Figure(of("WI", "dslr+").Value("writer_rest_us")))
	casNote := polling["cas"] + "theirs take 38 us each, which no constant of the model gives: docs/baselines.md, the model cx5"
	releases := func(part string, r Row, name string, paper float64, note string) Claim {
		return Claim{Text: part + ": the atomic of a release, " + name, Unit: "us", Paper: paper, Note: note}.Near(valueOf(r, "release_first_us"), 1.25)
	}
	busy := fmt.Sprintf(". Of what the NIC executes dslr:shiftlock takes %s %% with WI, where an atomic waits for nothing, and %s with RI, where it does", Figure(pipeShare(dslr, sim.CX5())), Figure(pipeShare(of("RI", theirDSLR), sim.CX5())))
	waits := func(r Row) float64 { return valueOf(r, "writer_message_us") + valueOf(r, "writer_rest_us") }
	declock := func(part, mode string) Claim {
		ours := all(of(part, "declock"), mode)
		note := fmt.Sprintf("declock does %s Mops where ShiftLock does %s, and fills the NIC, so that its first operation takes %s us in place of %s; it waits for %s us in place of %s",
			Figure(of(part, "declock").Value("mops")), Figure(of(part, delayed).Value("mops")), Figure(of(part, "declock").Value(mode+"_first_us")), Figure(of(part, delayed).Value(mode+"_first_us")),
			Figure(ours-of(part, "declock").Value(mode+"_first_us")), Figure(all(of(part, delayed), mode)-of(part, delayed).Value(mode+"_first_us")))
		return Claim{Own: true, Text: part + ": mean of a " + mode + "'s acquisition, declock's over ShiftLock's", Unit: "x", Note: note}.AtMost(ours/all(of(part, delayed), mode), 1)
	}
	list := []Claim{
		Claim{Text: "WI: CAS with backoff, mean of a writer's acquisition over ShiftLock's", Unit: "x", Paper: 0.874}.Near(all(casB, "writer")/all(shift, "writer"), 1.25),
		Claim{Text: "WI: the same over that of a reader of ShiftLock", Unit: "x", Paper: 7.44, Note: messageNote + "a reader waits for a run of writers"}.Near(all(casB, "reader")/all(shift, "reader"), 1.25),
		Claim{Text: "WI: CAS with backoff, tries after the first", Unit: "us", Paper: 37.23}.Near(valueOf(casB, "writer_rest_us"), 1.5),
		Claim{Text: "WI: the first CAS without backoff over ShiftLock's first atomic", Unit: "x", Paper: 15.39, Note: casNote}.Near(Ratio(casNB, shift, "writer_first_us"), 1.5),
		Claim{Text: "WI: CAS without backoff, tries after the first", Unit: "us", Paper: 412.98, Note: casNote}.Near(valueOf(casNB, "writer_rest_us"), 1.5),
		Claim{Text: "WI: DSLR's first atomic over ShiftLock's", Unit: "x", Paper: 3.10, Note: dslrNote}.Near(Ratio(dslr, shift, "writer_first_us"), 1.25),
		Claim{Text: "WI: DSLR's READs and pauses", Unit: "us", Paper: 75.36, Note: dslrNote}.Near(valueOf(dslr, "writer_rest_us"), 1.5),
		Claim{Text: "RI: ShiftLock's first atomic over DSLR's", Unit: "x", Paper: 2.29, Note: dslrNote}.Near(Ratio(of("RI", delayed), of("RI", theirDSLR), "writer_first_us"), 1.25),
		Claim{Text: "RI: a reader of ShiftLock waits less than one of DSLR, by", Unit: "%", Paper: 91.6, Note: dslrNote}.Near(Cut(of("RI", delayed), of("RI", theirDSLR), "reader_rest_us"), 1.25),
		releases("WI", casB, "CAS with backoff", 2.34, atomicNote), releases("WI", casNB, "CAS without backoff", 37.92, casNote),
		releases("WI", dslr, "DSLR", 7.73, dslrNote+busy), releases("RI", of("RI", theirDSLR), "DSLR", 3.51, dslrNote+busy),
		Claim{Text: "RI: a writer of ShiftLock waits for the one before it and for readers", Unit: "us", Paper: 15.21,
			Note: busyNote + byLock(Rows{of("RI", delayed), of("RI", "declock")}, "writer_message_us", "writer_rest_us", "mops")}.Near(waits(of("RI", delayed)), 1.5),
	}
	return slices.Concat(list, []Claim{declock("WI", "writer"), declock("WI", "reader"), declock("RI", "writer"), declock("RI", "reader")})
}
