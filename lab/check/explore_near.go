package check

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/qplock"
	"github.com/declock/declock/lab/oracle"
)

// A cohorts judge follows the order in which an asymmetric lock is granted: within a cohort that is the order in which clients come to be its tail; and once a
// cohort's leader has made its cohort the victim, the other one is granted at most as often as that one's budget says until the leader is. A client that gives up leaves the queue some time before it says so, so
// programs in which one may are not judged.
type cohorts struct {
	cfg    qplock.Config
	tails  [2]fabric.Addr
	victim fabric.Addr
	queues [2][]queuedAt
}

// A queuedAt is a client in the queue of a cohort.
type queuedAt struct {
	client fabric.ClientID
	leads  bool // it has made its cohort the victim
	passed int  // grants to the other cohort since
}

// newCohorts returns the judge of an exploration's lock, or nil.
func newCohorts(policy string, l fabric.Addr) *cohorts {
	if policy != "qplock" && policy != "alock" {
		return nil
	}
	cfg := budgets(&Scenario{}, policy == "alock") // as the join of explorations
	remote, local, victim := cfg.Words()
	return &cohorts{cfg: cfg, tails: [2]fabric.Addr{l.Add(remote), l.Add(local)}, victim: l.Add(victim)}
}

// effect follows an operation that has taken effect, and reports whether it matters.
func (q *cohorts) effect(e *sim.Event) bool {
	switch c := slices.Index(q.tails[:], e.Op.Addr); {
	case c >= 0 && e.Op.Kind.IsAtomic() && e.New != e.Old && e.New == uint64(e.Client):
		q.queues[c] = append(q.queues[c], queuedAt{client: e.Client})
		return true
	case e.Op.Addr == q.victim && (e.Op.Kind == fabric.OpWrite || e.Op.Kind == fabric.OpCAS && e.Op.Swapped()):
		if c, i := q.find(e.Client); i >= 0 && !q.queues[c][i].leads {
			q.queues[c][i].leads = true
			return true
		}
	}
	return false
}

// find returns a client's queue, and its index there; -1: it is in none.
func (q *cohorts) find(client fabric.ClientID) (cohort, i int) {
	for c := range q.queues {
		if i := slices.IndexFunc(q.queues[c], func(w queuedAt) bool { return w.client == client }); i >= 0 {
			return c, i
		}
	}
	return 0, -1
}

// event follows what a client says, and returns what is wrong.
func (q *cohorts) event(e *oracle.Event) (what string) {
	if e.Kind != oracle.Granted && e.Kind != oracle.Refused {
		return ""
	}
	c, i := q.find(e.Client)
	if i < 0 {
		return ""
	}
	earlier, other := q.queues[c][:i], q.queues[1-c]
	if e.Kind == oracle.Granted {
		if len(earlier) > 0 {
			what = fmt.Sprintf("cohort: [%v], and %v has queued before it", e, earlier[0].client)
		}
		budget := [2]int{int(q.cfg.Remote), int(q.cfg.Local)}[c]
		for k := range other {
			if w := &other[k]; w.leads {
				if w.passed++; w.passed > budget {
					what = fmt.Sprintf("budget: [%v], the grant %d of its cohort while %v waits", e, w.passed, w.client)
				}
			}
		}
	}
	q.queues[c] = slices.Delete(q.queues[c], i, i+1)
	return what
}

// state is what the judge remembers.
func (q *cohorts) state() string {
	var b strings.Builder
	for c := range q.queues {
		for _, w := range q.queues[c] {
			fmt.Fprintf(&b, "%x %t %d,", uint32(w.client), w.leads, w.passed)
		}
		b.WriteByte(';')
	}
	return b.String()
}
