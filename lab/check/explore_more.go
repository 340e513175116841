package check

import (
	"strings"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/explore"
)

// Clients of a node each. In first3 the first is the one that is cancelled, or whose node crashes: with a client that comes behind it, it
// leaves its ticket to its agent.
var (
	apart2 = []string{"1s 2s", "1s 2x", "1x 2x"}
	apart3 = []string{"1s 2s 3s", "1s 2s 3x", "1s 2x 3x", "1x 2x 3x"}
	first3 = []string{"1s 2s 3s", "1s 2s 3x", "1s 2x 3x", "1x 2s 3s", "1x 2s 3x", "1x 2x 3x"}
)

// Explorations lists the programs that are explored: small, or all, or those
// of a name that contains match.
func Explorations(small bool, match string) []Exploration {
	var list []Exploration
	add := func(x Exploration, clients ...string) {
		for _, c := range clients {
			x.Clients = c
			if (x.Policy == "declock-tf" || x.Policy == "declock-pf") && !x.together() {
				continue // the same as declock without trains: what they differ in is how clients of one node go on
			}
			if strings.Contains(x.String(), match) {
				list = append(list, x)
			}
		}
	}
	together2 := []string{"1s 1s", "1s 1x", "1x 1x"}
	first2 := []string{"1s 2s", "1s 2x", "1x 2s", "1x 2x"}
	mixed3 := []string{"1s 1s 2x", "1s 1x 2s", "1s 1x 2x", "1x 1x 2s", "1x 1x 2x"}
	together3 := []string{"1s 1s 1x", "1s 1x 1x", "1x 1x 1x"}
	for _, p := range []string{"cql", "declock-tf", "declock-pf", "declock+no-train"} {
		wide := Exploration{Policy: p, Rounds: 1, Capacity: 2, Version: 27}
		add(wide, apart2...)
		add(wide, apart3...)
		add(wide, together2...)
		if !small {
			add(wide, mixed3...)
			add(wide, together3...)
		}
		wrap := Exploration{Policy: p, Rounds: 2, Capacity: 1, Version: 27}
		add(wrap, apart2...)
		wears := Exploration{Policy: p, Rounds: 1, Capacity: 1, Version: 2, Used: 3} // the fifth index is of a round that is never used
		add(wears, apart2...)
		cancel := wide
		cancel.Cancel = true
		add(cancel, first2...)
		crash := wide
		crash.Crashes = 1
		add(crash, first2...)
		news := crash
		news.News = true
		add(news, first2...)
		if !small {
			add(news, first3...)
			wrap.Capacity = 2
			wrap.Rounds = 3
			add(wrap, apart2...)
			wears.Rounds = 2
			add(wears, apart2...)
			wears.Rounds, wears.Capacity, wears.Used = 1, 2, 7
			add(wears, apart3...)
			add(cancel, first3...)
			add(cancel, together2...)
			add(cancel, "1s 1x 2x", "1x 1x 2x")
			add(crash, first3...)
			add(crash, "1x 1x 2x", "1s 1x 2x")
		}
	}
	baselineExplorations(small, add)
	updateExplorations(small, add)
	trainExplorations(small, add)
	failoverExplorations(small, add)
	nearExplorations(small, add)
	switchedExplorations(small, add)
	netLockExplorations(small, add)
	if !small {
		failureExplorations(add)
	}
	return list
}

// trainExplorations adds the programs of trains (docs/trains.md): the queue has room for one of all clients but the first.
func trainExplorations(small bool, add func(x Exploration, clients ...string)) {
	x := Exploration{Policy: "declock", Rounds: 1, Capacity: 3, Version: 27}
	// In programs of four the first waits in any place, too.
	three, four := []string{"1x 2x 3x", "1s 2x 3x"}, []string{"1x 2x 3x 4s", "1s 2s 3x 4x", "1s 2x 3x 4x"}
	add(x, "1x 2x 3x")
	if small {
		x.Cut = OneWay
		add(x, "1x 2x 3x")
		return
	}
	add(x, "1s 2x 3x")
	add(x, four...)
	for _, change := range []func(x *Exploration){
		func(x *Exploration) { x.Cancel = true },
		func(x *Exploration) { x.Crashes = 1 },
		func(x *Exploration) { x.Crashes, x.News = 1, true },
		func(x *Exploration) { x.Reset = true },
		func(x *Exploration) { x.Restart = true },
		func(x *Exploration) { x.Cut = OneWay },
		func(x *Exploration) { x.Cut = BothWays },
	} {
		x := x
		change(&x)
		add(x, three...)
		add(x, four...)
	}
	x.Rounds, x.Capacity = 2, 2
	add(x, "1x 2x 3x")
	cut := Exploration{Policy: "declock+no-train", Rounds: 1, Capacity: 2, Version: 27}
	for cut.Cut = OneWay; cut.Cut <= BothWays; cut.Cut++ {
		add(cut, "1x 2x", "1s 2x", "1x 2x 3x", "1s 2x 3x")
	}
}

// baselineExplorations adds the programs of the baseline locks.
func baselineExplorations(small bool, add func(x Exploration, clients ...string)) {
	for i := range baselineLocks {
		if c := baselineLocks[i].class; c == Switched || c == NetLocked || baselineLocks[i].name == "fiss:local" { // see switchedExplorations
			continue
		}
		x := Exploration{Policy: baselineLocks[i].name, Rounds: 1, Capacity: 2, Version: 27}
		baselineProgram(small, add, x)
		if x.Policy == "ncosed" {
			x.Second = true
			baselineProgram(small, add, x)
		}
	}
}

// baselineProgram adds the programs of a baseline lock.
func baselineProgram(small bool, add func(x Exploration, clients ...string), x Exploration) {
	add(x, apart2...)
	if !small {
		add(x, apart3...)
		x.Rounds = 2
		add(x, apart2...)
		x.Rounds, x.Cancel = 1, true
		add(x, apart2...)
		add(x, first3...)
	}
}

// nearExplorations adds the programs of the asymmetric locks. The budgets are 1 of the local cohort, and 2 of the remote one.
func nearExplorations(small bool, add func(x Exploration, clients ...string)) {
	for _, name := range []string{"qplock", "alock"} {
		x := Exploration{Policy: name, Rounds: 1, Capacity: 2, Version: 27, Near: 1}
		add(x, "1x 2x")
		if small {
			continue
		}
		add(x, "1x 2x 3x")
		cancel := x
		cancel.Cancel = true
		add(cancel, "1x 2x", "1x 2x 3x")
		x.Near = 2
		add(x, "1x 2x 3x", "1x 2x 3x 4x")
		x.Rounds, x.Near = 2, 1
		add(x, "1x 2x")
		x.Rounds, x.Near, x.Cancel = 1, 2, true
		add(x, "1x 2x 3x")
	}
}

// switchedExplorations adds the programs of FissLock, of which the first compute node plays the switch: with a client, or without; or whose locks are at compute nodes.
func switchedExplorations(small bool, add func(x Exploration, clients ...string)) {
	x := Exploration{Policy: "fiss", Rounds: 1, Capacity: 2, Version: 27, SentBack: 2}
	add(x, apart2...)
	add(x, "2s 3x", "2x 3x")
	local := x
	local.Policy = "fiss:local"
	add(local, apart2...)
	if small {
		return
	}
	add(x, "2s 3s", "2s 2x", "2x 2x", "2s 2s 3x", "2s 2x 3s", "2s 2x 3x", "2x 2x 3s", "2x 2x 3x", "2x 2s 3x 3s")
	add(local, "1s 1x", "1x 1x", "1s 2s 3x", "1x 2x 3x")
	for _, cancel := range []Exploration{x, local} {
		cancel.Cancel = true
		add(cancel, "2s 3s", "2s 3x", "2x 3s", "2x 3x")
	}
	for _, again := range []Exploration{x, local} {
		again.Rounds = 2
		add(again, "2s 3s", "2s 3x", "2x 3x")
	}
	x.Crashes = 1 // the machines that are left recover
	add(x, "2x 3x")
}

// netLockExplorations adds the programs of NetLock, of which the first compute node plays the switch, and is the server. Queues have two entries: of three clients one may wait at the server.
func netLockExplorations(small bool, add func(x Exploration, clients ...string)) {
	x := Exploration{Policy: "netlock", Rounds: 1, Capacity: 2, Version: 27}
	add(x, apart2...)
	add(x, "2s 3x", "2x 3x")
	if small {
		return
	}
	add(x, "2s 3s", "2s 2x", "2x 2x", "2x 3s 3s", "2x 2s 3s", "2s 3s 4x", "2x 3x 4x")
	x.Cancel = true
	add(x, "2s 3s", "2s 3x", "2x 3s", "2x 3x")
	x.Cancel, x.Rounds = false, 2
	add(x, "2s 3s", "2s 3x", "2x 3x")
}

// failureExplorations adds the programs of resets whose leaders crash, and of a memory node that restarts.
func failureExplorations(add func(x Exploration, clients ...string)) {
	for _, p := range []string{"cql", "declock+no-train"} {
		crash := Exploration{Policy: p, Rounds: 1, Capacity: 2, Version: 27, Crashes: 1}
		reset, restart := crash, crash
		reset.Reset, restart.Restart, restart.Crashes = true, true, 0
		add(reset, "1x 2x", "1s 2x", "1s 2x 3x", "1x 2x 3x")
		add(restart, "1x 2x", "1s 2x", "1s 2x 3x", "1x 2x 3x")
		crash.Crashes, reset.Crashes, restart.Crashes = 2, 2, 1
		add(crash, "1x 2s 3s", "1s 2x 3x", "1x 2x 3x")
		add(reset, "1s 2x 3s", "1x 2x 3x")
		add(restart, "1x 2x")
	}
}

// symmetries tells exploration which clients differ by their names only: those of the same node and mode, and
// those of the same mode that are alone on their nodes. The first, to which something may happen, is none of them.
func (x Exploration) symmetries(c *explore.Cluster, alike map[string][]*sim.Task) {
	words := strings.Fields(x.Clients)
	for _, mode := range []string{"s", "x"} {
		var alone []*sim.Task
		for _, w := range words {
			if tasks := alike[w]; strings.HasSuffix(w, mode) && strings.Count(x.Clients, w[:1]) == 1 {
				alone = append(alone, tasks...)
			} else if strings.HasSuffix(w, mode) && len(tasks) > 1 && tasks[1] != nil {
				c.InOrder(tasks...)
			}
		}
		if len(alone) > 1 {
			c.InOrder(alone...)
		}
	}
}

// cns returns how many compute nodes there are.
func (x *Exploration) cns() (n int) {
	for _, who := range strings.Fields(x.Clients) {
		n = max(n, int(who[0]-'0'))
	}
	return n
}
