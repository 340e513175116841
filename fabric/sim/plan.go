package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// ErrPlan is wrapped by what ParseFault and ParsePlan return.
var ErrPlan = errors.New("sim: bad fault plan")

// An Endpoint is a node in a fault plan: a compute node, or if CN is 0 a memory node.
type Endpoint struct {
	CN fabric.CNID
	MN fabric.MemID
}

// OfCN is the Endpoint of a compute node.
func OfCN(id fabric.CNID) Endpoint { return Endpoint{CN: id} }

// OfMN is the Endpoint of a memory node.
func OfMN(id fabric.MemID) Endpoint { return Endpoint{MN: id} }

func (e Endpoint) String() string {
	if e.CN != 0 {
		return e.CN.String()
	}
	return e.MN.String()
}

// Scan implements fmt.Scanner.
func (e *Endpoint) Scan(s fmt.ScanState, _ rune) error {
	text, err := s.Token(true, nil)
	if err != nil {
		return err
	}
	if _, err := fmt.Sscanf(string(text), "cn%d", &e.CN); err == nil && e.CN > 0 {
		return nil
	}
	if _, err := fmt.Sscanf(string(text), "mn%d", &e.MN); err == nil {
		return nil
	}
	return fmt.Errorf("%q is no node, such as cn1 or mn0", text)
}

// FaultKind is the kind of a fault.
type FaultKind uint8

// The kinds of faults. In brackets: the fields of Fault beyond At that they use.
const (
	FaultKill      FaultKind = iota // a node crashes [Node]
	FaultPause                      // a compute node stands still [Node, Until]
	FaultFence                      // a node is declared dead while it runs [Node]
	FaultRestart                    // a memory node crashes, and comes back empty in a new epoch [Node, Until]
	FaultCut                        // nothing passes from Node to Peer; what is sent comes later [Node, Peer, Until]
	FaultDelay                      // from Node to Peer everything takes longer [Node, Peer, Until, Delay]
	FaultDuplicate                  // messages from Node to Peer come twice, the second late [Node, Peer, Until, Delay]
	FaultReboot                     // a memory node crashes, and comes back with its memory in a new epoch [Node, Until]
	FaultDetach                     // a node is cut off from the coordinator: news and acknowledgements come later [Node, Until]
	FaultPromote                    // the first backup in sync of a number becomes its primary: a planned move [Node]
	FaultBackup                     // a memory node becomes a backup of number Node, in sync from Until on [Node, Peer, Until]
	FaultDrop                       // a memory node is a backup of number Node no more [Node, Peer]
	numFaultKinds
)

var faultNames = [numFaultKinds]string{"kill", "pause", "fence", "restart", "cut", "delay", "duplicate", "reboot", "detach", "promote", "backup", "drop"}

func (k FaultKind) String() string { return nameOf(faultNames[:], k) }

// hasPeer, hasDelay and hasUntil report which fields a kind uses.
func (k FaultKind) hasPeer() bool {
	return k == FaultCut || k.hasDelay() || k.ofReplicas() && k != FaultPromote
}
func (k FaultKind) hasDelay() bool { return k == FaultDelay || k == FaultDuplicate }
func (k FaultKind) hasUntil() bool {
	return k != FaultKill && k != FaultFence && k != FaultPromote && k != FaultDrop
}

// ofMemory reports whether a kind is of memory nodes; ofReplicas, of a replicated number.
func (k FaultKind) ofMemory() bool   { return k == FaultRestart || k == FaultReboot || k.ofReplicas() }
func (k FaultKind) ofReplicas() bool { return k == FaultPromote || k == FaultBackup || k == FaultDrop }

// A Fault is one thing that goes wrong. Times are virtual, in nanoseconds:
//
//	120000 kill cn2
//	50000 pause cn1 until 300000
//	60000 fence cn1
//	9000 restart mn0 until 15000
//	9000 reboot mn0 until 15000
//	9000 detach mn0 until 15000
//	9000 promote mn0
//	9000 backup mn0 mn2 until 15000
//	9000 drop mn0 mn2
//	10000 cut cn1 mn0 until 200000
//	5000 delay cn1 cn2 by 30000 until 100000
//	5000 duplicate cn1 cn2 by 30000 until 100000
type Fault struct {
	At         fabric.Time
	Kind       FaultKind
	Node, Peer Endpoint
	Until      fabric.Time
	Delay      fabric.Time
}

func (f Fault) String() string {
	s := fmt.Sprintf("%d %v %v", f.At, f.Kind, f.Node)
	if f.Kind.hasPeer() {
		s += " " + f.Peer.String()
	}
	if f.Kind.hasDelay() {
		s += fmt.Sprintf(" by %d", f.Delay)
	}
	if f.Kind.hasUntil() {
		s += fmt.Sprintf(" until %d", f.Until)
	}
	return s
}

// Validate says what is wrong with the fault, if anything.
func (f Fault) Validate() error {
	bad := func(what string) error { return fmt.Errorf("%w: %v: %s", ErrPlan, f, what) }
	switch {
	case f.Kind >= numFaultKinds:
		return bad("unknown kind")
	case f.At < 0:
		return bad("begins before time 0")
	case f.Kind.hasUntil() && f.Until <= f.At:
		return bad("ends before it begins")
	case f.Kind.ofMemory() && (f.Node.CN != 0 || f.Peer.CN != 0):
		return bad("is for memory nodes")
	case f.Kind == FaultPause && f.Node.CN == 0:
		return bad("is for compute nodes")
	case f.Kind.hasPeer() && !f.Kind.ofMemory() && f.Node.CN == f.Peer.CN:
		return bad("is for two nodes, one of them a compute node")
	case f.Kind == FaultDuplicate && (f.Node.CN == 0 || f.Peer.CN == 0):
		return bad("is for two compute nodes")
	case f.Delay < 0:
		return bad("takes a positive time")
	}
	return nil
}

// ParseFault reads the text of a Fault.
func ParseFault(text string) (f Fault, err error) {
	words := strings.Fields(text)
	kind := ""
	if len(words) > 1 {
		kind = words[1]
	}
	i := slices.Index(faultNames[:], kind)
	if i < 0 {
		return Fault{}, fmt.Errorf("%w: %q: no fault %q: there are %v", ErrPlan, text, kind, faultNames)
	}
	f.Kind = FaultKind(i)
	form, fields := "%d "+kind+" %v", []any{&f.At, &f.Node}
	if f.Kind.hasPeer() {
		form, fields = form+" %v", append(fields, &f.Peer)
	}
	if f.Kind.hasDelay() {
		form, fields = form+" by %d", append(fields, &f.Delay)
	}
	if f.Kind.hasUntil() {
		form, fields = form+" until %d", append(fields, &f.Until)
	}
	line := strings.Join(words, " ")
	if _, err = fmt.Sscanf(line, form, fields...); err == nil && f.String() != line {
		err = fmt.Errorf("it is read as %q", f.String())
	}
	if err != nil {
		form = strings.NewReplacer("%d", "NANOSECONDS", "%v", "NODE").Replace(form)
		return Fault{}, fmt.Errorf("%w: %q is not of the form %q: %w", ErrPlan, text, form, err)
	}
	return f, f.Validate()
}

// A Plan is a list of faults. Its text has them separated by semicolons or line ends.
type Plan []Fault

func (p Plan) String() string {
	list := make([]string, len(p))
	for i, f := range p {
		list[i] = f.String()
	}
	return strings.Join(list, "; ")
}

// ParsePlan reads the text of a Plan. Empty parts and lines that begin with # are skipped.
func ParsePlan(text string) (Plan, error) {
	var p Plan
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for _, part := range strings.Split(line, ";") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			f, err := ParseFault(part)
			if err != nil {
				return nil, err
			}
			p = append(p, f)
		}
	}
	return p, nil
}

// Shift returns the plan with everything later by d.
func (p Plan) Shift(d fabric.Time) Plan {
	q := make(Plan, len(p))
	for i, f := range p {
		f.At += d
		if f.Kind.hasUntil() {
			f.Until += d
		}
		q[i] = f
	}
	return q
}

// End returns the time at which the last fault of the plan is over. (Killed
// nodes stay so; they are fenced Config.DetectDelay later.)
func (p Plan) End() fabric.Time {
	var end fabric.Time
	for _, f := range p {
		end = max(end, f.At, f.Until)
	}
	return end
}

// Apply arranges for the faults of a plan to happen. All nodes must exist. It
// panics if a fault is not valid.
func (p Plan) Apply(c *Cluster) {
	for _, f := range p {
		if err := f.Validate(); err != nil {
			panic(err)
		}
		for _, e := range []Endpoint{f.Node, f.Peer} {
			if e.CN != 0 && c.cns[e.CN] == nil || e.CN == 0 && (e == f.Node || f.Kind.hasPeer()) && int(e.MN) >= len(c.mns) {
				panic(fmt.Sprintf("sim: fault %v: there is no %v", f, e))
			}
		}
		var paused *Node // by its end, another may have the number
		spared := false
		c.At(f.At, func() {
			paused = c.cns[f.Node.CN]
			if spared = f.ends() && c.cfg.KeepLast && (c.mn(f.Node.MN).dead || c.hasLast(c.mn(f.Node.MN))); !spared {
				f.begin(c)
			}
		})
		switch f.Kind {
		case FaultPause:
			c.At(f.Until, func() { c.Resume(paused) })
		case FaultRestart:
			c.At(f.Until, func() {
				if !spared {
					c.RestartMN(f.Node.MN)
				}
			})
		case FaultReboot:
			c.At(f.Until, func() {
				if !spared {
					c.RestartServer(f.Node.MN)
				}
			})
		}
	}
}

// ends reports whether a fault ends a memory node, or has it declared dead.
func (f Fault) ends() bool {
	return f.Node.CN == 0 && (f.Kind == FaultKill || f.Kind == FaultFence || f.Kind == FaultRestart || f.Kind == FaultReboot)
}

func (f Fault) begin(c *Cluster) {
	switch f.Kind {
	case FaultKill:
		if f.Node.CN == 0 {
			c.KillMN(f.Node.MN)
			return
		}
		c.Kill(c.cns[f.Node.CN])
	case FaultPause:
		c.Pause(c.cns[f.Node.CN])
	case FaultFence:
		if f.Node.CN == 0 {
			c.FenceMN(f.Node.MN)
			return
		}
		c.Fence(c.cns[f.Node.CN])
	case FaultPromote:
		_ = c.Promote(f.Node.MN) // if there is a backup in sync
	case FaultBackup:
		c.backUp(f.Node.MN, f.Peer.MN, f.Until)
	case FaultDrop:
		c.dropBackup(f.Node.MN, f.Peer.MN)
	case FaultRestart, FaultReboot:
		c.KillMN(f.Node.MN)
	case FaultCut:
		c.Cut(f.Node, f.Peer, f.Until)
	case FaultDelay:
		c.Delay(f.Node, f.Peer, f.Delay, f.Until)
	case FaultDuplicate:
		c.Duplicate(f.Node, f.Peer, f.Delay, f.Until)
	case FaultDetach:
		c.Detach(f.Node, f.Until)
	}
}

// PlanParams bounds what DrawPlan draws.
type PlanParams struct {
	CNs, MNs int
	// Faults is the largest number of faults; they begin before Horizon, and
	// what ends has ended by then.
	Faults  int
	Horizon fabric.Time
	// Kinds lists the kinds to draw from; a kind listed twice is twice as likely.
	Kinds []FaultKind
	// Spare is how many compute nodes are left alone by kill and fence: those with the
	// lowest numbers. At least 1 if there is to be progress.
	Spare int
}

// DrawPlan draws a plan. No node is killed or fenced twice.
func DrawPlan(r *Rand, q PlanParams) Plan {
	var p Plan
	if len(q.Kinds) == 0 || q.Faults == 0 || q.Horizon < 2 || q.CNs == 0 {
		return p
	}
	gone := map[fabric.CNID]bool{}
	cn := func() Endpoint { return OfCN(fabric.CNID(1 + r.Uint64n(uint64(q.CNs)))) }
	mn := func() Endpoint { return OfMN(fabric.MemID(r.Uint64n(uint64(q.MNs)))) }
	for n := r.Uint64n(uint64(q.Faults) + 1); n > 0; n-- {
		f := Fault{Kind: q.Kinds[r.Uint64n(uint64(len(q.Kinds)))], At: fabric.Time(r.Uint64n(uint64(q.Horizon - 1)))}
		// Short and long ones: the length is drawn twice.
		length := 1 + r.Uint64n(1+r.Uint64n(uint64(q.Horizon-f.At)))
		f.Node = cn()
		switch {
		case (f.Kind.ofMemory() || f.Kind == FaultDetach && r.Uint64n(2) == 0) && q.MNs > 0:
			f.Node = mn()
		case f.Kind.hasPeer():
			f.Peer = cn()
			if f.Kind != FaultDuplicate && q.MNs > 0 && (q.CNs < 2 || r.Uint64n(2) == 0) {
				f.Peer = mn()
			}
			if r.Uint64n(2) == 0 {
				f.Node, f.Peer = f.Peer, f.Node
			}
		case f.Kind == FaultKill || f.Kind == FaultFence:
			if int(f.Node.CN) <= q.Spare || gone[f.Node.CN] {
				continue
			}
			gone[f.Node.CN] = true
		}
		if f.Kind.hasUntil() {
			f.Until = min(f.At+fabric.Time(length), q.Horizon)
		}
		if f.Kind.hasDelay() {
			f.Delay = fabric.Time(1 + r.Uint64n(length))
		}
		if f.Validate() == nil {
			p = append(p, f)
		}
	}
	return p
}
