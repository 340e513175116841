package oracle_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
)

// Histories as stories: testdata/*.txt. Each command is the judge, its input a
// history, and its output what the judge objects to. A history is events as
// Event.String prints them, and effects: "TIME CLIENT faa LOCK OLD NEW".
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var j oracle.Judge
			switch d.Cmd {
			case "exclusion":
				j = oracle.NewExclusion()
			case "tokens":
				j = oracle.NewTokens()
			case "data":
				j = oracle.NewCells()
			case "lost-grant":
				j = oracle.NewLostGrants()
			case "queue-order":
				j = oracle.NewQueueOrder(2)
			case "train-order":
				j = oracle.NewTrainOrder(2)
			case "local-order":
				j = oracle.NewLocalOrder()
			case "overtaking":
				j = oracle.NewOvertaking(1)
			case "resets":
				j = oracle.NewResets(2, 100)
			default:
				d.Fatalf(t, "no judge %s", d.Cmd)
			}
			court := oracle.NewCourt(j)
			for line := range strings.Lines(d.Input) {
				tell(t, court, strings.TrimSpace(line))
			}
			court.End()
			if len(court.Violations()) == 0 {
				return "good\n"
			}
			var b strings.Builder
			for _, v := range court.Violations() {
				fmt.Fprintln(&b, v)
			}
			return b.String()
		})
	})
}

func tell(t *testing.T, c *oracle.Court, line string) {
	t.Helper()
	var x oracle.Effect
	var cn uint8
	var index int
	var head, size, writers, reset uint64
	var verb string
	// "10 cn1/1 faa head size writers reset acquire-shared"
	n, _ := fmt.Sscanf(line, "%d cn%d/%d faa %d %d %d %d %s", &x.Time, &cn, &index, &head, &size, &writers, &reset, &verb)
	if n == 8 {
		// c is 2: counts of 3 bits, at 8 and 11; the head from 14.
		x.Client, x.Lock = fabric.Client(fabric.CNID(cn), index), fabric.At(0, 0x40)
		x.Old = head<<14 | size<<11 | writers<<8 | reset
		x.New = x.Old + map[string]uint64{
			"shared": 1 << 11, "exclusive": 1<<11 + 1<<8,
			"release-shared": 1<<14 - 1<<11, "release-exclusive": 1<<14 - 1<<11 - 1<<8, "reset": 1, "end-reset": ^uint64(0),
			"release-train": 3<<14 - 3<<11 - 2<<8, // of three members, two of them writers
		}[verb]
		c.Effect(&x)
		return
	}
	e := parseEvent(t, line)
	if got := e.String(); got != line {
		t.Errorf("event %q prints as %q", line, got)
	}
	c.Event(&e)
}

func TestCheckHeader(t *testing.T) {
	for _, x := range []struct {
		c    uint8
		word uint64
		good bool
	}{
		{2, 0, true},
		{2, 77 << 14, true},
		{2, 77<<14 | 1<<11, false},
		{2, 77<<14 | 1<<8, false},
		{2, 77<<14 | 3, false},
		{3, 77 << 16, true},
		{3, 1 << 15, false},
	} {
		if got := oracle.CheckHeader(x.c, x.word); (got == "") != x.good {
			t.Errorf("c %d, header %#x: %q, good is %v", x.c, x.word, got, x.good)
		}
	}
	want := oracle.Header{Head: 9, Size: 5, Writers: 4, Reset: 200}
	if got := oracle.DecodeHeader(2, 9<<14|5<<11|4<<8|200); got != want {
		t.Errorf("decoded %+v, want %+v", got, want)
	}
}

// A crashed node leaves a ticket for each of its clients, and a reset of its own.
func TestCheckHeaderOfCrashedNode(t *testing.T) {
	var dead fabric.CNSet
	dead.Add(3)
	for _, x := range []struct {
		word uint64
		good bool
	}{
		{77 << 14, true}, {77<<14 | 1<<11, true}, {77<<14 | 1<<11 | 1<<8, true}, {77<<14 | 5<<11 | 3, true},
		{77<<14 | 2<<11, false}, {77<<14 | 1<<8, false}, {77<<14 | 4, false},
	} {
		if got := oracle.CheckHeaderOf(2, x.word, dead, 1); (got == "") != x.good {
			t.Errorf("header %#x: %q, good is %v", x.word, got, x.good)
		}
	}
}

// A storeOp of a test: it begins at one tick and ends at another.
type storeOp struct {
	begin, end int // end 0: never
	oracle.StoreOp
}

func op(begin, end int, method, arg string, r oracle.StoreResult, value string) storeOp {
	return storeOp{begin, end, oracle.StoreOp{Client: begin, Method: method, Key: "k", Arg: arg, Result: r, Value: value}}
}

func (o storeOp) cas(unique, got uint64) storeOp {
	o.Unique, o.CAS = unique, got
	return o
}

func TestStoreHistory(t *testing.T) {
	const d, nf, ex, un = oracle.Done, oracle.NotFound, oracle.Exists, oracle.Unknown
	for _, x := range []struct {
		name string
		good bool
		ops  []storeOp
	}{
		{"what was set is read", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "get", "", d, "a").cas(0, 7)}},
		{"stale read", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "set", "b", d, ""), op(5, 6, "get", "", d, "a")}},
		{"read of either while it is set", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 6, "set", "b", d, ""), op(4, 5, "get", "", d, "a")}},
		{"back in time", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 8, "set", "b", d, ""), op(4, 5, "get", "", d, "b"), op(6, 7, "get", "", d, "a")}},
		{"lost append", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 6, "append", "x", d, ""), op(4, 5, "append", "y", d, ""), op(7, 8, "get", "", d, "ay")}},
		{"both appends", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 6, "append", "x", d, ""), op(4, 5, "append", "y", d, ""), op(7, 8, "get", "", d, "axy")}},
		{"unknown may have happened", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 0, "set", "b", un, ""), op(4, 5, "get", "", d, "b")}},
		{"unknown may happen later", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 0, "set", "b", un, ""), op(4, 5, "get", "", d, "a"), op(6, 7, "get", "", d, "b")}},
		{"unknown happens once", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 0, "append", "b", un, ""), op(4, 5, "get", "", d, "abb")}},
		{"two adds succeed", false, []storeOp{op(1, 3, "add", "a", d, ""), op(2, 4, "add", "b", d, "")}},
		{"one add succeeds", true, []storeOp{op(1, 3, "add", "a", ex, ""), op(2, 4, "add", "b", d, "")}},
		{"deleted and there", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "delete", "", d, ""), op(5, 6, "get", "", d, "a")}},
		{"deleted", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "delete", "", d, ""), op(5, 6, "replace", "b", nf, "")}},
		{"lost incr", false, []storeOp{op(1, 2, "set", "5", d, ""), op(3, 5, "incr", "1", d, "6"), op(4, 6, "incr", "1", d, "6")}},
		{"both incrs", true, []storeOp{op(1, 2, "set", "5", d, ""), op(3, 5, "incr", "1", d, "7"), op(4, 6, "incr", "1", d, "6")}},
		{"decr pads", true, []storeOp{op(1, 2, "set", "10", d, ""), op(3, 4, "decr", "1", d, "9"), op(5, 6, "get", "", d, "9 ")}},
		{"incr of a word", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "incr", "1", oracle.NotNumber, "")}},
		{"two cas of one version", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "get", "", d, "a").cas(0, 7),
			op(5, 7, "cas", "b", d, "").cas(7, 0), op(6, 8, "cas", "c", d, "").cas(7, 0)}},
		{"cas of a version that is gone", true, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "get", "", d, "a").cas(0, 7),
			op(5, 6, "set", "b", d, ""), op(7, 8, "cas", "c", ex, "").cas(7, 0)}},
		{"cas succeeds though changed", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "get", "", d, "a").cas(0, 7),
			op(5, 6, "set", "a", d, ""), op(7, 8, "cas", "c", d, "").cas(7, 0)}},
		{"unique changes by itself", false, []storeOp{op(1, 2, "set", "a", d, ""), op(3, 4, "get", "", d, "a").cas(0, 7), op(5, 6, "get", "", d, "a").cas(0, 8)}},
	} {
		t.Run(x.name, func(t *testing.T) { judgeStore(t, x.good, x.ops) })
	}
}

// judgeStore has a history judged, of ticks below 10.
func judgeStore(t *testing.T, good bool, ops []storeOp) {
	t.Helper()
	var h oracle.StoreHistory
	open := map[int]*oracle.StoreOp{}
	for tick := 1; tick < 10; tick++ {
		for i, o := range ops {
			if o.begin == tick {
				open[i] = h.Begin(o.StoreOp)
			}
			if o.end == tick {
				open[i].Times = o.Times
				h.End(open[i])
			}
		}
	}
	wrong, undecided := h.Check(time.Second)
	if (len(wrong) == 0) != good || undecided != 0 {
		t.Errorf("good is %v, found %v, %d undecided", good, wrong, undecided)
	}
}
