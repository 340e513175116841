package check

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
