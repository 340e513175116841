package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
)

// The testbeds of the papers: clients, nodes, locks and loads are theirs, and so is what transactions are.
func TestPapersParameters(t *testing.T) {
	const ms = fabric.Millisecond
	micro := func(m Micro) string {
		return fmt.Sprintf("%s, %d clients on %d nodes, %d on a core, %d locks, %d %% reads, theta %v, section %d, used %v", m.NIC, m.Clients, m.CNs, m.CoreClients, m.Locks, m.ReadPct, m.Theta, m.CSLen, m.Used)
	}
	of := func(s *sweep, lock string, l load) string {
		m := named(lock)
		s.testbed(&m)
		l.set(&m)
		return micro(m)
	}
	txns := func(lock string, nodes, warehouses int) string {
		r, m := dslrTxn(lock, nodes, warehouses)
		return fmt.Sprintf("%s %d clients on %d nodes, %d on a core, lease %d us; %s, sorted %v, artifact %v, mutex %v, %d warehouses on %d nodes, think %d, used %v", m.NIC, m.Clients, m.CNs, m.CoreClients, m.LeaseNs/1000, r.trace, r.sorted, r.artifact, r.mutex, r.warehouses, r.mns, r.think, m.Used)
	}
	noticed := func(lock string) string {
		r, m := leaseRun(Options{}, lock, 1e-3, 500)
		return fmt.Sprint(r.fails.rate, r.fails.noticed, m.LeaseNs, r.unchecked)
	}
	for got, want := range map[string]string{
		fmt.Sprint(txnWarehouses, txnSubscribers, txnThink, txnPatience, failsAfter, noticedNs, scanNs, scanLease): "100 100000 map[tatp:2800 tpcc:7000] 10000000 3000 10000000 20000000 400000000",
		of(&shift4, "mcs", writeIntensive):                         "cx5, 240 clients on 5 nodes, 1 on a core, 10000000 locks, 50 % reads, theta 0.99, section 0, used false",
		of(&shift4, halfDrTM, readIntensive):                       "cx5, 240 clients on 5 nodes, 1 on a core, 10000000 locks, 95 % reads, theta 0.99, section 0, used true",
		of(&dslr14, "drtm", dslr14.loads[0]):                       "cx4, 64 clients on 16 nodes, 1 on a core, 10000000 locks, 50 % reads, theta 2, section 0, used true",
		txns("dslr", 16, 1):                                        "cx4 64 clients on 16 nodes, 1 on a core, lease 0 us; tpcc, sorted true, artifact false, mutex false, 16 warehouses on 16 nodes, think 1, used false",
		txns(shortDrTM, 2, 10):                                     "cx4 8 clients on 2 nodes, 1 on a core, lease 400 us; tpcc, sorted true, artifact false, mutex false, 20 warehouses on 2 nodes, think 1, used true",
		noticed("declock") + noticed(letterDSLR) + noticed("dslr"): fmt.Sprint(1e-3, ms/2, ms/2, false) + fmt.Sprint(1e-3, 0, ms/2, true) + fmt.Sprint(1e-3, 0, ms/2, false),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if first := fmt.Sprint(expDSLR8.Points(Options{})[0].Same); !strings.Contains(first, "warehouses 16 ") {
		t.Errorf("high contention is %s", first)
	}
	// What points of figures measure: how many have it, of all.
	count := func(e *Experiment, what string) string {
		n, points := 0, e.Points(Options{})
		for _, p := range points {
			if strings.Contains(fmt.Sprint(p.Same), what) {
				n++
			}
		}
		return fmt.Sprintf("%d of %d", n, len(points))
	}
	for _, x := range []struct {
		exp        *Experiment
		what, want string
	}{
		{expDSLR8, "warehouses 16 ", "27 of 37"}, {expDSLR8, "warehouses 160 ", "10 of 37"}, {expDSLR8, "unchecked true", "8 of 37"}, {expDSLR8, "sorted true", "20 of 37"}, {expDSLR8, "patience 300000", "8 of 37"}, {expDSLR8, "patience 50000 ", "1 of 37"}, {expDSLR9, "warehouses 160 ", "14 of 49"},
		{expDSLR9, "sorted false", "14 of 49"}, {expDSLR10, "sorted false", "12 of 37"}, {expDSLR11, "sorted false", "8 of 26"}, {expDSLR17, "sorted false", "6 of 31"}, {expDSLR17, "patience 10000000000", "4 of 31"},
		{expTPCC, "mutex true", "12 of 40"}, {expTATP, "mutex true", "21 of 70"}, {expTPCC, "warehouses 5 ", "12 of 40"}, {expTPCC, "artifact true", "36 of 40"}, {expTPCC, "data true", "6 of 40"}, {expTATP, "data true", "15 of 70"},
		{expDSLR11, "scanNs 20000000", "26 of 26"}, {expDSLR16, fmt.Sprint("word ", uint64(nearMax)), "7 of 9"}, {expShift13, "fails {0.001 true", "4 of 48"},
	} {
		if got := count(x.exp, x.what); got != x.want {
			t.Errorf("%s: %s have %q, want %s", x.exp.Name, got, x.what, x.want)
		}
	}
}

// Claims name the best other lock: DrTM at the lease with which it does most, and ShiftLock among declock's rivals.
func TestBestOfOthers(t *testing.T) {
	row := func(lock string, mops float64) Row {
		return Row{Params: Params{{"part", "x"}, {"lock", lock}}, Metrics: map[string]Estimate{"mops": {Mean: mops, N: 1}}}
	}
	for _, best := range []string{"drtm", shortDrTM, longDrTM} {
		var rows Rows
		for _, lock := range []string{"drtm", shortDrTM, longDrTM, "dslr"} {
			mops := 1.0
			if lock == best {
				mops = 2
			}
			rows = append(rows, row(lock, mops))
		}
		if _, got := betterDrTM(rows); got.Text("lock") != best {
			t.Errorf("%s is taken for the best, and %s is", got.Text("lock"), best)
		}
	}
	if got := overBaselines(Rows{row("declock", 6), row("declock-pf", 9), row("mcs", 2), row("shift-artifact", 3), row(delayed, 1)}); got != 2 {
		t.Errorf("declock does 6, the best other 3: %v times", got)
	}
}

// Warehouses are dealt out to the memory nodes of DSLR's figures.
func TestWarehousesOnNodes(t *testing.T) {
	r, m := dslrTxn("dslr", 2, 2)
	r.m = m.WithDefaults()
	n, _, err := r.sources(Options{})
	r.c = sim.New(r.m.cluster())
	defer r.c.Close()
	r.place(lock.Layout{Size: 8, Align: 8}, n)
	for w := range 4 {
		for _, row := range []int{0, r.each - 1} {
			if a := r.addr(uint32(w*r.each + row)); err != nil || int(a.MN()) != w%2 {
				t.Errorf("row %d of warehouse %d is on %v: %v", row, w, a, err)
			}
		}
	}
}
