package sim_test

import (
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/pswitch"
	"github.com/declock/declock/fabric/sim"
)

// counting sends a packet back with the number of packets of its client so far, and a copy of it to all that Body[1] names, by bits.
type counting struct{ seen *pswitch.Array }

func newCounting(t *testing.T) *counting {
	m := pswitch.Memory{}
	a, err := m.Array(16, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &counting{a}
}

func (k *counting) Packet(pass *pswitch.Pass, in *fabric.Message) {
	out := *in
	out.Body[0] = 1 + pass.Update(k.seen, int(in.From.CN()), func(old uint64) uint64 { return old + 1 })
	for cn := fabric.CNID(1); cn < 16; cn++ {
		if in.From.CN() == cn || in.Body[1]>>cn&1 != 0 {
			pass.Send(fabric.Client(cn, 1), &out)
		}
	}
}

// A packet is answered after one message's time: half of it there, and half back. What it is multicast to takes no longer.
func TestSwitchIsHalfWay(t *testing.T) {
	c := sim.New(sim.Config{})
	defer c.Close()
	sw, a, b := c.AddSwitch(newCounting(t), sim.SwitchModel{Pass: 400}), c.AddCN(), c.AddCN()
	times := map[string]fabric.Time{}
	body := func(name string, send fabric.ClientID) func(fabric.Port) {
		return func(p fabric.Port) {
			start := p.Now()
			if send != 0 {
				if err := p.Send(send, &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{1: 1 << b.ID()}}); err != nil {
					t.Error(err)
				}
			}
			if _, err := p.Recv(fabric.Second); err != nil {
				t.Error(err)
			}
			times[name] = p.Now() - start
		}
	}
	c.Go(b, "multicast", body("multicast", 0))
	c.Go(a, "answer", body("answer", fabric.AgentOf(sw.ID())))
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	for name, took := range times {
		if took < 1600+400 || took > 2800 { // 1.6 to 1.7 us is a message of CX4, to which posting adds
			t.Errorf("%s after %d ns", name, took)
		}
	}
	if n := sw.SwitchStats().Packets; n != 1 {
		t.Errorf("%d packets", n)
	}
}

// With SwitchModel.Between messages between other machines are lost, come twice and late, too; otherwise none is, and within a machine never.
func TestSwitchFaultsBetween(t *testing.T) {
	for _, between := range []bool{false, true} {
		c := sim.New(sim.Config{})
		defer c.Close()
		c.AddSwitch(newCounting(t), sim.SwitchModel{Drop: 0.2, Twice: 0.2, Late: 0.2, LateNs: 20_000, Between: between})
		a, b := c.AddCN(), c.AddCN()
		const sent = 1000
		var got [2][]uint64
		receive := func(who int) func(fabric.Port) {
			return func(p fabric.Port) {
				for {
					m, err := p.Recv(fabric.Second)
					if err != nil {
						return
					}
					got[who] = append(got[who], m.Body[0])
				}
			}
		}
		c.Go(a, "within", receive(0))
		c.Go(b, "between", receive(1))
		c.Go(a, "sender", func(p fabric.Port) {
			for i := range uint64(sent) {
				for _, to := range []*sim.Node{a, b} {
					if err := p.Send(fabric.Client(to.ID(), 1), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i}}); err != nil {
						t.Error(err)
					}
				}
				_ = p.Pause(p.Now() + fabric.Microsecond)
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		if len(got[0]) != sent || !slices.IsSorted(got[0]) {
			t.Errorf("between %v: of %d messages within a machine %d have come", between, sent, len(got[0]))
		}
		seen := map[uint64]bool{}
		for _, i := range got[1] {
			seen[i] = true
		}
		lost, twice := sent-len(seen), len(got[1])-len(seen)
		if faults := lost > 100 && twice > 100 && !slices.IsSorted(got[1]); faults != between || !between && lost+twice > 0 {
			t.Errorf("between %v: of %d messages %d are lost, %d have come twice", between, sent, lost, twice)
		}
	}
}

// The faults of a switch are drawn from the seed: some packets are lost, some come twice, some late, and a run is the same each time.
func TestSwitchFaults(t *testing.T) {
	run := func(seed uint64) (sim.SwitchStats, uint64, uint64) {
		c := sim.New(sim.Config{Seed: seed})
		defer c.Close()
		program := newCounting(t)
		sw, a := c.AddSwitch(program, sim.SwitchModel{Drop: 0.2, Twice: 0.2, Late: 0.2, LateNs: 20_000, Packet: 1}), c.AddCN()
		got := uint64(0)
		c.Go(a, "client", func(p fabric.Port) {
			for range 200 {
				if err := p.Send(fabric.AgentOf(sw.ID()), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
					t.Error(err)
				}
			}
			for {
				if _, err := p.Recv(p.Now() + fabric.Millisecond); err != nil {
					return
				}
				got++
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return sw.SwitchStats(), got, c.Hash()
	}
	s, got, hash := run(1)
	if s.Dropped < 20 || s.Twice < 20 || s.Late < 20 || got == 200 || s.Packets == 200 {
		t.Errorf("%+v, %d received", s, got)
	}
	if s2, got2, hash2 := run(1); s2 != s || got2 != got || hash2 != hash {
		t.Errorf("the same seed: %+v %d, then %+v %d", s, got, s2, got2)
	}
	if _, _, other := run(2); other == hash {
		t.Error("another seed has the same history")
	}
}

// again has each packet go through so often as Body[1] says, and then answers.
type again struct{}

func (again) Packet(pass *pswitch.Pass, in *fabric.Message) {
	out := *in
	if out.Body[1]--; out.Body[1] > 0 {
		pass.Recirculate(&out)
		return
	}
	pass.Send(fabric.ClientID(in.Body[0]), &out)
}

// A packet that is recirculated takes a pass more, other packets come between, and it is never lost, whatever the switch loses.
func TestRecirculation(t *testing.T) {
	took := func(passes uint64, model sim.SwitchModel) (d fabric.Time, packets uint64) {
		c := sim.New(sim.Config{})
		defer c.Close()
		sw, a := c.AddSwitch(again{}, model), c.AddCN()
		c.Go(a, "client", func(p fabric.Port) {
			start := p.Now()
			if err := p.Send(fabric.AgentOf(sw.ID()), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(p.ID()), passes}}); err != nil {
				t.Error(err)
			}
			_, _ = p.Recv(fabric.Second)
			d = p.Now() - start
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		return d, sw.SwitchStats().Packets
	}
	sound := sim.SwitchModel{Pass: 400, Packet: 1}
	once, _ := took(1, sound)
	if often, packets := took(5, sound); often-once < 4*400-100 || often-once > 4*400+100 || packets != 5 {
		t.Errorf("5 passes take %d ns, one takes %d; %d packets", often, once, packets)
	}
	if _, packets := took(1000, sim.SwitchModel{Drop: 0.2, Twice: 0.2, LateNs: 1000}); packets != 0 && packets < 1000 {
		t.Errorf("a packet of 1,000 passes is lost after %d", packets)
	}
}

// The number of a switch that has failed is no compute node's: the next switch gets it.
func TestSwitchKeepsItsNumber(t *testing.T) {
	c := sim.New(sim.Config{DetectDelay: fabric.Microsecond})
	defer c.Close()
	program := newCounting(t)
	sw, n := c.AddSwitch(program, sim.SwitchModel{}), c.AddCN()
	c.Go(n, "waits", func(p fabric.Port) { _ = p.Pause(fabric.Millisecond) })
	c.At(1, func() { c.Kill(sw) })
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if !sw.Fenced() {
		t.Fatal("the switch that has failed is not fenced")
	}
	first, second, next := c.AddCN(), c.AddCN(), c.AddSwitch(program, sim.SwitchModel{})
	if first.ID() == sw.ID() || second.ID() == sw.ID() || next.ID() != sw.ID() {
		t.Errorf("nodes have become %v and %v, the switch %v, after %v", first.ID(), second.ID(), next.ID(), sw.ID())
	}
}
