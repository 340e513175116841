package hier

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
)

// The list in doc.go has exactly the transitions of the code, in their order.
func TestDiagram(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t([a-z]+ --[a-z ]+--> [a-z]+)  +\S`)
	var drawn, legal []string
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		drawn = append(drawn, m[1])
	}
	for _, tr := range Transitions() {
		legal = append(legal, tr.String())
	}
	slices.Sort(drawn)
	slices.Sort(legal)
	if !slices.Equal(drawn, legal) {
		t.Errorf("doc.go draws\n%s\nand the code has\n%s", strings.Join(drawn, "\n"), strings.Join(legal, "\n"))
	}
}

// Each state is reached, has a way to idle, and has no two transitions by one event.
func TestTransitionsAreAMachine(t *testing.T) {
	seen := map[[2]int]bool{}
	for _, tr := range transitions {
		key := [2]int{int(tr.from), int(tr.event)}
		if seen[key] {
			t.Errorf("%v is not the only one by this event", tr)
		}
		seen[key] = true
	}
	closure := func(from state, step func(Transition) (a, b state)) (all []state) {
		all = []state{from}
		for i := 0; i < len(all); i++ {
			for _, tr := range transitions {
				if a, b := step(tr); a == all[i] && !slices.Contains(all, b) {
					all = append(all, b)
				}
			}
		}
		return all
	}
	if n := len(closure(idle, func(tr Transition) (a, b state) { return tr.from, tr.to })); n != int(numStates) {
		t.Errorf("%d states are reached, of %d", n, numStates)
	}
	if n := len(closure(idle, func(tr Transition) (a, b state) { return tr.to, tr.from })); n != int(numStates) {
		t.Errorf("%d states can end, of %d", n, numStates)
	}
}

// A step that is not legal panics, and changes nothing. One that is reports itself.
func TestIllegalStep(t *testing.T) {
	table := NewTable(Policy{})
	var took []Transition
	table.OnTransition = func(tr Transition) { took = append(took, tr) }
	for s := range numStates {
		for e := range numEvents {
			legal := slices.ContainsFunc(transitions, func(tr Transition) bool { return tr.from == s && tr.event == e })
			x := &local{relation: relation{state: s}}
			x.ticket.Lock = fabric.At(0, 4096)
			panicked := func() (p bool) {
				defer func() { p = recover() != nil }()
				table.step(x, e)
				return false
			}()
			if panicked == legal || panicked && x.state != s {
				t.Errorf("%v, %v: legal %v, panicked %v, and is %v", s, e, legal, panicked, x.state)
			}
		}
	}
	if len(took) != len(transitions) {
		t.Errorf("%d steps reported, of %d", len(took), len(transitions))
	}
}

// A reset waits from the freeze until an event that ends the node's part, and hears of that once.
func TestThaw(t *testing.T) {
	table := NewTable(Policy{})
	for _, tr := range transitions {
		x := &local{relation: relation{state: tr.from}}
		if slices.Contains(transitions, Transition{tr.from, evFreeze, tr.from}) {
			table.freeze(x, 7)
		}
		frozen := x.frozen
		if frozen && tr.event == evQuit {
			x.frozen = false // the owner of a frozen ticket fails: Locker.await
		}
		thawed := table.step(x, tr.event)
		if thawed != (frozen && tr.event.thaws()) {
			t.Errorf("%v of a lock that is frozen (%v): thawed %v, frozen %v", tr, frozen, thawed, x.frozen)
		}
		if x.frozen && !slices.Contains(transitions, Transition{x.state, evFreeze, x.state}) {
			t.Errorf("%v leaves a lock frozen that cannot be", tr)
		}
	}
}
