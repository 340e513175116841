package check

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/lab/picture"
)

// drawnScenarios are short, and of each kind: locks with cancellations and faults, a baseline lock, a store, a tree.
var drawnScenarios = []string{
	`gen=g11 class=chaos seed=3 cns=3 clients=2 mns=1 policy=declock cap=3 ver=27 nic=cx4 scale=100 tear=30 grain=64 locks=2 rounds=4 reads=50 cancel=40 deadline=20 hold=2000 wait=5000 recheck=50000 reset=10000000 detect=20000 late=draw plan="9000 cut cn1 mn0 until 20000; 30000 kill cn2"`,
	`gen=g11 class=restart seed=5 cns=2 clients=2 mns=1 policy=declock cap=2 ver=27 nic=cx4 scale=100 grain=64 locks=1 rounds=4 reads=30 hold=2000 recheck=50000 reset=10000000 late=draw plan="9000 reboot mn0 until 20000"`,
	`gen=g11 class=field seed=4 cns=2 clients=2 mns=1 lock=shift cap=2 ver=27 nic=cx4 scale=100 grain=64 locks=1 rounds=4 reads=50 cancel=30 wait=5000 hold=2000`,
	`gen=g11 class=storeexpiry seed=2 cns=2 clients=2 mns=1 policy=declock cap=2 ver=27 nic=cx4 scale=100 grain=64 skew=5000 rounds=6 reads=50 think=2500 keys=2 values=3000 second=5000 expiring=50 late=draw`,
	`gen=g11 class=tree seed=2 cns=2 clients=2 mns=1 policy=declock cap=2 ver=27 nic=cx4 scale=100 grain=64 rounds=8 keys=6 tree=1 late=draw`,
	`gen=g14 class=promote seed=5 cns=2 clients=2 mns=1 copies=2 spares=1 policy=declock cap=2 ver=27 nic=cx4 scale=100 grain=64 locks=1 rounds=6 reads=30 hold=2000 recheck=50000 reset=10000000 detect=2000 news=3000 late=draw plan="9000 promote mn0; 20000 fence mn1; 30000 reboot mn1 until 40000; 60000 backup mn0 mn1 until 90000"`,
}

// page returns the page of a picture, which must need nothing else.
func page(t *testing.T, p *picture.Trace) string {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	if m := regexp.MustCompile(`(?i)(src|href)=|url\(|@import|https?://[^w]`).FindString(strings.ReplaceAll(b.String(), "http://www.w3.org/2000/svg", "")); m != "" {
		t.Errorf("the page asks for something else: %q", m)
	}
	return b.String()
}

// A run that is drawn is the same run; the picture has what clients report, and words taken apart.
func TestDrawnRunsAreTheSame(t *testing.T) {
	want := [][]string{
		{"cn2 crashes", "cut cn1 → mn0 begins", "cut cn1 → mn0 ends", "FAA lock 0: qhead=", "Grant{lock 0 index", "entry[", "holds lock 1 exclusive"},
		{"mn0 restarts, in a new epoch", "reboot mn0 begins", "holds lock 0 exclusive"},
		{"RdrCnt=", "TailPtr=", "Successor{lock 0 of cn"},
		{"begins set key", "slot[", "holds bucket 0 exclusive", "CAS bucket 0: slot[", "object at 0x"},
		{"begins set k", "has scanned the tree", "holds node 0 exclusive", "alive used=", "records &#34;k"},
		{"mn0 is served in another epoch, term 2", "promote mn0", "fence mn1", "(term 1, index", "(term 2, index", "in term 2"},
	}
	for i, line := range drawnScenarios {
		s, err := ParseScenario(line)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := Run(s)
		if err != nil {
			t.Fatal(err)
		}
		drawn, p, err := Picture(s)
		if err != nil {
			t.Fatal(err)
		}
		if plain.Bad() || drawn.Hash != plain.Hash || drawn.Events != plain.Events {
			t.Errorf("%s: hash %#x, %d events when drawn, else %#x, %d; %v", line, drawn.Hash, drawn.Events, plain.Hash, plain.Events, plain.Violations)
		}
		text := page(t, p)
		for _, w := range want[i] {
			if !strings.Contains(text, w) {
				t.Errorf("%s: the picture of %d rows does not have %q", line, p.Len(), w)
			}
		}
	}
}

// The picture has the objection where it is raised.
func TestPictureHasTheObjection(t *testing.T) {
	s, err := ParseScenario(drawnScenarios[2])
	if err != nil {
		t.Fatal(err)
	}
	s.PatienceNs = 1 // all are stuck at once
	r, p, err := Picture(s)
	if err != nil {
		t.Fatal(err)
	}
	text := page(t, p)
	if !r.Bad() || !strings.Contains(text, `class="row objection bad"`) || !strings.Contains(text, `id="objection"`) ||
		!strings.Contains(text, "the oracle &#34;"+r.Violations[0].Judge+"&#34; objects") {
		t.Errorf("objections %v are not in the picture", r.Violations)
	}
}

// Reports take apart the words of the locks of trees and stores, too.
func TestReportsDecodeLocksOfTrees(t *testing.T) {
	for i, what := range map[int]string{3: "   lock of bucket ", 4: "   lock of node "} {
		s, err := ParseScenario(drawnScenarios[i])
		if err != nil {
			t.Fatal(err)
		}
		r, err := run(s, true)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(r.Last, func(h ClientHistory) bool {
			return slices.ContainsFunc(h.Lines, func(l string) bool { return strings.Contains(l, what) && strings.Contains(l, "qhead=") })
		}) {
			t.Errorf("no line has %q: %v", what, r.Last)
		}
	}
}

// A schedule that is drawn is the same schedule.
func TestDrawnSchedulesAreTheSame(t *testing.T) {
	r, err := ParseRerun("declock+no-train [1s 2s 3x] x1, 4 entries, 27 version bits; 0.1,3.1")
	if err != nil {
		t.Fatal(err)
	}
	plain := r.Run()
	drawn, p := r.Picture()
	if plain.Outcome.Err != nil || drawn.Outcome.Final != plain.Outcome.Final || !slices.Equal(drawn.Outcome.Trace, plain.Outcome.Trace) {
		t.Errorf("final state %#x when drawn, else %#x; %v", drawn.Outcome.Final, plain.Outcome.Final, plain.Outcome.Err)
	}
	text := page(t, p)
	for _, w := range []string{"holds lock shared", "holds lock exclusive", "Grant{lock index", ">step<"} {
		if !strings.Contains(text, w) {
			t.Errorf("the picture does not have %q", w)
		}
	}
}
