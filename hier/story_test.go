package hier_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lock"
)

// Stories: scripts in testdata/*.txt, and what happened on the memory node and
// between the nodes. After each command virtual time goes on by 50 us, enough
// for everything that can happen to happen. Rewrite with -rewrite, and read the difference.
//
//	cluster cns=N capacity=2^c policy=NAME [versionbits=V] [from=US]
//	acquire CLIENT LOCK MODE [try] [deadline=US after now]
//	release CLIENT LOCK
//	stall CLIENT KIND    the client stops before its next READ, WRITE, FAA or ABANDON
//	resume CLIENT        and goes on
//	reset cn=N LOCK      a client of cnN says that the lock is corrupt
//	kill cn=N
//	run us=N
//	header LOCK          as it is
//	queue LOCK           its entries
//
// Clients are named after their node: c1, c1b and c1c are clients of cn1. Locks are x, y, z.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if !strings.HasSuffix(path, ".txt") {
			return
		}
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "cluster" {
				s = newStory(t, d)
				return s.flush()
			}
			s.command(t, d)
			us := 50
			d.MaybeScanArgs(t, "us", &us)
			if err := s.r.c.RunUntil(s.r.c.Now() + fabric.Time(us)*fabric.Microsecond); err != nil {
				t.Fatal(err)
			}
			return s.flush()
		})
	})
}

type story struct {
	r       *rig
	clients []*actor
	log     []string
}

// An actor is a client of a story.
type actor struct {
	name    string
	cn      int
	port    *sim.Port
	k       *hier.Locker
	ids     []fabric.ClientID // all that it ever had
	holds   map[string]*lock.Hold
	stalled string // before what it stops
	stuck   bool
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	s := &story{}
	var cns, capacity, from int
	policy, bits := "", 16
	d.ScanArgs(t, "cns", &cns)
	d.ScanArgs(t, "capacity", &capacity)
	d.ScanArgs(t, "policy", &policy)
	d.MaybeScanArgs(t, "versionbits", &bits)
	d.MaybeScanArgs(t, "from", &from)
	y, err := cql.LayoutFor(capacity)
	if err != nil {
		t.Fatal(err)
	}
	y.VersionBits = uint8(bits)
	s.r = newRig(t, 1, cns, policy, y, unsynced, simulated(sim.Config{Observer: s, Late: sim.LateDrop}))
	for _, n := range s.r.nodes {
		// The simulator does not run on for agents alone.
		s.r.c.Go(n, "idler", func(p fabric.Port) { _, _ = p.Recv(fabric.Forever) })
	}
	if err := s.r.c.RunUntil(fabric.Time(from) * fabric.Microsecond); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *story) flush() string {
	log := s.log
	s.log = nil
	if len(log) == 0 {
		return "ok"
	}
	return strings.Join(log, "\n")
}

func (s *story) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if strings.Contains(line, "READ header") && slices.Contains(s.log, line) {
		return // polls
	}
	s.log = append(s.log, line)
}

func (s *story) actor(name string) *actor {
	for _, a := range s.clients {
		if a.name == name {
			return a
		}
	}
	a := &actor{name: name, cn: int(name[1] - '1'), holds: map[string]*lock.Hold{}}
	p, err := s.r.nodes[a.cn].Open()
	if err != nil {
		panic(err)
	}
	a.port = p.(*sim.Port)
	a.ids = append(a.ids, p.ID())
	a.k = s.r.hooked(a.cn, p, &hookPort{
		do: func(p fabric.Port, ops []fabric.Op) error {
			for i := range ops {
				if a.stalled == ops[i].Kind.String() {
					if err := p.Do(ops[:i]); err != nil {
						return err
					}
					s.stop(a)
					return p.Do(ops[i:])
				}
			}
			return p.Do(ops)
		},
		abandon: func(p fabric.Port) error {
			err := p.Abandon()
			a.ids = append(a.ids, p.ID())
			s.say("%s hands its ticket to the agent", a.name)
			if a.stalled == "ABANDON" {
				s.stop(a)
			}
			return err
		},
	})
	s.clients = append(s.clients, a)
	return a
}

func (s *story) stop(a *actor) {
	s.say("%s stops before %s", a.name, a.stalled)
	a.stuck = true
	for a.stuck {
		_ = a.port.Pause(a.port.Now() + fabric.Microsecond)
	}
}

func (s *story) lock(name string) fabric.Addr { return s.r.lock(int(name[0] - 'x')) }

func (s *story) command(t *testing.T, d *datadriven.TestData) {
	arg := func(i int) string { return d.CmdArgs[i].Key }
	switch d.Cmd {
	case "acquire":
		a, name := s.actor(arg(0)), arg(1)
		r := lock.Request{Lock: s.lock(name), Mode: lock.Shared, Try: d.HasArg("try")}
		if arg(2) == "exclusive" {
			r.Mode = lock.Exclusive
		}
		var after int
		if d.MaybeScanArgs(t, "deadline", &after); after > 0 {
			r.Deadline = s.r.c.Now() + fabric.Time(after)*fabric.Microsecond
		}
		s.r.c.GoOn(a.port, a.name, func(fabric.Port) {
			h := new(lock.Hold)
			if err := a.k.Acquire(h, &r); err != nil {
				s.say("%s: %v", a.name, err)
				return
			}
			a.holds[name] = h
			s.say("%s HOLDS %s %v, token %d.%d", a.name, name, r.Mode, h.Token>>10, h.Token&cql.MaxSeq)
		})
	case "release":
		a, name := s.actor(arg(0)), arg(1)
		s.r.c.GoOn(a.port, a.name, func(fabric.Port) {
			if err := a.k.Release(a.holds[name], nil); err != nil {
				s.say("%s: %v", a.name, err)
				return
			}
			s.say("%s has released %s", a.name, name)
		})
	case "stall":
		s.actor(arg(0)).stalled = arg(1)
	case "resume":
		a := s.actor(arg(0))
		a.stalled, a.stuck = "", false
	case "reset":
		var cn int
		d.ScanArgs(t, "cn", &cn)
		i := int(arg(1)[0] - 'x')
		s.r.c.Go(s.r.nodes[cn-1], "asks", func(p fabric.Port) { s.r.askReset(cn-1, p, i, cql.Corruption) })
	case "kill":
		var cn int
		d.ScanArgs(t, "cn", &cn)
		s.r.c.Kill(s.r.nodes[cn-1])
	case "header":
		s.say("%s", s.r.cfg.Layout.FormatHeader(cql.Header(s.r.c.PeekWord(s.lock(arg(0))))))
	case "queue":
		for i := range s.r.cfg.Layout.Capacity() {
			s.say("[%d] %s", i, s.entry(cql.Entry(s.r.c.PeekWord(s.lock(arg(0)).Add(8+8*i)))))
		}
	case "run":
	default:
		t.Fatalf("unknown command %s", d.Cmd)
	}
}

// entry returns an entry for people, without its timestamp.
func (s *story) entry(e cql.Entry) string {
	if e == 0 {
		return "-"
	}
	return fmt.Sprintf("%v %s version %d", e.Mode(), s.name(e.Client()), e.Version())
}

func (s *story) name(id fabric.ClientID) string {
	if id.IsAgent() {
		return fmt.Sprintf("agent%d", id.CN())
	}
	for _, a := range s.clients {
		if i := slices.Index(a.ids, id); i >= 0 {
			return a.name + strings.Repeat("'", len(a.ids)-1-i) // ' : an ID that it has given up
		}
	}
	return "client of " + id.CN().String()
}

var kindNames = []string{"GRANT", "GRANT-RANGE", "RESET", "RESET-ACK", "ASK-RESET", "ABORT", "QUIESCED", "REPORT", "MEMBERS"}

// Observe writes down what happens to locks.
func (s *story) Observe(e *sim.Event) {
	switch {
	case e.Step == sim.StepSend && e.Msg.Kind == fabric.MsgHier:
		s.say("%s -> %s: WAKE", s.name(e.Client), s.name(e.To))
	case e.Step == sim.StepSend && e.Msg.Kind >= fabric.MsgCQL && int(e.Msg.Kind-fabric.MsgCQL) < len(kindNames):
		text := kindNames[e.Msg.Kind-fabric.MsgCQL]
		switch e.Msg.Kind {
		case kindGrant:
			text += fmt.Sprintf(" of index %d", e.Msg.Body[1])
			if b := cql.Stamp(e.Msg.Body[2]); b.Known() {
				text += ", others wait behind it"
			}
			text += s.train(e.Msg)
		case fabric.MsgCQL + 7:
			text += fmt.Sprintf(" to index %d", e.Msg.Body[1])
		case fabric.MsgCQL + 1:
			text += fmt.Sprintf(" of indices %d to %d", e.Msg.Body[1], e.Msg.Body[2]-1)
		case fabric.MsgCQL + 4:
			text += fmt.Sprintf(" (%v)", cql.Reason(e.Msg.Body[2]))
		}
		s.say("%s -> %s: %s", s.name(e.Client), s.name(e.To), text)
	case e.Step == sim.StepEffect && e.Op.Addr.Offset() >= locksAt:
		s.op(e)
	}
}

// train says what a grant says of a train: see docs/trains.md.
func (s *story) train(m *fabric.Message) (text string) {
	w2, w3 := m.Body[2], m.Body[3]
	if w3>>24&1 == 0 {
		return ""
	}
	text = fmt.Sprintf(", place %d of a train", w2>>17&31)
	n := int(w3 >> 19 & 31)
	if n == 0 {
		return text + fmt.Sprintf(", reports to place %d", w2>>42&31)
	}
	for place := range 25 {
		if w2>>22>>place&1 != 0 {
			text += fmt.Sprintf(", after the report of %d", place)
		}
	}
	text += ", of"
	for i := range min(n, 9) {
		w := m.Body[4+int(w3>>17&3)+i/3] >> (21 * (i % 3))
		text += fmt.Sprintf(" %s %v", s.name(fabric.ClientID(w&(1<<20-1))), lock.Mode(w>>20&1))
	}
	return text
}

func (s *story) op(e *sim.Event) {
	off := e.Op.Addr.Offset() - locksAt
	x, slot := string(rune('x'+off/lockSpan)), int(off%lockSpan)/8-1
	y := s.r.cfg.Layout
	who := s.name(e.Client)
	old, now := cql.Header(e.Old), cql.Header(e.New)
	switch op := e.Op; {
	case op.Kind == fabric.OpFAA:
		what, writers := "enters", y.Writers(now)-y.Writers(old)
		if y.Head(now) != y.Head(old) {
			what, writers = "leaves", y.Writers(old)-y.Writers(now)
		}
		if n := y.Head(now) - y.Head(old); n > 1 && n < 16 {
			s.say("%s FAA %s: %d leave, %d writers, was %s", who, x, n, writers, y.FormatHeader(old))
			break
		}
		s.say("%s FAA %s: %s %s, was %s", who, x, []string{"reader", "writer"}[writers&1], what, y.FormatHeader(old))
	case op.Kind == fabric.OpCAS && old == now:
		s.say("%s CAS %s failed", who, x)
	case op.Kind == fabric.OpCAS:
		s.say("%s CAS %s: now %s", who, x, y.FormatHeader(now))
	case op.Kind == fabric.OpWrite && slot < 0:
		s.say("%s WRITE %s: now %s", who, x, y.FormatHeader(now))
	case op.Kind == fabric.OpWrite && op.Buf != nil:
		s.say("%s WRITE queue of %s: empty", who, x)
	case op.Kind == fabric.OpWrite:
		s.say("%s WRITE %s[%d]: %s", who, x, slot, s.entry(cql.Entry(e.New)))
	case op.Buf == nil:
		s.say("%s READ header of %s", who, x)
	case slot < 0:
		s.say("%s READ %s", who, x)
	default:
		s.say("%s READ queue of %s", who, x)
	}
}
