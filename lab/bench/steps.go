package bench

import "github.com/declock/declock/fabric"

// steps are the times that clients spend on the steps of their acquisitions, by mode, and of their releases.
type steps struct {
	Writers, Readers, Releases step
}

// A step is the time of so many acquisitions or releases, in nanoseconds: until the answer to the first chain, waiting for messages, and all else, which
// is READs and tries that follow, with the pauses between them.
type step struct {
	N, FirstNs, MessageNs, RestNs uint64
}

// A timedPort is the Port of a client whose steps are timed.
type timedPort struct {
	fabric.Port
	sum   *steps
	under bool // an acquisition or release is under way
	began fabric.Time
	// Of what is under way: until the answer to its first chain (0: it has posted none), and waiting for messages.
	first, message fabric.Time
}

// timer returns the Port of a client, timed if that is asked for.
func (s *simRun) timer(p fabric.Port) fabric.Port {
	if !s.m.Steps {
		return p
	}
	return &timedPort{Port: p, sum: &s.steps}
}

// begin begins an acquisition or a release.
func (p *timedPort) begin() {
	if p != nil {
		p.under, p.began, p.first, p.message = true, p.Now(), 0, 0
	}
}

// end ends a release.
func (p *timedPort) end() {
	if p != nil {
		p.count(&p.sum.Releases)
	}
}

// acquired ends an acquisition.
func (p *timedPort) acquired(shared bool) {
	switch {
	case p == nil:
	case shared:
		p.count(&p.sum.Readers)
	default:
		p.count(&p.sum.Writers)
	}
}

// count adds what was under way: only now, so that all of it is in the same window.
func (p *timedPort) count(s *step) {
	s.N++
	s.FirstNs += uint64(p.first)
	s.MessageNs += uint64(p.message)
	s.RestNs += uint64(p.Now() - p.began - p.first - p.message)
	p.under = false
}

func (p *timedPort) Do(ops []fabric.Op) error {
	if !p.under || p.first > 0 {
		return p.Port.Do(ops)
	}
	since := p.Now()
	err := p.Port.Do(ops)
	p.first = p.Now() - since
	return err
}

func (p *timedPort) Recv(deadline fabric.Time) (fabric.Message, error) {
	since := p.Now()
	m, err := p.Port.Recv(deadline)
	p.message += p.Now() - since
	return m, err
}

// metrics adds the means of the steps, in microseconds: 0 of what did not happen.
func (s *steps) metrics(m Metrics) {
	for name, x := range map[string]*step{"writer": &s.Writers, "reader": &s.Readers, "release": &s.Releases} {
		m[name+"_first_us"], m[name+"_message_us"], m[name+"_rest_us"] = per(x.FirstNs, x.N)/1e3, per(x.MessageNs, x.N)/1e3, per(x.RestNs, x.N)/1e3
	}
}
