package bench

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// NetLock has a profile of transactions: with queues for the ten hottest locks few requests pass the switch's program. Without, it has queues for the first locks that are asked for.
func TestProfileOfTransactions(t *testing.T) {
	rows := runTiny(t, 2, expFiss14)[0].Rows
	for _, part := range []string{"tatp", "tpcc"} {
		at := rows.Where("part", part)
		if some, all := at.Find("lock", "netlock").Value("packets_per_op"), at.Find("lock", "fiss").Value("packets_per_op"); some <= 0 || some > 0.4*all {
			t.Errorf("%s: %v packets for each transaction pass the program, where those for all locks are %v", part, some, all)
		}
	}
}

// Locks that clients ask for most often are first in a profile.
func TestHottest(t *testing.T) {
	r := &txnRun{m: Micro{CNs: 2, Clients: 4}, plans: []plan{newPlan(lock.Layout{Size: 8, Align: 8}, 5, 0)}}
	r.before = func(_, client int) locktrace.Source { return fixedSource(client) }
	got := r.hottest(5, 3)
	if want := []uint32{4, 0, 2}; len(got) != 3 || got[0] != r.addr(want[0]) || got[1] != r.addr(want[1]) || got[2] != r.addr(want[2]) {
		t.Errorf("%v, want those of %v", got, want)
	}
}

// fixedSource asks for the lock of a client's number, and for lock 4.
type fixedSource uint32

func (s fixedSource) Next(list []locktrace.Access) []locktrace.Access {
	return append(list, locktrace.Access{Lock: uint32(s)}, locktrace.Access{Lock: 4})
}

// When the hotspot moves, fewer of NetLock's packets are for the switch, and when it comes back, as many as before; FissLock's stay as many.
func TestHotspotMoves(t *testing.T) {
	rows := runTiny(t, 2, expFiss16a)[0].Rows
	packets := func(lock string, phase int) float64 {
		of := rows.Where("lock", lock, "phase", phase).Values("packets_per_op")
		sum := 0.0
		for _, v := range of[1:] {
			sum += v
		}
		return sum / float64(len(of)-1)
	}
	first, moved, back := packets("netlock", 0), packets("netlock", 1), packets("netlock", 2)
	if moved < 0.2 || moved > 0.7*first || moved > 0.7*back {
		t.Errorf("packets of NetLock for each operation: %v, then %v, then %v", first, moved, back)
	}
	if first, moved := packets("fiss", 0), packets("fiss", 1); moved < 0.9*first || moved > 1.1*first {
		t.Errorf("packets of FissLock for each operation: %v, then %v", first, moved)
	}
}

// Objects share locks, so fewer locks are asked for more evenly than so many objects.
func TestObjectsShareLocks(t *testing.T) {
	share := func(objects int) float64 {
		r := &txnRun{m: Micro{CNs: 1, Clients: 1, Locks: 10, Theta: 0.99, Seed: 1}, trace: "zipf", objects: objects}
		_, source, err := r.sources(Options{})
		if err != nil {
			t.Fatal(err)
		}
		src, first := source(0, 0), 0
		for range 10_000 {
			if src.Next(nil)[0].Lock == 0 {
				first++
			}
		}
		return float64(first) / 10_000
	}
	if one, many := share(0), share(1000); one < 0.3 || many > 0.25 || many < 0.12 {
		t.Errorf("the first of 10 locks has %v of the requests, with 1,000 objects %v", one, many)
	}
}

// One of ten operations of the bank takes two accounts exclusively, and twice as long as a balance check.
func TestBank(t *testing.T) {
	z, err := traces.NewZipf(5, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, transfers := &bankSource{zipf: z, Rand: traces.NewRand(1, 1)}, 0
	for range 10_000 {
		list := s.Next(nil)
		if s.transfer {
			transfers++
		}
		want := locktrace.Access{Lock: list[0].Lock, Mode: lock.Shared}
		if s.transfer {
			want.Mode = lock.Exclusive
		}
		if list[0] != want || s.transfer != (len(list) == 2) || s.transfer && (list[1].Mode != lock.Exclusive || list[1].Lock == list[0].Lock) || s.think() != bankAccessNs*fabric.Time(len(list)) {
			t.Fatalf("transfer %v: %v, %d ns", s.transfer, list, s.think())
		}
	}
	if transfers < 900 || transfers > 1100 {
		t.Errorf("%d transfers of 10,000", transfers)
	}
}

// A failure of a machine and of FissLock's switch takes all three steps, which begin one after the other, and all locks of the machine go to others.
func TestFissRecoverySteps(t *testing.T) {
	m := Default("fiss")
	fissTestbed(&m)
	m.Clients, m.CNs, m.Seed = 8, 4, 1
	f := &fissFail{m: m.WithDefaults(), holds: 3}
	if err := f.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	at := f.known
	for s := 1; s <= 3; s++ {
		if f.steps[s].from < at || f.steps[s].to <= f.steps[s].from {
			t.Errorf("step %d from %d to %d, the one before began at %d", s, f.steps[s].from, f.steps[s].to, at)
		}
		at = f.steps[s].from
	}
	if f.free != 6 || f.last < f.steps[3].to {
		t.Errorf("%d of 6 locks have been granted to others, the last at %d; the recovery ended at %d", f.free, f.last, f.steps[3].to)
	}
}

// Transactions of TPC-C are measured in the same window with all locks, which begins once those that wait for each other have been given up, also in quick runs.
func TestFissWindow(t *testing.T) {
	for _, o := range []Options{{}, {Quick: true}} {
		for _, of := range fissTxns {
			first := of.micro(o, fissLocks[0])
			for _, row := range of.rows() {
				lock := row.lock
				if m := of.micro(o, lock); m.WarmupNs != first.WarmupNs || m.WindowNs != first.WindowNs || of.fixed && (m.WarmupNs < txnPatience+2*fabric.Millisecond || m.WindowNs < 3*fabric.Millisecond) {
					t.Errorf("%s, %s, %+v: a window of %d ns after %d; of %s %d after %d", of.trace, lock, o, m.WindowNs, m.WarmupNs, fissLocks[0], first.WindowNs, first.WarmupNs)
				}
			}
		}
	}
}

// Quick runs have no verdict on 16,000 locks, which they do not measure.
func TestFissRecoveryVerdicts(t *testing.T) {
	var rows Rows
	for _, lock := range []string{"fiss", "declock"} {
		for _, held := range []int{160, 1600} {
			us := Estimate{Mean: float64(held), N: 1}
			rows = append(rows, Row{Params: Params{{"lock", lock}, {"held", held}}, Metrics: map[string]Estimate{"s1_us": us, "s2_us": us, "s3_us": us, "free_us": us}})
		}
	}
	for i, c := range expFiss17b.Judge(rows) {
		if judged := c.Verdict != NotMeasured; judged != (i == 2) {
			t.Errorf("%s: %v", c.Text, c.Verdict)
		}
	}
}

// Most acquisitions of TPC-C are for locks at the client's machine, which take less there than on the way to another.
func TestFissLocal(t *testing.T) {
	rows := runTiny(t, 2, expFiss14)[0].Rows.Where("part", "tpcc")
	for name, beside := range map[string]string{"fiss:local": "fiss", "parlock:local": "parlock:1", localDecLock: "declock"} {
		at, other := rows.Find("lock", name), rows.Find("lock", beside)
		if near := at.Value("near_pct"); near < 95 || near == 100 {
			t.Errorf("%s: %v %% of the acquisitions are for locks at the own machine", name, near)
		}
		bar := 0.95
		if name == localDecLock { // a few clients do not wait for the memory node's NIC
			bar = 1.01
		}
		if v := Ratio(at, other, "p50_us"); !(v < bar) {
			t.Errorf("%s: the median transaction takes %v of that with %s", name, v, beside)
		}
	}
}
