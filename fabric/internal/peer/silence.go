package peer

import (
	"context"
	"errors"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A memory node that keeps its process and loses all else, such as one that stands still, or whose host has vanished, is given up when its lease ends. With Config.SilentAfter a
// compute node suspects it before, if another memory node has a copy of what it has: one of its chains is unanswered for that long, and the node's own lease is valid. A
// suspicion is a change of the group, which all members acknowledge. If the memory node does, too, it lives: the compute node cannot reach it, or it is slow, and it stays. Else it is
// reported, as one that has ended is (docs/replicas.md). That it is given up though it lives is safe, so nothing here has to be exact.

const (
	// silenceLooks is how often in SilentAfter a node looks for chains that are unanswered: a node that stands still itself looks once when it goes on, and not as often as it has missed.
	silenceLooks = 8
	// refuteWithin is how long a memory node has to acknowledge a suspicion.
	refuteWithin = 100 * time.Millisecond
	// believedFor is for how many times SilentAfter a memory node is not suspected again by this node when it has refuted a suspicion.
	believedFor = 8
)

// A Mute is a memory node of which Mute reports whether a chain is unanswered, and nothing has come, since it was called a number of times before: it is called now and then.
type Mute interface {
	Mute(times int) bool
}

// watchSilence suspects memory nodes that do not answer.
func (n *Node) watchSilence() {
	believed := map[member.Incarnation]time.Time{}
	for n.Work.Err() == nil {
		Pause(n.Work, n.SilentAfter/silenceLooks)
		var silent []*Remote
		for r := range n.Remotes {
			if m, ok := r.Lanes.(Mute); ok && r.Term != 0 && r.Up.Load() && m.Mute(silenceLooks) {
				silent = append(silent, r)
			}
		}
		for _, r := range silent {
			host := r.MN.Incarnation
			if time.Now().After(believed[host]) && n.refutes(r.MN.ID, host) {
				believed[host] = time.Now().Add(believedFor * n.SilentAfter)
			}
		}
	}
}

// refutes has the coordinator ask a memory node with a copy of a number whether it lives, and reports it if it does not say so. It returns whether it does.
func (n *Node) refutes(mem fabric.MemID, host member.Incarnation) bool {
	ctx, cancel := context.WithTimeout(n.Work, dropTimeout)
	defer cancel()
	var seen, asked uint64 // the group's revisions: when this node has asked, and in which the memory node is suspected
	until := time.Now().Add(dropTimeout)
	for ctx.Err() == nil {
		st, newer := n.State()
		g := st.Group(mem)
		if n.lapsed() != nil || g == nil || !st.Spares(host) {
			return false
		}
		switch {
		case g.Suspect == host && asked != g.Changed:
			asked, until = g.Changed, time.Now().Add(refuteWithin)
		case g.Suspect == host && time.Now().After(until):
			n.member.Report(host)
			return false
		case g.Suspect != host && (asked != 0 || seen != 0 && g.Changed > seen):
			return true
		case g.Suspect != host && seen == 0:
			err := n.Members.Change(ctx, member.Change{ID: mem, Kind: member.Suspect, Host: host, Seen: g.Changed})
			if err == nil {
				seen = g.Changed
			} else if !errors.Is(err, member.ErrChanged) {
				return false
			}
		}
		select {
		case <-newer:
		case <-time.After(time.Until(until)):
		case <-ctx.Done():
		}
	}
	return false
}
