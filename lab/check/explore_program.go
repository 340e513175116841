package check

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
)

// An Exploration is a small program of which all schedules are tried: clients
// on one lock, which acquire and release it in a mode of their own.
type Exploration struct {
	Policy  string
	Clients string // "1x 1s 2x": of cn1 exclusive, of cn1 shared, of cn2 exclusive; "1r", with Failover: it reads without the lock; "1u", "1g": for update, and upgraded then
	Rounds  int    // of each client
	// Capacity and Version are the bits of the layout: 1 and more rounds make the queue wrap,
	// 2 the versions.
	Capacity, Version uint8
	// Used: so many acquisitions have been before, so that versions wear out earlier.
	Used int
	// Cancel: the first client may be interrupted at any point.
	Cancel bool
	// Reset: the first client asks for a reset of the lock before it acquires it, so its node leads one.
	Reset bool
	// Crashes: the nodes of so many clients, the first ones, each of a node of its own, may crash at any point.
	Crashes int
	// Restart: the memory node may restart, with its memory, at any point.
	Restart bool
	// Cut: any link between two compute nodes may be cut for good, at any point.
	Cut Cut
	// Failover: the memory node is replicated, and its primary is replaced, from any point on.
	Failover Failover
	// Near: so many nodes, from the first on, are on the memory node's machine, and their clients reach it by CPU; atomics of the NIC are none to CPUs.
	Near int
	// Second: the lock is on the second of two memory nodes, so that its home, if that depends on the memory node, is the second compute node.
	Second bool
	// SentBack, if not 0, bounds how many messages are sent back in a schedule: those for an agent (of FissLock) that is not there yet, or no more. A schedule with more is
	// not gone on with: it may have any number.
	SentBack int
	// CountMax, if not 0, is where DSLR's counters are reset.
	CountMax int
	// News: each node learns of a crash at a point of its own; otherwise all learn of it at once.
	News bool
}

// A Cut says in which directions a link is cut.
type Cut uint8

// In no direction, one, or both.
const (
	Whole Cut = iota
	OneWay
	BothWays
)

// cutNames are the words for links that are cut.
var cutNames = [...]string{Whole: "", OneWay: ", a link cut", BothWays: ", a link cut both ways"}

// crashNames are the words for the number of crashes.
var crashNames = []string{"", ", one crash", ", two crashes", ", three crashes"}

func (x Exploration) String() string {
	s := fmt.Sprintf("%s [%s] x%d, %d entries, %d version bits", x.Policy, x.Clients, x.Rounds, 1<<x.Capacity, x.Version)
	if x.Used > 0 {
		s += fmt.Sprintf(", used %d times", x.Used)
	}
	if x.Cancel {
		s += ", one cancellation"
	}
	if x.Reset {
		s += ", a reset"
	}
	if x.Restart {
		s += ", one restart"
	}
	s += crashNames[x.Crashes] + cutNames[x.Cut] + failoverNames[x.Failover]
	if x.Near > 0 {
		s += fmt.Sprintf(nearName, x.Near)
	}
	if x.SentBack > 0 {
		s += fmt.Sprintf(sentBackName, x.SentBack)
	}
	if x.CountMax > 0 {
		s += fmt.Sprintf(countsName, x.CountMax)
	}
	if x.Second {
		s += secondName
	}
	if x.News {
		s += newsName
	}
	return s
}

// countsName says where counters are reset.
const countsName = ", counters to %d"

// secondName says which memory node has the lock.
const secondName = ", on mn1"

// sentBackName says how many messages are sent back at most.
const sentBackName = ", at most %d sent back"

// nearName says how many nodes are on the memory node's machine.
const nearName = ", %d near"

// newsName says that nodes learn of crashes one by one.
const newsName = ", news one by one"

// ParseExploration parses what Exploration.String prints.
func ParseExploration(text string) (Exploration, error) {
	var x Exploration
	bad := fmt.Errorf("%w: %q is no program of sim explore, such as %q", ErrScenario, text, Explorations(true, "")[0])
	rest, news := strings.CutSuffix(text, newsName)
	x.News = news
	rest, x.Second = strings.CutSuffix(rest, secondName)
	if i := strings.LastIndex(rest, ","); i >= 0 && strings.HasPrefix(rest[i:], ", counters to ") {
		_, _ = fmt.Sscanf(rest[i:], countsName, &x.CountMax)
		rest = rest[:i]
	}
	if i := strings.LastIndex(rest, ","); strings.HasSuffix(rest, " sent back") && i >= 0 {
		_, _ = fmt.Sscanf(rest[i:], sentBackName, &x.SentBack)
		rest = rest[:i]
	}
	if i := strings.LastIndex(rest, ","); strings.HasSuffix(rest, " near") && i >= 0 {
		_, _ = fmt.Sscanf(rest[i:], nearName, &x.Near)
		rest = rest[:i]
	}
	for i, name := range failoverNames[1:] {
		if over, ok := strings.CutSuffix(rest, name); ok {
			rest, x.Failover = over, Failover(i+1)
		}
	}
	for i, name := range cutNames[1:] {
		if cut, ok := strings.CutSuffix(rest, name); ok {
			rest, x.Cut = cut, Cut(i+1)
		}
	}
	for i, name := range crashNames[1:] {
		if cut, ok := strings.CutSuffix(rest, name); ok {
			rest, x.Crashes = cut, i+1
		}
	}
	rest, x.Restart = strings.CutSuffix(rest, ", one restart")
	rest, x.Reset = strings.CutSuffix(rest, ", a reset")
	rest, cancel := strings.CutSuffix(rest, ", one cancellation")
	policy, rest, ok1 := strings.Cut(rest, " [")
	clients, rest, ok2 := strings.Cut(rest, "] ")
	entries := 0
	n, _ := fmt.Sscanf(rest, "x%d, %d entries, %d version bits, used %d times", &x.Rounds, &entries, &x.Version, &x.Used)
	if !ok1 || !ok2 || n < 3 {
		return x, bad
	}
	x.Policy, x.Clients, x.Cancel = policy, clients, cancel
	x.Capacity = uint8(bits.Len(uint(max(entries, 1))) - 1)
	if _, err := hier.ParsePolicy(policy); err != nil && baselineOf(policy) == nil {
		return x, fmt.Errorf("%w: %v", ErrScenario, err)
	}
	if err := (cql.Layout{CapacityBits: x.Capacity, VersionBits: x.Version}).Validate(); err != nil {
		return x, fmt.Errorf("%w: %v", ErrScenario, err)
	}
	for _, c := range strings.Fields(clients) {
		if len(c) != 2 || c[0] < '1' || c[0] > '9' || c[1] != 'r' && !strings.Contains("sxug", c[1:]) || c[1] == 'r' && x.Failover == Stays {
			return x, bad
		}
	}
	if f := baselineOf(policy); x.CountMax < 0 || x.CountMax > 1<<15 || x.CountMax > 0 && (f == nil || !f.cycles) {
		return x, bad
	}
	if x.String() != text || x.Rounds < 1 || x.Used < 0 || x.Near < 0 || x.SentBack < 0 || x.Second && x.Failover != Stays || x.Used > 1000 || clients == "" || !x.crashable() {
		return x, bad
	}
	return x, nil
}

// updates reports whether a client acquires the lock for update.
func (x *Exploration) updates() bool { return strings.ContainsAny(x.Clients, "ug") }

// together reports whether two of the clients are of one node.
func (x *Exploration) together() bool {
	var seen fabric.CNSet
	for _, c := range strings.Fields(x.Clients) {
		cn := fabric.CNID(c[0] - '0')
		if seen.Has(cn) {
			return true
		}
		seen.Add(cn)
	}
	return false
}

// wears reports whether versions wear out, so that the lock is reset.
func (x *Exploration) wears() bool {
	return x.Used+len(strings.Fields(x.Clients))*x.Rounds > (1<<x.Version-2)<<x.Capacity
}

// crashable reports whether the clients whose nodes may crash are each of a node of their own, and the first has the lowest number.
func (x *Exploration) crashable() bool {
	who := strings.Fields(x.Clients)
	if x.Crashes < 2 {
		return true
	}
	for i := range x.Crashes {
		if i >= len(who) || int(who[i][0]-'1') != i {
			return false
		}
	}
	return true
}
