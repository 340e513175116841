package tcp

import (
	"context"
	"errors"
	"time"

	"github.com/declock/declock/fabric/internal/peer"
)

// When another epoch of a replicated number begins, lanes to its backups end, also where chains are under way. One of these memory nodes may serve the number by then, and its clients have to know
// whether a change has come there: each could only say of it that its outcome is unknown. The memory node lives, and knows how many frames of each lane it has executed. So the lane is connected once more,
// which cuts what was before, and asks. WRITEs that were executed need no other answer.

// judgeTimeout is for how long a memory node is asked, at most.
const judgeTimeout = time.Second

// judge asks the memory node of a backup, when the lane has ended, which frames without answer it has executed. nil: it does not say, or is no member any more and so serves nothing, or there is nothing to ask. mu
// and lead are held.
func (l *lane) judge() *refusal {
	r := l.r
	if r.Backup == 0 || !l.inDoubt() {
		return nil
	}
	first := l.posted.Load()
	l.mu.Unlock()
	defer l.mu.Lock()
	ctx, cancel := context.WithTimeout(r.n.Work, min(judgeTimeout, r.n.DeadAfter))
	defer cancel()
	for ctx.Err() == nil && r.hosted() {
		conn, a, err := r.dial(ctx, l.index, first)
		if err == nil { // it has not heard of the epoch yet
			conn.close()
			return &refusal{reply: a}
		}
		var no *refusal
		if errors.As(err, &no) && (no.known || final(err)) {
			return no
		}
		peer.Pause(ctx, peer.RedialEvery)
	}
	return nil
}

// hosted reports whether the memory node of a backup is a member still.
func (r *remote) hosted() bool {
	st, _ := r.n.State()
	return st.Has(r.MN.Incarnation)
}

// inDoubt reports whether a frame without answer may have been executed that changes memory; mu is held.
func (l *lane) inDoubt() bool {
	for n := l.answered.Load(); n != l.posted.Load(); n++ {
		if l.ring[n%ringSize].modifies && l.executed(n, nil) {
			return true
		}
	}
	return false
}

// stands reports whether what a memory node says that it has executed of a chain is done, and is all that its client wants to know. So it is at a backup, which is written to and then forgotten about,
// also if its connection has broken and the lane goes on.
func (l *lane) stands(c *chain, r *reply) bool {
	return l.r.Backup != 0 && r != nil && r.known && peer.OnlyWrites(c.all)
}
