package bench

import "fmt"

// What explains claims that do not come out, by figures of the same run.

// handsChanged says how often locks change hands under two locks: what bounds throughput is the time of a turn at the hottest one.
func handsChanged(decLock, shift Row, name string) string {
	return fmt.Sprintf("the hottest lock bounds throughput. With %s and %s %% reads it changes hands %s times an acquisition between nodes and %s within with %s, and %s times with ShiftLock: "+
		"its readers wait for a run of writers, and then all go", clientsOf(decLock), decLock.Text("read_pct"),
		Figure(decLock.Value("remote_handovers")), Figure(decLock.Value("local_handovers")), name, Figure(shift.Value("remote_handovers")))
}

func clientsOf(r Row) string { return r.Text("clients") + " clients" }

// handovers says how many handovers between nodes there are a second where all write, and what lies in one.
func handovers(decLock, shift Row, name string) string {
	rate := func(r Row) string { return Figure(r.Value("mops") * r.Value("remote_handovers")) }
	return fmt.Sprintf("; with writes only there are %s M handovers between nodes a second with %s, and %s M with ShiftLock: a release is an FAA and then a message, and ShiftLock's the message alone "+
		"(trains spare that FAA: see beyond)", rate(decLock), name, rate(shift))
}

// shares says why a lock with readers that wait for their turn gains more from reads than one whose readers retry.
func shares(tf, cas Rows) string {
	at := func(rs Rows, reads int, metric string) string {
		return Figure(rs.Find("read_pct", reads).Value(metric))
	}
	return fmt.Sprintf("with 90 %% reads CASLock still retries %s times an acquisition (writes only: %s), though readers share the lock; with DecLock-TF it changes hands %s times (%s)",
		at(cas, 90, "retries_per_acquire"), at(cas, 0, "retries_per_acquire"), at(tf, 90, "remote_handovers"), at(tf, 0, "remote_handovers"))
}
