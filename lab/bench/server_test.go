package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
)

// Locks whose servers, or clients that they hand locks to, are on other machines in their papers have no faster messages within a node; others have.
func TestFarMessages(t *testing.T) {
	for lock, want := range map[string]string{theirRPC: "LocalWake=3200", "rmarw": "LocalWake=3200", delayed: "LocalWake=3200", slow: "LocalWake=3200", "rmarw" + atOnce: "", "mcs, not delayed": "", "shift-artifact": "", "declock": ""} {
		if m := shiftTxn(lock); m.Tune != want {
			t.Errorf("%s in ShiftLock's transactions: %q", lock, m.Tune)
		}
		wake := Options{}.point(lock, nil, shift4.testbed).Same.(measurand).nic.LocalWake
		if (wake == 3200) != (want != "") {
			t.Errorf("%s in ShiftLock's microbenchmark: %d ns", lock, wake)
		}
	}
	for lock, want := range map[string]string{"ncosed": "LocalWake=1650", manager: "LocalWake=1650", bypass: "LocalWake=1650", oneSlot: "", "declock": ""} {
		if _, m := dslrTxn(lock, 16, 1); m.Tune != want {
			t.Errorf("%s in DSLR's transactions: %q", lock, m.Tune)
		}
	}
	m := Default("ncosed")
	if dslr14.testbed(&m); m.Tune != "LocalWake=1650" {
		t.Errorf("ncosed in DSLR's microbenchmark: %q", m.Tune)
	}
}

// A server has one posting core: more than 8 workers bring nothing. A server on each node is bounded by the workers of all.
func TestManagersScale(t *testing.T) {
	mops := func(name string) float64 {
		r, m := dslrTxn(name, 8, 10)
		r.m, r.trace = m.WithDefaults(), "zipf"
		r.m.Theta, r.m.Locks, r.m.Clients, r.m.Seed, r.m.WarmupNs, r.m.WindowNs = 0, 100_000, 256, 1, fabric.Millisecond, 4*fabric.Millisecond
		got, err := r.run(context.Background(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		return got["mops"]
	}
	// A lock and its release are two requests of 1 us each.
	one, few, many, each := mops("server:1"), mops("server:8"), mops("server:64"), mops(manager)
	if one < 0.45 || one > 0.51 || few < 7*one || many > few || each < 3*many {
		t.Errorf("M transactions/s: %v with one worker, %v with 8, %v with 64, %v with a server of 4 on each of 8 nodes", one, few, many, each)
	}
}

// The baselines of ShiftLock's figures are those of its authors' code: ShiftLock pauses between READs, DSLR and RPC are theirs.
func TestTermsOfShiftLocksAuthors(t *testing.T) {
	locksOf := func(points []Point) string {
		text := ""
		for _, p := range points {
			text += fmt.Sprintf("%+v\n", p.Same)
		}
		return text
	}
	for _, x := range []struct {
		name   string
		points []Point
		want   []string
	}{
		{"shift6", shift6.points(Options{}), []string{"shift-artifact:pause ", "dslr:shiftlock ", "cas-backoff "}},
		{"shift7", shift7.points(Options{}), []string{"shift-artifact:pause ", "dslr:shiftlock ", "cas-backoff ", "rpc:shiftlock "}},
		{"shiftsteps", stepPoints(Options{}), []string{"shift-artifact:pause ", "dslr:shiftlock ", "cas-backoff "}},
		{"shift12", shift12.points(Options{}), []string{"shift-artifact:pause:16 ", "shift-artifact:16 "}},
		{"shift13", expShift13.Points(Options{}), []string{"shift-artifact:pause ", "dslr:shiftlock "}},
		{"tatp", expTATP.Points(Options{}), []string{"shift-artifact:pause ", "dslr:shiftlock ", "cas-backoff ", "rpc:shiftlock "}},
	} {
		text := locksOf(x.points)
		for _, lock := range x.want {
			if !strings.Contains(text, "Lock:"+lock) {
				t.Errorf("%s has no %s", x.name, lock)
			}
		}
		if strings.Contains(text, "Lock:dslr ") && x.name != "shift6" || strings.Contains(text, "Lock:rpc ") {
			t.Errorf("%s has DSLR or RPC on other terms", x.name)
		}
	}
}
