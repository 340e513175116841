package bench

import "fmt"

var expFig18 = &Experiment{
	Name: "fig18", Title: "Slower messages between compute nodes",
	Paper: "Appendix C, Fig. 18, with 1, 4 and 16 data operations: messages do not matter to CASLock and DSLR+; DecLock (phase-fair) loses at most 14.7 % and ShiftLock 49.6 %. " +
		"The text does not say up to which latency; ours goes to four times.",
	Columns: []string{"lock", "cs_len", "message_scale", "mops", "p50_us", "p99_us", "messages_per_op"},
	Points: func(o Options) []Point {
		var points []Point
		for _, n := range pick(o, []int{1, 4, 16}, 1) {
			for _, scale := range pick(o, []float64{1, 2, 3, 4}, 1, 4) {
				for _, name := range []string{"cas", "dslr+", "dslr+-overflow", "shift", "shift-artifact", "declock-pf", "declock"} {
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
	sent := func(lock string) string {
		return Figure(rows.Find("lock", lock, "cs_len", 1, "message_scale", 1).Value("messages_per_op"))
	}
	messages := fmt.Sprintf("the paper: ShiftLock needs twice as many messages. An operation sends %s with ShiftLock, %s as published, %s with DecLock-PF",
		sent("shift"), sent("shift-artifact"), sent("declock-pf"))
	over := func(lock string) Along {
		return rows.Where("cs_len", 1).Along("declock-pf", lock, "message_scale", "mops")
	}
	// asFitted says what a ratio to a lock that sends no messages is with faster ones.
	asFitted := func(lock string) string {
		at := func(scale float64) float64 {
			rs := rows.Where("cs_len", 1, "message_scale", scale)
			return Ratio(rs.Find("lock", "declock-pf"), rs.Find("lock", lock), "mops")
		}
		return fmt.Sprintf("DSLR+ sends no messages, so that DecLock-PF's loss shows in full: as fitted it is %.3g times as fast, with messages twice as slow %.3g. ", at(1), at(2))
	}
	return []Claim{
		Claim{Own: true, Text: "CASLock loses at most", Unit: "%", Note: "the paper: not affected"}.AtMost(loss("cas"), 5),
		Claim{Own: true, Text: "DSLR+ loses at most", Unit: "%", Note: "the paper: not affected"}.AtMost(loss("dslr+"), 5),
		Claim{Text: "DecLock-PF loses at most", Unit: "%", Paper: 14.7, Note: twice("declock-pf")}.Near(loss("declock-pf"), 1.5),
		Claim{Text: "ShiftLock (letter) loses at most", Unit: "%", Paper: 49.6, Note: twice("shift")}.Near(loss("shift"), 1.5),
		Claim{Text: "ShiftLock (as published, no pauses) loses at most", Unit: "%", Paper: 49.6, Note: twice("shift-artifact")}.Near(loss("shift-artifact"), 1.5),
		Claim{Text: "ShiftLock's (letter) loss over DecLock-PF's", Unit: "x", Paper: 3.37, Note: messages}.Near(loss("shift")/loss("declock-pf"), 1.5),
		Claim{Text: "ShiftLock's (as published, no pauses) loss over DecLock-PF's", Unit: "x", Paper: 3.37, Note: messages}.Near(loss("shift-artifact")/loss("declock-pf"), 1.5),
		Claim{Text: "one data operation: DecLock-PF over DSLR+, at least", Unit: "x", Paper: 2.79, Row: over("dslr+").String(), Note: asFitted("dslr+") + both(rows.Where("cs_len", 1), "declock-pf", "dslr+", "message_scale", "mops")}.Near(over("dslr+").Least(), 1.25),
		Claim{Text: "one data operation: DecLock-PF over DSLR+ with the overflowing backoff, at least", Unit: "x", Paper: 2.79, Row: over("dslr+-overflow").String(), Note: asFitted("dslr+-overflow") + both(rows.Where("cs_len", 1), "declock-pf", "dslr+-overflow", "message_scale", "mops")}.Near(over("dslr+-overflow").Least(), 1.25),
		Claim{Text: "one data operation: DecLock-PF over CASLock, at least", Unit: "x", Paper: 27.18, Row: over("cas").String(), Note: "at messages four times as slow as the model's"}.Near(over("cas").Least(), 1.5),
	}
}
