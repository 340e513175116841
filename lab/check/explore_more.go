package check

import (
	"strings"

	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/explore"
)

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

// switchedExplorations adds the programs of FissLock, of which the first compute node plays the switch: with a client, or without.
func switchedExplorations(small bool, add func(x Exploration, clients ...string)) {
	x := Exploration{Policy: "fiss", Rounds: 1, Capacity: 2, Version: 27, SentBack: 2}
	add(x, apart2...)
	add(x, "2s 3x", "2x 3x")
	if small {
		return
	}
	add(x, "2s 3s", "2s 2x", "2x 2x", "2s 2s 3x", "2s 2x 3s", "2s 2x 3x", "2x 2x 3s", "2x 2x 3x", "2x 2s 3x 3s")
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
