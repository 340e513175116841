package fabrictest_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
)

// A badPort is a good Port with one bug.
type badPort struct {
	fabric.Port
	bug   string
	own   []byte
	sent  int
	held  []fabric.Message
	late  []fabric.Op
	drift fabric.Time
	stats fabric.Stats
}

// planted lists the bugs, and a part of the name of a test that must catch each.
var planted = []struct{ bug, caughtBy string }{
	{"none", ""},
	{"FAA returns the new value", "FAA_adds"},
	{"FAA is a Load and a Store", "FAAs_of_many_clients"},
	{"CAS is a Load and a Store", "CAS_elects"},
	{"Load is two READs", "Load_and_Store_are_not_torn"},
	{"big-endian Load", "little-endian"},
	{"chains backwards", "a_chain_executes_in_order"},
	{"the rest of a chain is executed after an error", "behind_it_none"},
	{"nothing of a failing chain is executed", "behind_it_none"},
	{"any buffer", "not_the_Port's"},
	{"FAA takes effect late", "comes_after_the_effects"},
	{"every 1000th message is lost", "Send_never_blocks"},
	{"two messages change places", "messages_are_FIFO"},
	{"Send does not copy", "Send_copies"},
	{"a deadline is early", "ErrDeadline"},
	{"Interrupt is not sticky", "until_ClearInterrupt"},
	{"Interrupt before messages", "in_spite_of_Interrupt"},
	{"Pause eats messages", "leaves_messages"},
	{"Abandon drops the inbox", "leaves_the_old_inbox"},
	{"Alloc leaves old bytes", "zero_again"},
	{"Close twice is an error", "idempotent"},
	{"a Do succeeds without results when its Port is closed", "a_Port_that_another_client_closes"},
	{"Fail is Close", "leaves_by_Fail"},
	{"Do is not counted", "Stats_counts"},
	{"Do allocates", "Do_allocates"},
	{"the clock steps back", "never_steps_back"},
}

func (p *badPort) Do(ops []fabric.Op) error {
	one := func(o fabric.Op) (fabric.Op, error) {
		list := []fabric.Op{o}
		err := p.Port.Do(list)
		return list[0], err
	}
	first := fabric.OpNone
	if len(ops) == 1 {
		first = ops[0].Kind
	}
	switch {
	case p.bug == "FAA returns the new value":
		err := p.Port.Do(ops)
		for i := range ops {
			if ops[i].Kind == fabric.OpFAA {
				ops[i].Old += ops[i].Arg
			}
		}
		return err
	case p.bug == "FAA is a Load and a Store" && first == fabric.OpFAA:
		o, err := one(fabric.Load(ops[0].Addr))
		if err != nil {
			return err
		}
		ops[0].Old = o.Old
		_, err = one(fabric.Store(o.Addr, o.Old+ops[0].Arg))
		return err
	case p.bug == "CAS is a Load and a Store" && first == fabric.OpCAS:
		o, err := one(fabric.Load(ops[0].Addr))
		if ops[0].Old = o.Old; err == nil && o.Old == ops[0].Cmp {
			_, err = one(fabric.Store(o.Addr, ops[0].Arg))
		}
		return err
	case p.bug == "Load is two READs" && first == fabric.OpRead && ops[0].Buf == nil && ops[0].Addr%8 == 0:
		b := p.Alloc(8)
		defer p.Free(b)
		for i := range 2 {
			if _, err := one(fabric.Read(ops[0].Addr.Add(uint64(4*i)), b[4*i:4*i+4])); err != nil {
				return err
			}
		}
		ops[0].Old = 0
		for i := range b {
			ops[0].Old |= uint64(b[i]) << (8 * i)
		}
		return nil
	case p.bug == "chains backwards" && len(ops) > 1:
		back := make([]fabric.Op, len(ops))
		for i := range ops {
			back[len(ops)-1-i] = ops[i]
		}
		err := p.Port.Do(back)
		for i := range ops {
			ops[i] = back[len(ops)-1-i]
		}
		return err
	}
	return p.doMore(ops, one)
}

func (p *badPort) doMore(ops []fabric.Op, one func(fabric.Op) (fabric.Op, error)) error {
	switch p.bug {
	case "big-endian Load":
		err := p.Port.Do(ops)
		for i := range ops {
			if o := &ops[i]; o.Kind == fabric.OpRead && o.Buf == nil {
				o.Old = o.Old>>56 | o.Old<<56 | o.Old&0x00ff_ffff_ffff_ff00
			}
		}
		return err
	case "the rest of a chain is executed after an error":
		err := p.Port.Do(ops)
		var ce *fabric.ChainError
		if errors.Is(err, fabric.ErrOutOfBounds) && errors.As(err, &ce) {
			for i := ce.Index + 1; i < len(ops); i++ {
				one(ops[i])
			}
		}
		return err
	case "nothing of a failing chain is executed":
		for i := range ops {
			if ops[i].Addr.Offset()+uint64(ops[i].Size()) > 1<<20 {
				return &fabric.ChainError{Index: i, Op: ops[i], Err: fabric.ErrOutOfBounds}
			}
		}
	case "any buffer":
		for i := range ops {
			if len(ops[i].Buf) > 0 && len(ops[i].Buf) <= len(p.own) {
				ops[i].Buf = p.own[:len(ops[i].Buf)]
			}
		}
	case "FAA takes effect late":
		p.catchUp()
		if len(ops) == 1 && ops[0].Kind == fabric.OpFAA {
			p.late = append(p.late, ops[0])
			return nil
		}
	case "a Do succeeds without results when its Port is closed":
		if err := p.Port.Do(ops); !errors.Is(err, fabric.ErrClosed) {
			return err
		}
		return nil
	case "Do allocates":
		list := append([]fabric.Op(nil), ops...)
		err := p.Port.Do(list)
		copy(ops, list)
		return err
	}
	return p.Port.Do(ops)
}

// catchUp executes what should have been executed long ago.
func (p *badPort) catchUp() {
	if p.late != nil {
		p.Port.Do(p.late)
		p.late = nil
	}
}

func (p *badPort) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.sent++; p.bug == "every 1000th message is lost" && p.sent%1000 == 0 {
		return nil
	}
	if p.bug == "Send does not copy" && p.sent > 1 {
		m = &fabric.Message{Kind: m.Kind, Body: [7]uint64{99999}}
	}
	return p.Port.Send(to, m)
}

func (p *badPort) Recv(deadline fabric.Time) (fabric.Message, error) {
	if len(p.held) > 0 {
		m := p.held[0]
		p.held = p.held[1:]
		return m, nil
	}
	switch p.bug {
	case "a deadline is early":
		if deadline > p.Now() {
			deadline = min(deadline, p.Now()+50*fabric.Microsecond)
		}
	case "Interrupt before messages":
		if p.drift != 0 {
			return fabric.Message{}, fabric.ErrInterrupted
		}
	}
	m, err := p.Port.Recv(deadline)
	p.catchUp()
	switch {
	case p.bug == "two messages change places" && err == nil:
		if second, err := p.Port.Recv(0); err == nil {
			p.held = append(p.held, m)
			return second, nil
		}
	case p.bug == "Interrupt is not sticky" && errors.Is(err, fabric.ErrInterrupted):
		p.ClearInterrupt()
	}
	return m, err
}

func (p *badPort) Pause(until fabric.Time) error {
	err := p.Port.Pause(until)
	if p.bug == "Pause eats messages" {
		p.Port.Recv(0)
	}
	return err
}

func (p *badPort) Interrupt() {
	if p.bug == "Interrupt before messages" {
		p.drift = 1
	}
	p.Port.Interrupt()
}

func (p *badPort) ClearInterrupt() {
	p.drift = 0
	p.Port.ClearInterrupt()
}

func (p *badPort) Abandon() error {
	for p.bug == "Abandon drops the inbox" {
		if _, err := p.Port.Recv(0); err != nil {
			break
		}
	}
	return p.Port.Abandon()
}

func (p *badPort) Free(buf []byte) {
	if p.bug == "Alloc leaves old bytes" {
		p.own = buf
	}
	p.Port.Free(buf)
}

func (p *badPort) Alloc(n int) []byte {
	b := p.Port.Alloc(n)
	if p.bug == "Alloc leaves old bytes" && p.own != nil && n > 0 {
		b[0] = 1
	}
	if p.bug == "any buffer" && p.own == nil {
		p.own = p.Port.Alloc(4096)
	}
	return b
}

func (p *badPort) Stats() *fabric.Stats {
	if p.bug == "Do is not counted" {
		return &p.stats
	}
	return p.Port.Stats()
}

func (p *badPort) Now() fabric.Time {
	if p.bug == "the clock steps back" {
		p.drift = 5000 - p.drift
		return p.Port.Now() - p.drift
	}
	return p.Port.Now()
}

func (p *badPort) Close() error {
	err := p.Port.Close()
	if p.sent++; p.bug == "Close twice is an error" && p.sent > 1 {
		return fabric.ErrClosed
	}
	return err
}

// A badNode opens badPorts.
type badNode struct {
	fabric.Node
	bug   string
	agent *badPort
}

func (n *badNode) Open() (fabric.Port, error) {
	p, err := n.Node.Open()
	return &badPort{Port: p, bug: n.bug}, err
}

func (n *badNode) Agent() fabric.Port { return n.agent }

func (n *badNode) Fail() error {
	if n.bug == "Fail is Close" {
		return n.Close()
	}
	return n.Node.Fail()
}

type badHarness struct{ bug string }

type badCluster struct{ simCluster }

func (h badHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	b := &badCluster{*simHarness{}.Start(t, cfg).(*simCluster)}
	for i, n := range b.nodes {
		b.nodes[i] = &badNode{n, h.bug, &badPort{Port: n.Agent(), bug: h.bug}}
	}
	return b
}

func (b *badCluster) Go(p fabric.Port, body func(fabric.Port)) {
	b.simCluster.Go(p.(*badPort).Port, func(fabric.Port) { body(p) })
}

func (b *badCluster) Close() { b.c.Close() }

var _ fabric.Port = (*sim.Port)(nil)

const plantedEnv = "DECLOCK_FABRICTEST_PLANTED"

// TestPlanted fails: it runs the suite on each bug, in a process of its own.
func TestPlanted(t *testing.T) {
	if os.Getenv(plantedEnv) == "" {
		t.Skip("run by TestSuiteCatchesPlantedBugs")
	}
	for _, b := range planted {
		t.Run(b.bug, func(t *testing.T) { fabrictest.Run(t, badHarness{b.bug}) })
	}
}

// Each planted bug fails the test that bears the sentence which it breaks, and no bug fails none.
func TestSuiteCatchesPlantedBugs(t *testing.T) {
	if fabrictest.RaceEnabled {
		t.Skip("the cost of allocations is not tested under the race detector")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestPlanted$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), plantedEnv+"=1")
	out, _ := cmd.CombinedOutput()
	fails := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		line, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: TestPlanted/")
		if !ok {
			continue
		}
		if parts := strings.SplitN(line, "/", 3); len(parts) == 3 {
			fails[parts[0]] = append(fails[parts[0]], strings.Fields(parts[2])[0])
		}
	}
	for _, b := range planted {
		got := fails[strings.ReplaceAll(b.bug, " ", "_")]
		caught := b.caughtBy == "" && len(got) == 0
		for _, name := range got {
			caught = caught || b.caughtBy != "" && strings.Contains(name, b.caughtBy)
		}
		if !caught {
			t.Errorf("bug %q: want a failure of %q, got %q", b.bug, b.caughtBy, got)
		}
	}
	if t.Failed() {
		t.Logf("%.4000s", out)
	}
}

func TestConformanceOfTheExample(t *testing.T) { fabrictest.Run(t, simHarness{}) }
