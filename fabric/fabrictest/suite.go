package fabrictest

import "testing"

// A test is one sentence of the contract.
type test struct {
	name string
	mem  []uint64 // nil: one memory node of defaultMem bytes
	cns  int      // 0: 1

	replicated bool // number 0 has a backup on memory node 1

	needs func(e *env)    // skips the test where the cluster cannot do what it needs; may be nil
	run   func(e *env)    // the test, or
	solo  func(c *client) // a body for one client, on node 0
}

const defaultMem = 1 << 20

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"Operations", opTests}, {"Chains", chainTests}, {"Errors", errorTests},
		{"Concurrency", concurrencyTests}, {"Messages", messageTests}, {"Waits", waitTests},
		{"Abandon", abandonTests}, {"Buffers", bufferTests}, {"Nodes", nodeTests},
		{"Faults", faultTests}, {"Local", localTests}, {"Fill", fillTests}, {"Replicas", replicated(replicaTests)}, {"Costs", costTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) { runTest(t, h, tt) })
			}
		})
	}
}

// replicated makes tests ones of a cluster in which number 0 has a backup.
func replicated(tests []test) (list []test) {
	for _, tt := range tests {
		tt.replicated, tt.mem = true, []uint64{defaultMem, defaultMem}
		list = append(list, tt)
	}
	return list
}

func runTest(t *testing.T, h Harness, tt test) {
	cfg := Config{Mem: tt.mem, CNs: max(tt.cns, 1)}
	if cfg.Mem == nil {
		cfg.Mem = []uint64{defaultMem}
	}
	start := h.Start
	if tt.replicated {
		r, ok := h.(ReplicaHarness)
		if !ok {
			t.Skip("this harness has no replicas")
		}
		start = r.StartReplicated
	}
	cl := start(t, cfg)
	defer cl.Close()
	e := &env{t, cl}
	if tt.needs != nil {
		tt.needs(e)
	}
	if tt.solo != nil {
		e.solo(tt.solo)
		return
	}
	tt.run(e)
	cl.Wait()
}
