package bench

import "fmt"

func init() {
	Register(&Experiment{
		Name: "fig18", Title: "Slower messages between compute nodes",
		Paper: "Appendix C, Fig. 18, with 1, 4 and 16 data operations: messages do not matter to CASLock and DSLR+; DecLock (phase-fair) loses at most 14.7 % and ShiftLock 49.6 %. " +
			"The text does not say up to which latency; ours goes to four times.",
		Columns: []string{"lock", "cs_len", "message_scale", "mops", "p50_us", "p99_us", "messages_per_op"},
		Points: func(o Options) []Point {
			var points []Point
			for _, n := range pick(o, []int{1, 4, 16}, 1, 4) {
				for _, scale := range pick(o, []float64{1, 1.5, 2, 3, 4}, 1, 2, 4) {
					for _, name := range registered([]string{"cas", "dslr+", "shift", "shift-artifact", "declock-pf", "declock"}) {
						points = append(points, o.point(name, nil, func(m *Micro) { m.CSLen, m.MessageScale = n, scale }, Param{"message_scale", scale}))
					}
				}
			}
			return points
		},
		Judge: judgeMessages,
		Plots: func(rows Rows) []Plot {
			var plots []Plot
			for _, n := range rows.Distinct("cs_len") {
				plots = append(plots, throughputPlot("fig18-"+n, fmt.Sprintf("Throughput with %s data operation(s)", n), "message_scale", rows.Where("cs_len", n),
					Axis{Label: "latency of messages between compute nodes (of the testbed's)", Ticks: []float64{1, 2, 3, 4}})...)
			}
			return plots
		},
	})
}

func judgeMessages(rows Rows) []Claim {
	loss := func(lock string) float64 {
		var list []float64
		for _, n := range rows.Distinct("cs_len") {
			rs := rows.Where("lock", lock, "cs_len", n)
			list = append(list, Cut(rs.Find("message_scale", 4), rs.Find("message_scale", 1), "mops"))
		}
		return Most(present(list))
	}
	twice := func(lock string) string {
		rs := rows.Where("lock", lock, "cs_len", 1)
		return fmt.Sprintf("with messages four times as slow, where the paper does not say how slow its were; with one data operation and messages twice as slow it is %s %%",
			Figure(Cut(rs.Find("message_scale", 2), rs.Find("message_scale", 1), "mops")))
	}
	return []Claim{
		Claim{Text: "CASLock loses at most", Unit: "%"}.AtMost(loss("cas"), 5),
		Claim{Text: "DSLR+ loses at most", Unit: "%"}.AtMost(loss("dslr+"), 5),
		Claim{Text: "DecLock-PF loses at most", Unit: "%", Paper: 14.7, Note: twice("declock-pf")}.Near(loss("declock-pf"), 1.5),
		Claim{Text: "ShiftLock loses at most", Unit: "%", Paper: 49.6, Note: twice("shift")}.Near(loss("shift"), 1.5),
		Claim{Text: "ShiftLock's loss over DecLock-PF's", Unit: "x", Paper: 3.37, Note: "ShiftLock needs twice as many messages"}.AtLeast(loss("shift")/loss("declock-pf"), 1.5),
	}
}
