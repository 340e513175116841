package bench

import "fmt"

var expSpin = &Experiment{
	Name: "spin", Title: "What operations wait for beside clients that spin: CASLock at 256 clients",
	Paper: "Not in the paper, which says that retries saturate the NIC and slow all operations down. In the model an operation waits behind others' CASes at the NIC, whose queue of atomics is full, " +
		"or at its own queue pair, behind the CAS of the other client of its core: each alone is enough.",
	Columns: []string{"lock", "atomic_queue", "core_clients", "mops", "p50_us", "p99_us", "acquire_p50_us", "data_p50_us", "release_p50_us", "retries_per_acquire"},
	Points: func(o Options) []Point {
		var points []Point
		for _, v := range spinVariants {
			points = append(points, o.point("cas", nil, func(m *Micro) { m.Tune, m.CoreClients = fmt.Sprintf("AtomicQueue=%d", v.queue), v.clients },
				Param{"atomic_queue", v.queue}, Param{"core_clients", v.clients}))
		}
		return points
	},
	Judge: judgeSpin,
}

// spinVariants are the model's NIC and cores, each of the two without its limit, and both.
var spinVariants = []struct{ queue, clients int }{{16, 2}, {1024, 2}, {16, 1}, {1024, 1}}

func judgeSpin(rows Rows) []Claim {
	at := func(queue, clients int) Row {
		return rows.Find("atomic_queue", queue, "core_clients", clients)
	}
	data := func(r Row) string { return Figure(r.Value("data_p50_us")) }
	note := fmt.Sprintf("median of a data access: %s us in the model, %s with an atomic queue of 1,024, %s with a queue pair for each client, %s with both", data(at(16, 2)), data(at(1024, 2)), data(at(16, 1)), data(at(1024, 1)))
	return []Claim{
		Claim{Own: true, Text: "an atomic queue of 1,024 in place of 16 changes CASLock's throughput by a factor of", Unit: "x", Note: note}.Within(Ratio(at(1024, 2), at(16, 2), "mops"), 0.75, 1.33),
		Claim{Own: true, Text: "a queue pair for each client changes it by a factor of", Unit: "x", Note: note}.Within(Ratio(at(16, 1), at(16, 2), "mops"), 0.75, 1.33),
		Claim{Own: true, Text: "with both, a data access takes of what it takes in the model", Unit: "x", Note: note}.AtMost(Ratio(at(1024, 1), at(16, 2), "data_p50_us"), 0.2),
	}
}
