package bench

import (
	"errors"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
)

// failures are clients that fail, each with one of its transactions. Another client of the node takes the place of one that has failed.
type failures struct {
	rate    float64 // of transactions
	waiting bool    // while it waits for a first lock, failsAfter it has asked: with the next of its transactions that waits so long; else while it holds all
	// noticed is after how long the compute node of a client that has failed releases in its name what it holds, and gives up what it waits for:
	// for locks without leases. 0: nothing of a client that has failed is released, and it sends and answers nothing.
	noticed fabric.Time
}

// noticedNs is noticed where the others' leases last as long.
const noticedNs = 10 * fabric.Millisecond

// failuresOf returns the failures of clients of a lock: what they had is freed 10 ms later, by a lease or, of DecLock, by their node.
func failuresOf(lock string, rate float64, waiting bool) failures {
	f := failures{rate: rate, waiting: waiting}
	if strings.HasPrefix(lock, "declock") {
		f.noticed = noticedNs
	}
	if ns := lateDecLock[lock]; ns > 0 {
		f.noticed = ns
	}
	return f
}

// DecLock whose nodes notice failures as late as DSLR's and ShiftLock's clients: these wait for two and three leases.
const noticed20, noticed30 = "declock, noticed after 20 ms", "declock, noticed after 30 ms"

var lateDecLock = map[string]fabric.Time{noticed20: 2 * noticedNs, noticed30: 3 * noticedNs}

// failsAfter is when a client fails that fails while it waits: its ticket is drawn by then.
const failsAfter = 3 * fabric.Microsecond

// errFailed is what a Port returns whose client has failed.
var errFailed = errors.New("bench: client has failed")

// draw reports whether a client fails with its next transaction.
func (f *failures) draw(p fabric.Port) bool {
	return f.rate > 0 && float64(p.Rand()>>11)/(1<<53) < f.rate
}

// port returns the Port of a client, which can fail where that matters.
func (f *failures) port(p fabric.Port) fabric.Port {
	if f.rate > 0 && f.waiting && f.noticed == 0 {
		return &failingPort{Port: p, until: fabric.Forever}
	}
	return p
}

// failHolding ends a client that holds its first n locks.
func (c *txnClient) failHolding(n int) error {
	c.replace()
	if c.r.fails.noticed == 0 {
		return nil
	}
	return c.endAt(c.l.Port().Now()+c.r.fails.noticed, n)
}

// takeOrFail takes the first of a client's locks. A client that still waits for it failsAfter it has asked fails; one that has the lock by then does not.
func (c *txnClient) takeOrFail(i int, a locktrace.Access, deadline fabric.Time) error {
	p, noticed := c.l.Port(), c.r.fails.noticed
	at := p.Now() + failsAfter
	if m, ok := p.(*failingPort); ok {
		m.until = at
		err := c.take(i, a, deadline)
		if errors.Is(err, errFailed) {
			c.replace()
			return nil
		}
		m.until = fabric.Forever
		return err
	}
	done := false
	c.r.c.At(at, func() {
		if !done {
			c.replace()
		}
	})
	err := c.take(i, a, at+noticed)
	switch done = true; {
	case !c.gone:
		return err
	case errors.Is(err, lock.ErrTimeout):
		return nil
	}
	return errors.Join(err, c.endAt(at+noticed, i+1))
}

// endAt releases the first n locks at some time.
func (c *txnClient) endAt(at fabric.Time, n int) error {
	paused := c.l.Port().Pause(at)
	_, err := c.end(n)
	return errors.Join(paused, err)
}

// replace starts a client that goes on with the transactions of one that has failed.
func (c *txnClient) replace() {
	c.gone = true
	c.r.failed++
	c.r.start(&txnClient{r: c.r, name: c.name, node: c.node, joined: c.joined, src: c.src, at: c.at})
}

// A failingPort is the Port of a client that fails at some time: from then on nothing that it asks for is done.
type failingPort struct {
	fabric.Port
	until fabric.Time
}

func (p *failingPort) failed() bool { return p.Now() >= p.until }

func (p *failingPort) Do(ops []fabric.Op) error {
	if p.failed() {
		return &fabric.ChainError{Err: errFailed}
	}
	return p.Port.Do(ops)
}

func (p *failingPort) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.failed() {
		return errFailed
	}
	return p.Port.Send(to, m)
}

func (p *failingPort) Recv(deadline fabric.Time) (fabric.Message, error) {
	if p.failed() {
		return fabric.Message{}, errFailed
	}
	m, err := p.Port.Recv(min(deadline, p.until))
	if p.failed() {
		return fabric.Message{}, errFailed
	}
	return m, err
}

func (p *failingPort) Pause(until fabric.Time) error {
	err := p.Port.Pause(min(until, p.until))
	if p.failed() {
		return errFailed
	}
	return err
}

func (p *failingPort) Abandon() error {
	if p.failed() {
		return errFailed
	}
	return p.Port.Abandon()
}

// Shares of transactions with which a client fails.
var failAxis = Axis{Label: "share of acquisitions with which a client fails", Log: true}

var expShift13 = &Experiment{
	Name: "shift13", Other: true, Title: "ShiftLock's Fig. 13: clients that fail with the lock, or while they wait",
	Paper: "ShiftLock's paper, section 4.8, Zipf 0.99, 50 % reads, lease 10 ms, failure rates of 1e-5 to 1e-2: a client does not release the lock that it has just acquired. ShiftLock recovers, " +
		"and has a lower goodput than DSLR, of the same order of magnitude: it waits for three leases, DSLR for two. Here another client takes the place of one that has failed. DecLock has no leases: a node releases " +
		"in the name of its clients, here a lease after one has failed, or two or three. Of those that are to fail while they wait only such do as wait for 3 us.",
	Columns: []string{"part", "lock", "rate", "mops", "p50_us", "p99_us", "oldest_us", "failures", "lost", "resets"},
	Points: func(o Options) (points []Point) {
		for _, waiting := range []bool{false, true} {
			part, list := "holds", []string{theirDSLR, delayed, "declock-pf", "declock", "shift-artifact", slow, noticed20, noticed30}
			if waiting {
				part, list = "waits", list[:4]
			}
			points = append(points, across(pick(o, []float64{1e-5, 1e-4, 1e-3, 1e-2}, 1e-3), list, func(rate float64, name string) Point {
				m := shiftTxn(name)
				m.WarmupNs, m.WindowNs = 40*fabric.Millisecond, 60*fabric.Millisecond
				if rate >= 1e-3 && !o.Quick { // few operations, and many waits of leases
					m.WindowNs = 240 * fabric.Millisecond
				}
				r := txnRun{trace: "zipf", sorted: true, fails: failuresOf(name, rate, waiting)}
				return r.point(m.sized(o), Params{{"part", part}, {"lock", name}, {"rate", rate}}, o)
			})...)
		}
		return points
	},
	Plots: func(rows Rows) []Plot {
		return []Plot{{Name: "shift13", Title: "Goodput by failure rate", X: failAxis, Y: Axis{Label: "throughput (M operations/s)", Log: true},
			Series: rows.Where("part", "holds").LinesByLock("rate", "mops")}}
	},
	Judge: judgeShift13,
}

func judgeShift13(rows Rows) []Claim {
	holds, waits := rows.Where("part", "holds"), rows.Where("part", "waits")
	behind := holds.Along(delayed, theirDSLR, "rate", "mops")
	ours, slowed := holds.OverBest("declock", []string{theirDSLR, "shift-artifact"}, "rate", "mops", Most), holds.OverBest(slow, []string{theirDSLR, delayed}, "rate", "mops", Most)
	later := holds.OverBest(noticed30, []string{theirDSLR, "shift-artifact"}, "rate", "mops", Most)
	waiting := waits.Along(delayed, theirDSLR, "rate", "mops")
	return []Claim{
		Claim{Text: "clients fail as holders: ShiftLock's goodput over DSLR's, at most", Unit: "x", Sweep: behind, Note: "quarters of these runs of one seed differ by half of ShiftLock's and DSLR's means and more: the resets of the hottest locks decide, and at which rate which of the two is ahead. " +
			both(holds, delayed, theirDSLR, "rate", "mops") + "; " + both(holds, delayed, theirDSLR, "rate", "resets")}.AtMost(behind.Most(), 1),
		Claim{Text: "the same, at least: one order of magnitude", Unit: "x", Sweep: behind}.AtLeast(behind.Least(), 0.1),
		Claim{Own: true, Text: "clients fail while they wait: ShiftLock's goodput over DSLR's, at least", Unit: "x", Sweep: waiting}.AtLeast(waiting.Least(), 0.1),
		Claim{Own: true, Text: "clients fail as holders, no messages delayed: declock's goodput over the best other's, at least", Unit: "x", Sweep: ours, Note: both(holds, "declock", "shift-artifact", "rate", "mops")}.AtLeast(ours.Least(), 1),
		Claim{Own: true, Text: "clients fail as holders, and declock's node notices that after 30 ms, as ShiftLock does: the same", Unit: "x", Sweep: later, Note: both(holds, noticed30, theirDSLR, "rate", "mops") + "; " + inWords(holds, noticed20, "rate", "mops")}.AtLeast(later.Least(), 1),
		Claim{Own: true, Text: "clients fail as holders, messages within a node delayed for all: the same", Unit: "x", Sweep: slowed, Note: both(holds, slow, delayed, "rate", "mops")}.AtLeast(slowed.Least(), 1),
	}
}
