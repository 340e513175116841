package main

import (
	"strings"
	"testing"
)

// A memory node is drained, which another number is served by and has a copy of, and gets its share again by a rebalance. What cannot be is refused.
func TestMovesOfCopies(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1", "--mns", "3", "--replicas", "2")
	whole := []string{`mn0 +mn0 +yes +mn\d in sync +2 of 2 `, `mn1 +mn1 +yes +mn\d in sync +2 of 2 `, `mn2 +mn2 +yes +mn\d in sync +2 of 2 `}
	w.shows(at, whole...)
	mn := func(args ...string) []string { return append(append([]string{"mn"}, args...), at...) }
	w.run(0, mn("rebalance")...) // where copies are at first depends on who came when
	if out, _ := w.run(0, mn("rebalance")...); out != "nothing is to be moved\n" {
		t.Errorf("a rebalance of what is in balance: %s", out)
	}
	drain := append([]string{"mn", "drain"}, append(append([]string{}, at...), "mn1")...)
	if out, _ := w.run(0, drain...); !strings.HasSuffix(out, "mn1 has no copies: stop it now\n") || !strings.Contains(out, "move mn1 to mn") {
		t.Errorf("drain: %s", out)
	}
	w.shows(at, `mn0 +mn0 +yes +mn2 in sync +2 of 2 `, `mn1 +mn[02] +yes +mn[02] in sync +2 of 2 `, `mn2 +mn2 +yes +mn0 in sync +2 of 2 `)
	if _, stderr := w.run(5, append(append([]string{"mn", "drain"}, at...), "mn0")...); !strings.Contains(stderr, "no memory node has room") {
		t.Errorf("a second of three is drained: %s", stderr)
	}
	w.run(0, mn("rebalance")...)
	w.shows(at, whole...)
	for code, args := range map[int][]string{19: {"drain", "mn7"}, 2: {"drain"}, 4: {"abandon", "mn0"}} {
		w.run(code, append(append([]string{"mn", args[0]}, at...), args[1:]...)...)
	}
	w.run(19, append(mn("adopt", "--from", "mn1"), "mn0")...) // it does not wait
	if out, stderr := w.run(4, append(append([]string{"mn", "abandon", "--force"}, at...), "mn0")...); out != "give mn0 up\n" || !strings.Contains(stderr, "a replica in sync is up") {
		t.Errorf("a number whose copies are there is given up: %s%s", out, stderr)
	}
	w.down(up)
}
