package netlock

import "github.com/declock/declock/fabric"

// An overflow is what the server keeps for the switch: requests for locks whose queue there is full.
type overflow struct {
	port  fabric.Port
	locks map[fabric.Addr]*surplus
	// last is the last request of each slot of a machine that has come here: copies of it may come.
	last map[opID]*request
	m    fabric.Message
}

// A surplus is that of one lock: requests in the order of arrival, how many have been sent back to the switch in all, and up to how many may be.
type surplus struct {
	queue      []*request
	sent, upTo uint32
}

type request struct {
	op     opID
	client uint64
	sent   bool
}

func newOverflow(port fabric.Port) *overflow {
	return &overflow{port: port, locks: map[fabric.Addr]*surplus{}, last: map[opID]*request{}}
}

// handle handles a message of the switch to the server.
func (v *overflow) handle(m *fabric.Message) {
	l := fabric.Addr(m.Body[0])
	s := v.locks[l]
	if s == nil {
		s = new(surplus)
		v.locks[l] = s
	}
	if m.Kind == msgKeep {
		v.keep(m, s)
	}
	if n := uint32(m.Body[2]); m.Body[2]&room != 0 && int32(n-s.upTo) > 0 {
		s.upTo = n
	}
	for len(s.queue) > 0 && int32(s.upTo-s.sent) > 0 {
		r := s.queue[0]
		s.queue = s.queue[1:]
		s.sent++
		r.sent = true
		v.push(m, r)
	}
}

// keep keeps a request. One that comes again is known; if it has been sent back, it may have been lost on its way.
func (v *overflow) keep(m *fabric.Message, s *surplus) {
	op := opID(m.Body[1])
	slot := op &^ (1<<opSlot - 1)
	switch r := v.last[slot]; {
	case r == nil || newer(op.number(), r.op.number()):
		r = &request{op: op, client: m.Body[3]}
		v.last[slot] = r
		s.queue = append(s.queue, r)
	case r.op == op && r.sent:
		v.push(m, r)
	}
}

// push sends a request back to the switch.
func (v *overflow) push(m *fabric.Message, r *request) {
	v.m = fabric.Message{Kind: msgPush, Body: [7]uint64{m.Body[0], uint64(r.op), 0, r.client, 0, uint64(v.port.ID())}}
	_ = v.port.Send(m.From, &v.m)
}
