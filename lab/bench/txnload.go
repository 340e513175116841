package bench

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
)

// A Txn says which transactions of a benchmark clients do, by two-phase locking.
type Txn struct {
	Trace    string // "tpcc" or "tatp"
	Artifact bool   // as the generator of FissLock's and ShiftLock's evaluations draws them; else by the specification
	// Sorted: locks are taken in the order of their numbers; else in that of the transaction, which gives up after 10 ms.
	Sorted bool
	// PatienceNs is for how long a transaction that is not sorted waits for a lock before it gives up; 0: it has all of its locks after 10 ms, or gives up.
	PatienceNs fabric.Time
	Exclusive  bool // there are no shared holders
	// 0: 100 warehouses for each compute node, 100,000 subscribers.
	Warehouses, Subscribers int
	// MNs is among how many memory nodes warehouses, or rows of TATP, are dealt out; 0: 1.
	MNs int
	// Far: messages within a compute node take as long as those between nodes, as in the evaluations of ShiftLock, MCS and servers.
	Far bool

	// ThinkNs is how long a transaction has all of its locks; 0: as ShiftLock's clients, 2.8 us (TATP) or 7 us (TPC-C). DelayNs is between two transactions of a client.
	ThinkNs, DelayNs fabric.Time
	// WithData: with its locks a transaction READs 64 bytes for each, and WRITEs as many for each exclusive one after its pause, as ShiftLock's published client does.
	WithData bool
	// FailRate is the share of transactions with which a client fails, from 0 to 1: as a holder of all their locks or, with FailWaiting, while it waits for the first. Leases
	// of dslr and shift end what it had; of other locks its node releases in its name, NoticedNs later (0: 10 ms).
	FailRate    float64
	FailWaiting bool
	NoticedNs   fabric.Time
	// Long is the share of long readers among the transactions of TPC-C, from 0 to 1, and LongNs for how long one has its locks; 0: 20 ms.
	Long   float64
	LongNs fabric.Time
	// AskNs is the lease that transactions ask for where a lock has leases of several slots; 0: one slot. (Micro.LeaseNs is how long a slot is.)
	AskNs fabric.Time
	// LongAsk: long readers alone ask for it, and other transactions for one slot.
	LongAsk bool
	// Unchecked: a transaction that has lost a lock commits all the same. Else it begins again, with the same locks, until it has lost none.
	Unchecked bool
}

// ErrTxn is wrapped by what [Txn.Validate] returns.
var ErrTxn = errors.New("bench: bad transactions")

// maxMNs is the most memory nodes that [Txn.MNs] can be.
const maxMNs = 64

// maxTxnNs is the longest pause of a transaction, or lease: virtual time that passes in seconds of real time.
const maxTxnNs = 10 * fabric.Second

// Validate says what is wrong with the Micro, with its defaults, whose lock, clients and network transactions are to run over, or with the transactions.
func (t Txn) Validate(m *Micro) error {
	errs := []error{m.validate(ErrTxn)}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%w: %s", ErrTxn, fmt.Sprintf(format, args...)))
		}
	}
	check(t.FailRate >= 0 && t.FailRate <= 1, "clients fail with %v of their transactions: want 0 to 1", t.FailRate)
	check(t.Long >= 0 && t.Long <= 1, "%v of the transactions are long readers: want 0 to 1", t.Long)
	check(t.MNs >= 0 && t.MNs <= maxMNs, "%d memory nodes: want 1 to %d", t.MNs, maxMNs)
	check(t.Long == 0 || t.Trace == "tpcc", "long readers scan the customers of TPC-C: %s has none", t.Trace)
	for _, of := range []struct {
		what string
		ns   fabric.Time
	}{{"a transaction's hold", t.ThinkNs}, {"the delay between transactions", t.DelayNs}, {"a failure unnoticed", t.NoticedNs}, {"a long reader's hold", t.LongNs}, {"a lease", m.LeaseNs}, {"a lease to ask for", t.AskNs}, {"a wait for a lock", t.PatienceNs}} {
		check(of.ns >= 0 && of.ns <= maxTxnNs, "%s of %d ns: want 0 to 10 s", of.what, of.ns)
	}
	check(!t.Sorted || t.PatienceNs == 0, "transactions that take their locks in order do not give up: they have no patience")
	check(!t.LongAsk || t.AskNs > 0 && t.Long > 0, "long readers alone ask for a lease: there are none, or it has no length")
	if errors.Join(errs...) == nil {
		errs = append(errs, m.refused(ErrTxn, t.AskNs))
	}
	return errors.Join(errs...)
}

// leased reports whether leases free the locks of clients that have failed.
func leased(lock string) bool {
	return strings.HasPrefix(lock, "dslr") || strings.HasPrefix(lock, "shift")
}

// Point returns the measurement of transactions over a Micro's lock, by its clients, on its network.
func (t Txn) Point(m Micro) Point {
	m.Used = isDrTM(m.Lock)
	if name, _, _ := strings.Cut(m.Lock, ":"); t.Far {
		m.farMessages(name)
	}
	return t.run(m.Lock).point(m, Params{{"lock", m.Lock}, {"clients", m.Clients}}, Options{})
}

// run returns the run of the transactions over a lock.
func (t Txn) run(lock string) txnRun {
	r := txnRun{trace: t.Trace, artifact: t.Artifact, sorted: t.Sorted, patience: t.PatienceNs, mutex: t.Exclusive, warehouses: t.Warehouses, subscribers: t.Subscribers, mns: t.MNs,
		think: t.ThinkNs, data: t.WithData, delayNs: t.DelayNs, leaseNs: t.AskNs, longAsk: t.LongAsk, unchecked: t.Unchecked, fails: failures{rate: t.FailRate, waiting: t.FailWaiting}}
	if t.Long > 0 {
		r.scans, r.scanNs = t.Long, cmp.Or(t.LongNs, scanNs)
	}
	if t.FailRate > 0 && !leased(lock) {
		r.fails.noticed = cmp.Or(t.NoticedNs, noticedNs)
	}
	return r
}
