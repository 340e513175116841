package bench

import "fmt"

// The core workloads of YCSB (Cooper et al., SoCC'10). F's read-modify-write compares before it puts.
var ycsbMixes = []Mix{
	{Name: "A", Read: 50, Update: 50},
	{Name: "B", Read: 95, Update: 5},
	{Name: "C", Read: 100},
	{Name: "D", Read: 95, Insert: 5, Latest: true},
	{Name: "E", Scan: 95, Insert: 5},
	{Name: "F", Read: 50, Modify: 50},
}

var ycsbLocks = []string{"cas", "sherman", "declock-tf", "declock"}

var expYCSB = &Experiment{
	Name: "ycsb", Title: "YCSB on the B+tree, by lock",
	Paper:   "Beyond the paper: workloads A to F, 128 clients on 8 compute nodes, Zipf 0.99 (D: latest); keys of 8 bytes with values of 8, and keys of 24 with values of 100 and 1000.",
	Columns: []string{"workload", "lock", "key_bytes", "value_bytes", "mops", "p50_us", "p99_us", "reads_per_op", "mn_ops_per_op"},
	Points:  pointsYCSB,
	Judge:   judgeYCSB,
	Plots: func(rows Rows) []Plot {
		p := Plot{Name: "ycsb", Title: "YCSB on the B+tree", X: Axis{Label: "workload"}, Y: Axis{Label: "throughput (M operations/s)"}}
		small := rows.Where("value_bytes", 8)
		for _, m := range ycsbMixes {
			p.Groups = append(p.Groups, m.Name)
		}
		for _, name := range small.Distinct("lock") {
			s := Series{Label: name}
			for i, m := range ycsbMixes {
				if r := small.Find("lock", name, "workload", m.Name); r.Metrics != nil {
					s.XY = append(s.XY, XY{X: float64(i), Y: r.Value("mops")})
				}
			}
			p.Series = append(p.Series, s)
		}
		return []Plot{p}
	},
}

func pointsYCSB(o Options) []Point {
	var points []Point
	sizes := pick(o, [][2]int{{8, 8}, {24, 100}, {24, 1000}}, [2]int{8, 8})
	for _, mix := range ycsbMixes {
		for _, size := range sizes {
			for _, name := range ycsbLocks {
				x := o.index(Index{Lock: name, Clients: 128, CNs: 8, Mix: mix, KeySize: size[0], ValueSize: size[1]})
				points = append(points, x.point(x.params()))
			}
		}
	}
	return points
}

func judgeYCSB(rows Rows) []Claim {
	small := rows.Where("value_bytes", 8)
	c := small.Find("workload", "C", "lock", "declock-tf")
	a := func(lock string) Row { return small.Find("workload", "A", "lock", lock) }
	clients := c.Text("clients") + " clients"
	return []Claim{
		Claim{Own: true, Text: "READs per search with the index cached (C)"}.AtMost(valueOf(c, "reads_per_op"), 1.001),
		Claim{Own: true, Text: "A: DecLock (task-fair) over Sherman's lock", Unit: "x",
			Note: fmt.Sprintf("%s. p99 is %s us with DecLock and %s with Sherman's lock; its holders hand a leaf on within the node up to four times, DecLock by the order of arrival on all nodes", clients, Figure(a("declock-tf").Value("p99_us")), Figure(a("sherman").Value("p99_us")))}.AtLeast(Ratio(a("declock-tf"), a("sherman"), "mops"), 1),
		Claim{Own: true, Text: "A: our best DecLock (leaves stay with the lock) over Sherman's lock (plain)", Unit: "x", Note: clients}.AtLeast(Ratio(a("declock"), a("sherman"), "mops"), 1),
	}
}
