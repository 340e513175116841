package server

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lock"
)

// A Locker is one client's access to the locks of a server.
type Locker struct {
	baseline.Client
	server fabric.CNID
	cfg    Config
	number uint64 // of the last acquisition
	m      fabric.Message
	// Near, if not nil, is the server of this node: the client executes its requests to it itself.
	Near *Agent
	// Incarnation is that of this node ([IncarnationOf]), which tells its claims from those of another that had its number. 0: it is not known.
	Incarnation uint64
	// Other, if not nil, gets messages of other locks that come while the client waits.
	Other func(*fabric.Message)
}

var _ lock.Locker = (*Locker)(nil)

// New returns the Locker of a client. server is that of all of them: see ServerOf.
func New(port fabric.Port, server fabric.CNID, cfg Config) *Locker {
	return &Locker{Client: baseline.New(port, true), server: server, cfg: cfg}
}

// ServerOf returns the number of the compute node that has the server: the lowest that is live when a node joins. The first one must stay.
func ServerOf(n fabric.Node) fabric.CNID {
	first, _ := n.View().Live.Next(0)
	return first
}

// IncarnationOf returns the incarnation of a node, as all nodes of the cluster know it; 0: the fabric has none.
func IncarnationOf(n fabric.Node) uint64 {
	return baseline.Incarnation(n, n.ID())
}

// HomeOf returns which of n nodes has a lock: by a hash of its address.
func HomeOf(a fabric.Addr, n int) int {
	const odd = 0x9e3779b97f4a7c15 // neighbours are apart
	return int(uint64(a) * odd >> 32 % uint64(n))
}

// home returns the node that has the server of a lock.
func (l *Locker) home(a fabric.Addr) fabric.CNID {
	switch {
	case l.cfg.Homes == 0:
		return l.server
	case l.cfg.Home != nil:
		return l.server + fabric.CNID(l.cfg.Home(a))
	}
	return l.server + fabric.CNID(HomeOf(a, l.cfg.Homes))
}

// near reports whether the client executes its requests for a lock itself.
func (l *Locker) near(a fabric.Addr) bool { return l.Near != nil && l.home(a) == l.Port().ID().CN() }

// Acquire implements lock.Locker.
func (l *Locker) Acquire(h *lock.Hold, r *lock.Request) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode}
	l.number++
	h.Word = l.number
	if err := l.acquire(h, r); err != nil {
		return fmt.Errorf("server: acquire %v %v: %w", r.Mode, r.Lock, err)
	}
	h.Aux, h.Held = l, true
	l.Counters.Acquires++
	return nil
}

// acquire asks until the server grants.
func (l *Locker) acquire(h *lock.Hold, r *lock.Request) error {
	for k := 1; ; k++ {
		answer, err := l.ask(h, r)
		switch {
		case err != nil:
			return errors.Join(l.GaveUp(err), l.tell(msgCancel, h))
		case answer.Kind == msgGranted:
			h.Token = lock.Token(answer.Body[2])
			if k == 1 && answer.Body[3] == 0 {
				l.Counters.Immediate++
			} else {
				l.Counters.Waits++
			}
			return l.read(h, r)
		case r.Try:
			l.Counters.Busy++
			return lock.ErrBusy
		}
		l.Counters.Retries++
		if err := l.Pause(r, baseline.Soon(k), 0); err != nil {
			return err
		}
	}
}

// ask sends the request and waits for the answer to it.
func (l *Locker) ask(h *lock.Hold, r *lock.Request) (fabric.Message, error) {
	wish := uint64(r.Mode)
	if r.Try || l.cfg.Kind == Retry {
		wish |= now
	}
	l.m = fabric.Message{Kind: msgAcquire, Body: [7]uint64{uint64(r.Lock), h.Word, wish, l.Incarnation}}
	if l.near(r.Lock) {
		if l.cfg.LocalNs > 0 {
			if err := l.Pause(r, l.cfg.LocalNs, 0); err != nil {
				return l.m, err
			}
		}
		if l.Near.near(l.Port(), &l.m) {
			return l.m, nil
		}
	} else if err := l.Port().Send(fabric.AgentOf(l.home(r.Lock)), &l.m); err != nil {
		return l.m, err
	}
	for {
		m, err := l.Port().Recv(r.Until())
		if err != nil || l.answers(&m, h) {
			return m, err
		}
		if l.Other != nil && (m.Kind < msgAcquire || m.Kind > msgReleased) {
			l.m = m
			l.Other(&l.m)
		}
	}
}

// answers reports whether a message is the answer to a request, and not to one of another client that had the number.
func (l *Locker) answers(m *fabric.Message, h *lock.Hold) bool {
	return m.Kind >= msgGranted && m.Kind <= msgRefused && m.Body[0] == uint64(h.Lock) && m.Body[1] == h.Word && m.Body[4] == l.Incarnation
}

// read does the caller's READs, behind one of the lock's word: all are on its memory node, or refused.
func (l *Locker) read(h *lock.Hold, r *lock.Request) error {
	if len(r.Reads) == 0 {
		return nil
	}
	l.Ops[0] = fabric.Load(r.Lock)
	n := 1 + copy(l.Ops[1:], r.Reads)
	l.Counters.AcquireOps++
	err := l.Port().Do(l.Ops[:n])
	copy(r.Reads, l.Ops[1:n])
	if err != nil {
		return errors.Join(err, l.tell(msgRelease, h))
	}
	return nil
}

// tell tells the server about an acquisition.
func (l *Locker) tell(kind fabric.MsgKind, h *lock.Hold) error {
	l.m = fabric.Message{Kind: kind, Body: [7]uint64{uint64(h.Lock), h.Word, 3: l.Incarnation}}
	if l.near(h.Lock) {
		l.Near.near(l.Port(), &l.m)
		return nil
	}
	return l.Port().Send(fabric.AgentOf(l.home(h.Lock)), &l.m)
}

// Release implements lock.Locker.
func (l *Locker) Release(h *lock.Hold, before []fabric.Op) error {
	if by, ok := h.Aux.(*Locker); !h.Held || !ok || by != l || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	err := errors.Join(l.Port().Do(before), l.tell(msgRelease, h))
	if err != nil {
		return fmt.Errorf("server: release %v %v: %w", h.Mode, h.Lock, err)
	}
	if l.cfg.Answered && !l.near(h.Lock) {
		l.awaitReleased(h)
	}
	return nil
}

// answerNs is for how long a client waits for the answer to a release. One that does not come changes nothing: the server has the request, or has crashed.
const answerNs = 10 * fabric.Millisecond

// awaitReleased waits for the answer to a release. Others that come meanwhile are too late for what they answer.
func (l *Locker) awaitReleased(h *lock.Hold) {
	for until := l.Port().Now() + answerNs; ; {
		m, err := l.Port().Recv(until)
		if err != nil || m.Kind == msgReleased && m.Body[0] == uint64(h.Lock) && m.Body[1] == h.Word {
			return
		}
	}
}
