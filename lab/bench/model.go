package bench

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lab/locks/rmarw"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lab/locks/shift"
)

// A Constant is a number of the NIC model, with where it comes from.
type Constant struct {
	Name, Value string
	// Origin is "fitted" (chosen so that locks show the paper's figures), "cited" (of a
	// device or document that is named) or "assumed".
	Origin  string
	Meaning string
}

// Constants returns the numbers of a NIC model. Those of a model other than cx4 are assumed unless
// they are cx4's; cx5's are fitted.
func Constants(name string) ([]Constant, error) {
	n, err := sim.Preset(name)
	if err != nil {
		return nil, err
	}
	ns := func(t fabric.Time) string { return fmt.Sprintf("%d ns", t) }
	span := func(a, b fabric.Time) string { return fmt.Sprintf("%d to %d ns", a, b) }
	list := []Constant{
		{"post", span(n.PostMin, n.PostMax), "fitted", "CPU time to post a chain or a message"},
		{"poll", ns(n.Poll), "fitted", "CPU time to see a completion"},
		{"one way", ns(n.OneWay), "fitted", "from NIC to NIC through the switch"},
		{"PCIe read", ns(n.PCIeRead), "fitted", "a READ fetches host memory at the target"},
		{"PCIe write", ns(n.PCIeWrite), "fitted", "a WRITE is handed to the target's PCIe bus"},
		{"PCIe atomic", ns(n.PCIeAtomic), "fitted", "an atomic, from entering its slot to the answer"},
		{"pipeline", ns(n.Pipe), "fitted", "an operation holds the memory node's NIC"},
		{"atomic", ns(n.Atomic), "fitted", "atomics on one slot follow each other at this distance"},
		{"atomic queue", fmt.Sprint(n.AtomicQueue), "fitted", "atomics that may wait; one more stalls the pipeline. Without it, and with a queue pair for each client, CASLock's median does not collapse (experiment spin)"},
		{"atomic slots", fmt.Sprint(n.AtomicSlots), "fitted", "that NICs index atomics by address bits is cited (DSLR; Kalia et al., ATC'16), the number is fitted"},
		{"READs and atomics in flight", fmt.Sprint(n.MaxAtomics), "cited", "max_qp_rd_atom of ConnectX devices, for each queue pair"},
		{"fence", fmt.Sprint(n.Fence), "cited", "an atomic or WRITE behind a READ or atomic waits for its answer (InfiniBand specification)"},
		{"link", link(n.BytePs), "cited", "the paper's testbed for cx4"},
		{"overhead", fmt.Sprintf("%d B", n.Overhead), "fitted", "headers of each operation, answer or message"},
		{"message", span(n.MessageMin, n.MessageMax), "fitted", "between compute nodes, from Send to Recv"},
		{"local wake", ns(n.LocalWake), "fitted", "a message within a compute node"},
		{"access by CPU", ns(n.CPUAccess), "assumed", "a load, store or atomic of a client on the memory node's machine (experiment alock)"},
		{"loopback", ns(n.Loopback), "assumed", "from the NIC to itself, instead of one way, for a client on the memory node's machine that uses it"},
		{"retry", ns(n.Retry), "assumed", "until a NIC gives up a silent peer"},
	}
	if name == sim.CX4().Name {
		return list, nil
	}
	fit, err := Constants(sim.CX4().Name)
	for i := range list {
		if list[i].Value != fit[i].Value {
			list[i].Origin = "assumed"
			if name == sim.CX5().Name {
				list[i].Origin, list[i].Meaning = "fitted", list[i].Meaning+" (to figures of ShiftLock, FAST 2025)"
			}
		}
	}
	return list, err
}

// LoadConstants returns the numbers of locks and loads that are in no model of a NIC.
func LoadConstants() []Constant {
	ms := func(t fabric.Time) string { return fmt.Sprintf("%g ms", float64(t)/1e6) }
	us := func(t fabric.Time) string { return fmt.Sprintf("%g us", float64(t)/1e3) }
	cx5 := sim.CX5()
	return []Constant{
		{"request of a server", us(locks.ServerNs), "assumed", "a worker of `rpc`, `server`, `parlock` takes it for a request or a release"},
		{"workers of a server", fmt.Sprint(locks.ServerWorkers), "assumed", "of `rpc` and `server` in all, of `parlock` on each node"},
		{"workers of `rpc:shiftlock`", fmt.Sprint(locks.TheirWorkers), "cited", "ShiftLock's published code: threads of its server; here dealt out to the compute nodes, whose Ports send the answers: 10 each of 5, 50 in all"},
		{"request of `rpc:shiftlock`", us(locks.TheirServerNs), "assumed", "the same 1 us, and a round trip: each thread of that code waits until its answer has been acknowledged"},
		{"pause of ShiftLock's clients", us(locks.TheirPauseNs), "cited", "its published code: between two READs of `shift-artifact:pause`, and of `dslr:shiftlock` for each ticket, of which a reader counts those of writers alone"},
		{"lease of DSLR and ShiftLock", ms(dslr.DefaultLeaseNs), "cited", "their papers (ShiftLock's published code: 1 s, but for runs in which clients fail)"},
		{"pause of DSLR's waiters, for each ticket before", us(locks.PollNs), "assumed", "of `dslr` and its other forms: the round trip of cx4 and cx5, as section 4.6 of its paper says; 1.862 us in ShiftLock's code, for a reader by the writers before it alone"},
		{"the same in DSLR's cluster", us(dslr.DefaultWaitNs), "cited", "its paper, section 4.6: `dslr:wait:5`, and in real time; `dslr:busy` has no pause"},
		{"backoff of DSLR's clients", us(dslr.DefaultResetMinNs) + " to " + ms(dslr.DefaultResetMaxNs), "cited", "its paper, appendix A.3: before a transaction begins again, and while counters are reset, here for half a lease, 5 ms, at most (`dslr16` varies it)"},
		{"tickets of an acquisition", fmt.Sprint(dslr.MaxSlots), "assumed", "at most, of `dslr:slots`, and fewer where more than 326 clients might overflow a counter: its paper has no bound"},
		{"readers that pass a writer", fmt.Sprint(server.DefaultPasses), "cited", "DSLR's paper, section 6.4: at most, of its traditional lock with a bypass"},
		{"delay of messages within a node", us(delayNs), "cited", "ShiftLock's paper, section 4.1; here in DecLock's figures, with the model's 150 ns (`shift-artifact+delay`)"},
		{"messages within a node in ShiftLock's figures", us((cx5.MessageMin + cx5.MessageMax) / 2), "fitted", "of the locks that its authors delay, and of `rpc`: as long as between nodes, which that 1 us is to make them, and 1.15 us would not"},
		{"backoff of `cas-backoff`", fmt.Sprintf("%s to %.3g ms", us(locks.BackoffMinNs), float64(locks.BackoffMaxNs)/1e6), "cited", "ShiftLock's published code: doubled with each try up to a maximum that adapts, as SMART does it"},
		{"writers in a row, readers of RMA-RW", fmt.Sprintf("%d, %d", rmarw.DefaultWriters, rmarw.DefaultReaders), "cited", "ShiftLock's published code"},
		{"writers in a row of ShiftLock", fmt.Sprint(shift.DefaultThreshold), "cited", "its paper: the threshold N; `shift12` varies it"},
		{"lease of DrTM's readers", ms(drtm.DefaultLeaseNs), "cited", "ShiftLock's published code; there a reader joins one of which half is left (`drtm:half`)"},
		{"uncertainty of DrTM's clocks", us(drtm.DefaultUncertaintyNs), "cited", "ShiftLock's paper, section 4.1"},
		{"pause of a transaction, TATP", us(txnThink["tatp"]), "cited", "ShiftLock's paper, section 4.4"},
		{"pause of a transaction, TPC-C", us(txnThink["tpcc"]), "cited", "the same; none in DSLR's figures"},
		{"patience of a transaction", ms(txnPatience), "cited", "FissLock's evaluation; where locks are not sorted"},
		{"hold of a long reader", ms(scanNs), "assumed", "of the table of a warehouse's customers (`dslr10`, `dslr11`): DSLR's paper does not say"},
		{"lease beside long readers", ms(scanLease), "assumed", "what transactions ask for: those that wait for long readers hold other locks meanwhile"},
		{"time to failure of a waiter", us(failsAfter), "assumed", "after it has asked for its first lock (`shift13`)"},
		{"failure noticed after", ms(noticedNs), "assumed", "when DecLock's node releases in the name of a failed client (`shift13`, there also after 20 and 30 ms); in `dslr17` a lease"},
		{"pause of a transaction, FissLock's figures", fmt.Sprintf("%s TATP, %s TPC-C", us(fissTxns[0].think), us(fissTxns[1].think)), "cited", "its paper, section 7.1"},
		{"locks of NetLock on the switch", fmt.Sprintf("%d TATP, %d TPC-C", fissTxns[0].hot, fissTxns[1].hot), "cited", "FissLock's paper, section 7.4: 0.09 and 0.3 %; else 10,000, its code"},
		{"period of a hotspot", ms(hotspotNs), "assumed", "`fiss16a`: 300 ms in FissLock's paper"},
		{"access to the data of the bank", us(bankAccessNs), "assumed", "`fiss17c`: a round trip to an in-memory store"},
		{"request of a Redis", us(redisNs), "assumed", "`fiss17c`: to lock or unlock, one at a time"},
		{"RedLock asks again within", ms(redisRetryNs), "assumed", "`fiss17c`: after it was refused, a random time"},
		{"registers of a switch", fmt.Sprintf("%d stages of %d KB", pswitch.Stages, pswitch.StageBits/8000), "cited", "FissLock's paper, section 7.2: a Tofino"},
		{"slots of a client", fmt.Sprint(locks.SlotsOfClient), "assumed", "of FissLock, where a machine has more than 12 clients: TPC-C holds 15 locks at once"},
		{"pass of a switch, packet", fmt.Sprintf("%d ns, %d ns", switchModel.Pass, switchModel.Packet), "assumed", "FissLock's, a Tofino"},
	}
}

func link(bytePs int64) string {
	if bytePs == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%d Gb/s", 8000/bytePs)
}

// tune changes constants of a model: fields of sim.NIC that are whole numbers, by name, with commas: "LocalWake=1650,Pipe=32".
func tune(n *sim.NIC, text string) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		field := reflect.ValueOf(n).Elem().FieldByName(name)
		v, err := strconv.ParseInt(value, 10, 64)
		if !field.IsValid() || !field.CanInt() || err != nil {
			return fmt.Errorf("bench: %q tunes no constant of the NIC model: want NAME=NUMBER, as in LocalWake=1650, with a field of sim.NIC", part)
		}
		field.SetInt(v)
	}
	return n.Validate()
}
