package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/pswitch"
)

// A SwitchModel says how a programmable switch behaves. The zero value is one that loses nothing, and adds no time to that of the network.
type SwitchModel struct {
	// Pass is how much longer a packet takes through the program than through a switch without one, and Packet is the time between two packets (line rate).
	Pass, Packet fabric.Time
	// Drop, Twice and Late are the probabilities that a packet to or from the switch is lost, comes again after up to LateNs, or comes
	// later by up to LateNs, whatever overtakes it.
	Drop, Twice, Late float64
	LateNs            fabric.Time
	// Between: the same may become of a message between two other machines. Messages within a machine, and what becomes of memory, stay as they are.
	Between bool
}

// A device is the switch of a Node that is one.
type device struct {
	*pswitch.Switch
	model SwitchModel
	free  fabric.Time // for the next packet
	// The packet that is in the program, and since when.
	in    fabric.Message
	start fabric.Time
	send  func(to fabric.ClientID, m *fabric.Message)
	stats SwitchStats
}

// SwitchStats are the counters of a switch: packets that its program has handled, and those to or from it, or between others (SwitchModel.Between), that were dropped, came twice, or late.
type SwitchStats struct{ Packets, Dropped, Twice, Late uint64 }

// SwitchStats returns the counters of a switch.
func (n *Node) SwitchStats() SwitchStats {
	s := n.device.stats
	s.Packets = n.device.Packets()
	return s
}

// AddSwitch adds a programmable switch. It has the number of a compute node, by which clients send it messages: each is a packet for the
// program, and half-way as far as a message to another compute node. No client runs on it. Faults of the model are drawn from the cluster's seed. If the cluster has already run, packets
// are lost until all members have acknowledged that it is there. One that has been killed (Kill) may be followed by another, which gets its number: no compute node gets that meanwhile.
func (c *Cluster) AddSwitch(program pswitch.Program, model SwitchModel) *Node {
	for _, p := range []float64{model.Drop, model.Twice, model.Late} {
		if p < 0 || p > 1 || p > 0 && model.Late+model.Twice > 0 && model.LateNs < 1 {
			panic(fmt.Sprintf("sim: AddSwitch: %+v", model))
		}
	}
	var e *member.Entry
	if len(c.away) > 0 {
		e, c.away = c.away[0], c.away[1:]
	} else {
		e = c.reserveCN()
	}
	n := c.addCN(e)
	c.switches.Add(n.id)
	n.device = &device{Switch: pswitch.New(program), model: model, send: n.sendPacket}
	if model.Between {
		c.between = n.device
	}
	return n
}

// halfWay returns when a packet has gone from a NIC to the switch or from there to a NIC.
func (c *Cluster) halfWay(left fabric.Time) fabric.Time {
	return left + c.minMessage/2 + fabric.Time(c.timing.Uint64n(uint64(c.spanMessage)))/2
}

// deliverOver posts the delivery of a message that is to or from a switch, or passes it: perhaps late, twice, or not at all.
func (c *Cluster) deliverOver(d *device, i uint32, at fabric.Time) {
	m := &d.model
	if m.Drop > 0 && c.faults.Float64() < m.Drop {
		d.stats.Dropped++
		c.note(StepDrop, c.flights[i].msg.From, uint64(c.flights[i].to), uint64(c.flights[i].msg.Kind))
		c.observeMessage(StepDrop, &c.flights[i])
		c.freeFlight(i)
		return
	}
	if m.Twice > 0 && c.faults.Float64() < m.Twice {
		d.stats.Twice++
		f := c.flights[i]
		c.post(at+1+fabric.Time(c.faults.Uint64n(uint64(m.LateNs))), evDeliver, c.newFlight(f.msg, f.src, f.dst, f.to), 0)
	}
	if m.Late > 0 && c.faults.Float64() < m.Late {
		d.stats.Late++
		at += 1 + fabric.Time(c.faults.Uint64n(uint64(m.LateNs)))
	}
	c.post(at, evDeliver, i, 0)
}

// process runs the program of a switch for a packet that has arrived.
func (c *Cluster) process(n *Node, in fabric.Message) {
	d := n.device
	d.start = max(c.now, d.free)
	d.free = d.start + d.model.Packet
	d.in = in
	d.Handle(&d.in, d.send)
}

// sendPacket is how the program of a switch sends.
func (n *Node) sendPacket(to fabric.ClientID, m *fabric.Message) {
	c, d := n.c, n.device
	if to == pswitch.Itself {
		c.post(d.start+max(d.model.Pass, 1), evDeliver, c.newFlight(*m, n, n, fabric.AgentOf(n.id)), 0)
		return
	}
	dst := c.cns[to.CN()]
	if dst == nil || !n.knows(dst) {
		return
	}
	i := c.newFlight(*m, n, dst, to)
	c.flights[i].msg.From = fabric.AgentOf(n.id)
	c.note(StepSend, fabric.AgentOf(n.id), uint64(to), m.Body[0])
	c.observeMessage(StepSend, &c.flights[i])
	at := c.halfWay(d.start + d.model.Pass)
	at = dst.nic.in.carry(c.now, at, c.nic.Overhead+fabric.MaxMessage, c.nic.BytePs)
	if len(c.links) > 0 {
		at = c.passes(OfCN(n.id), OfCN(dst.id), at)
	}
	c.deliverOver(d, i, max(at, c.now))
}
