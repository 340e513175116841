package hier

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Kind is how a compute node that could release a lock chooses between its
// own waiters and those of other nodes.
type Kind uint8

const (
	// Flat: no hierarchy. Every client is a participant of the remote queue.
	Flat Kind = iota
	// RemotePrefer: always give the remote lock up.
	RemotePrefer
	// LocalPrefer: keep the lock while a local client wants it in the same mode.
	LocalPrefer
	// LocalBound: keep it for at most Policy.Bound handovers (Sherman, cohort locks).
	LocalBound
	// ByTime: to the waiter that asked first, by timestamp (section 5.3).
	ByTime
)

// ErrPolicy: a text that is no lock policy.
var ErrPolicy = errors.New("unknown lock policy")

// A Policy is the ownership-transfer policy of the clients of one node.
// Different nodes may have different ones; then there is no fairness.
type Policy struct {
	Kind Kind
	// Bound is LocalBound's number of consecutive local handovers.
	Bound uint32
	// PhaseFair lets waiting readers pass waiting writers of their node when a writer gives the remote lock
	// up (and the reverse), and all of them have it together; otherwise task-fair: in order of arrival.
	PhaseFair bool
	// SharingNs bounds for how long readers may join local holders without
	// looking whether another node waits; then they look, and queue if one does.
	// 0 is the paper's: for ever, so that a node of readers starves remote
	// writers.
	SharingNs fabric.Time
	// SharingMaxNs is up to where that bound doubles, from one tenure to the next, while it runs out and
	// no client of the node wants to write. The handover to a writer elsewhere and back
	// takes tens of microseconds in which no client reads: where all others read, longer tenures pay for it. At least SharingNs.
	SharingMaxNs fabric.Time
	// Downgrade lets a node that holds the remote lock exclusively pass it to
	// its readers, and from them to its writers again, without acquiring it anew in
	// shared mode. (In the paper, the mode of the remote lock is that of the holders.)
	Downgrade bool
	// Yield excepts locks that other nodes want: one that no writer of the node waits for is given up, and the readers of all
	// nodes share it. Others want a lock if they are known to wait, or waited when this node released it last.
	Yield bool
	// Batch lets a node that gets the lock serve all its clients that wait at that time,
	// before it looks at other nodes: a waiter waits for at most one batch of each other node.
	Batch bool
	// Slack is by how much a remote waiter may have asked earlier than a local one that is
	// preferred to it all the same, by timestamp: in handovers between nodes, of
	// the length that this node has measured, at most maxSlack. It is what a remote waiter can lose.
	Slack uint32
	// Carry sends a lock's value along with its grant to another node (see lock.Keeper).
	Carry bool
	// Defer lets later holders of the node write the value of a release back, for
	// at most maxDefer.
	Defer bool
	// Train lets a release pass the lock to a run of nodes that wait, which one FAA takes off the header (docs/trains.md).
	Train bool
	// Phased lets all readers of such a run go behind its first writer.
	Phased bool
	// Lean releases do not read the queue unless another client waits, or did lately.
	Lean bool
}

// DefaultSharing and MaxSharing bound the shared tenure of the declock policies. A writer waits for MaxSharing and
// for the writers before it: with up to 32 writers well below 1 ms. See docs/findings.md for the sweep.
const (
	DefaultSharing = 20 * fabric.Microsecond
	MaxSharing     = 500 * fabric.Microsecond
)

// DefaultSlack is the slack of the declock policy, in handovers.
const DefaultSlack = 10

// maxDefer is for how long releases have others write a value back, from the first
// that does so: it bounds how long they wait. A WRITE of one's own costs little beside it.
const maxDefer = 50 * fabric.Microsecond

// maxSlack bounds the slack when handovers take long, because a node has not the CPU it wants.
const maxSlack = fabric.Millisecond

// Policies by the names that commands and results use. "paper-tf" and "paper-pf" are the
// timestamp policies to the letter of the paper; "declock-tf" and "declock-pf" bound shared tenure;
// "declock" is declock-pf with all features but slack, which gains nothing beside batch.
var policies = map[string]Policy{
	"cql":           {Kind: Flat},
	"remote-prefer": {Kind: RemotePrefer, PhaseFair: true},
	"local-prefer":  {Kind: LocalPrefer, PhaseFair: true},
	"local-bound":   {Kind: LocalBound, Bound: 4, PhaseFair: true},
	"declock": {Kind: ByTime, PhaseFair: true, SharingNs: DefaultSharing, SharingMaxNs: MaxSharing, Downgrade: true, Yield: true,
		Batch: true, Carry: true, Defer: true, Train: true, Phased: true, Lean: true},
	"declock-tf": {Kind: ByTime, SharingNs: DefaultSharing, SharingMaxNs: MaxSharing},
	"declock-pf": {Kind: ByTime, PhaseFair: true, SharingNs: DefaultSharing, SharingMaxNs: MaxSharing},
	"paper-tf":   {Kind: ByTime},
	"paper-pf":   {Kind: ByTime, PhaseFair: true},
}

// DefaultPolicy is the name of the policy that is used unless one is named.
const DefaultPolicy = "declock"

// Features that can be added to a policy, or taken from it: "declock-pf+batch+lean", "declock+no-train".
var features = map[string]func(*Policy){
	"downgrade": func(p *Policy) { p.Downgrade = true },
	"yield":     func(p *Policy) { p.Yield = true },
	"slack":     func(p *Policy) { p.Slack = DefaultSlack },
	"batch":     func(p *Policy) { p.Batch = true },
	"carry":     func(p *Policy) { p.Carry = true },
	"defer":     func(p *Policy) { p.Defer = true },
	"train":     func(p *Policy) { p.Train = true },
	"phased":    func(p *Policy) { p.Phased = true },
	"no-train":  func(p *Policy) { p.Train, p.Phased = false, false },
	"lean":      func(p *Policy) { p.Lean = true },
}

// PolicyNames lists the names of policies that ParsePolicy knows.
func PolicyNames() []string { return slices.Sorted(maps.Keys(policies)) }

// ParsePolicy returns the policy of a name. "local-bound:N" sets the bound; "+FEATURE" adds a feature.
func ParsePolicy(text string) (Policy, error) {
	name, rest, more := strings.Cut(text, "+")
	p, ok := policies[name]
	if !ok {
		var n uint32
		if _, err := fmt.Sscanf(name, "local-bound:%d", &n); err != nil || n == 0 || name != fmt.Sprintf("local-bound:%d", n) {
			return Policy{}, fmt.Errorf("%w %q: one of %s, or local-bound:N, with N from 1", ErrPolicy, name, strings.Join(PolicyNames(), ", "))
		}
		p = policies["local-bound"]
		p.Bound = n
	}
	for more {
		name, rest, more = strings.Cut(rest, "+")
		add := features[name]
		if add == nil {
			return Policy{}, fmt.Errorf("%w %q: no feature %q: one of %s", ErrPolicy, text, name, strings.Join(slices.Sorted(maps.Keys(features)), ", "))
		}
		if name == "no-train" && !p.Train {
			return Policy{}, fmt.Errorf("%w %q: no-train takes trains from a policy that has them: this one has not", ErrPolicy, text)
		}
		add(&p)
	}
	switch {
	case p.Phased && !p.Train:
		return Policy{}, fmt.Errorf("%w %q: phased orders the readers of trains: add +train", ErrPolicy, text)
	case p.Train && p.Kind == Flat:
		return Policy{}, fmt.Errorf("%w %q: without local locks there are no trains", ErrPolicy, text)
	}
	return p, nil
}

// admits reports whether a client may join the holders of a local lock without
// waiting: it is shared, and no client waits whom it would pass.
func (p *Policy) admits(x *local, m lock.Mode, clock fabric.Port) bool {
	if m != lock.Shared || x.state != held || x.mode != lock.Shared || x.holders == 0 || x.frozen || x.queue.head != nil {
		return false
	}
	if p.Kind == LocalBound {
		return x.streak < p.Bound
	}
	if p.SharingNs == 0 {
		return true
	}
	if x.stamp.Known() {
		return false
	}
	t := clock.Now()
	if x.sharing == 0 {
		x.sharing = t
	}
	x.expired = t-x.sharing >= max(x.bound, p.SharingNs)
	return !x.expired
}

// prolong sets the bound of the shared tenure that begins: it is twice the last one's, if that and the one before ran out
// and no client here has wanted to write since.
func (p *Policy) prolong(x *pace) {
	switch {
	case !x.expired:
		x.patience = 0
	case x.patience < readersOnly:
		x.patience++
	default:
		x.bound = min(2*max(x.bound, p.SharingNs), max(p.SharingMaxNs, p.SharingNs))
	}
	x.expired = false
}

// wanted records that a client of the node wants to write.
func (x *pace) wanted() { x.bound, x.expired = 0, false }

// readersOnly is after how many tenures that ran out the next are longer.
const readersOnly = 2

// successor returns the local waiter that the last holder passes the lock to while the node keeps the remote
// one: the first by arrival, if keeps allows it; nil: the remote lock is given up. Phases do not matter here (section 5.3: "if the
// first local waiter has an earlier timestamp than remote waiters, it can directly obtain ownership"). If the first
// reader went before writers that came before it, each of these would take two handovers between nodes.
func (p *Policy) successor(x *local, slackUs int16) *waiter {
	if w := x.queue.head; w != nil && p.keeps(x, w, slackUs) {
		return w
	}
	return nil
}

// nextOwner returns the local waiter that acquires the remote lock anew when the node has given it up:
// the first by arrival, or in the phase-fair policies the first of the mode that did not hold it (section 5.3).
func (p *Policy) nextOwner(x *local) *waiter {
	if p.PhaseFair {
		if w := x.queue.first(lock.Exclusive - x.mode); w != nil {
			return w
		}
	}
	return x.queue.head
}

// keeps reports whether the node keeps the remote lock for a local waiter
// (Fig. 10, lines 24 and 25), rather than give it up and acquire it again.
func (p *Policy) keeps(x *local, w *waiter, slackUs int16) bool {
	if x.frozen || x.seq == x.ticket.MaxSeq() || w.mode != x.ticket.Mode && (!p.downgrades(x) || w.mode == lock.Exclusive) {
		// In another mode the remote lock has to be acquired anew (section 5.3).
		return false
	}
	switch p.Kind {
	case LocalPrefer:
		return true
	case LocalBound:
		return x.streak < p.Bound
	case ByTime:
		return p.Batch && w.arrival < x.gate || first(w, x, slackUs)
	}
	return false
}

// remembers reports whether the node has to know whether others waited for a lock when it released it last.
func (p *Policy) remembers() bool { return p.Lean || p.Yield }

// downgrades reports whether the node may pass the remote lock to its readers while it holds it exclusively. Where a writer of the
// node waits behind them, that saves it the way to the memory node. Where none does, the lock leaves the node after these
// readers anyway: if others want it, they share it sooner when it is acquired anew.
func (p *Policy) downgrades(x *local) bool {
	if !p.Downgrade {
		return false
	}
	wanted := x.hot || x.stamp.Known()
	return !p.Yield || !wanted || x.queue.first(lock.Exclusive) != nil
}

// shares reports whether a waiting reader gets the lock along with a reader
// that has just got it (Fig. 10, line 16). The caller asks in order of arrival
// and, task-fair, stops at the first that does not.
func (p *Policy) shares(x *local, w *waiter, slackUs int16) bool {
	if w.mode != lock.Shared {
		return false
	}
	if p.Kind == LocalBound {
		return x.streak < p.Bound
	}
	return p.PhaseFair || first(w, x, slackUs)
}

// first reports whether a waiter comes before all that are known to wait elsewhere:
// it asked before them, or no more than slackUs after them.
func first(w *waiter, x *local, slackUs int16) bool {
	return !x.stamp.Known() || int16(w.stamp.Micros()-x.stamp.Micros()) <= slackUs
}
