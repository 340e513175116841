package shm

import (
	"errors"
	"math/bits"
	"os"
	"runtime"
	"syscall"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"github.com/declock/declock/fabric/internal/ram"
)

// Every so many rounds the pump lets other processes run: where there are
// more of them than processors, one of those may be what it waits for.
const roundsPerYield = 8

// pump delivers what comes while all clients of the node wait or compute. It spins, and yields, and
// sleeps when nothing comes: to wake it by its bell costs the sender a microsecond.
func (n *node) pump() {
	var bell [64]byte
	patience := inbox.PumpPatience()
	limit := patience.Min
	for n.spin(limit) {
		// Sleep, then look again: a sender leaves a hint, then looks whether
		// the pump sleeps. One of the two sees the other.
		n.sleep++
		n.asleep.Store(2*n.sleep - 1)
		begin := n.Now()
		n.notice()
		if n.hint.Load() == 0 && !n.viewDirty.Load() && !n.closed.Load() {
			if _, err := n.bell.Read(bell[:]); errors.Is(err, os.ErrClosed) {
				return
			}
		}
		n.asleep.Store(2 * n.sleep)
		limit = patience.Next(limit, n.Now()-begin)
	}
}

// spin delivers what comes, until nothing has come for a while. It reports
// whether the node is still open.
func (n *node) spin(patience fabric.Time) bool {
	until := n.Now() + patience
	for round := 1; !n.closed.Load(); round++ {
		if n.viewDirty.Swap(false) {
			n.checkView()
		}
		if n.hint.Load() != 0 {
			n.drain()
			until = n.Now() + patience
		} else if n.Now() >= until {
			return true
		}
		runtime.Gosched()
		if round%roundsPerYield == 0 {
			_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	return false
}

// wakePump makes the pump look at what is new.
func (n *node) wakePump() {
	if word := n.asleep.Load(); word%2 == 1 {
		_, _ = n.bell.Write([]byte{1}) // closed: the pump has ended
		n.asleep.CompareAndSwap(word, word+1)
	}
}

// Poll delivers what has come, if a sender left a hint that something has. It
// is cheap if not.
func (n *node) Poll() {
	if n.hint.Load() != 0 {
		n.drain()
	} else {
		n.notice()
	}
}

// drain delivers what the hint tells of. It returns whether a client that was
// parked is not any more. One goroutine at a time does it; the others need not
// wait, for the hint stays if more comes.
func (n *node) drain() (woke bool) {
	if !n.drainMu.TryLock() {
		return false
	}
	hint := n.hint.Swap(0)
	for h := hint &^ hintView; h != 0; h &= h - 1 {
		first := bits.TrailingZeros64(h)
		for cn := uint32(first); cn <= n.c.maxCN; cn += hintSenders {
			woke = n.drainRing(fabric.CNID(cn)) || woke
		}
	}
	n.drainMu.Unlock()
	if hint&hintView != 0 {
		// It may take long: not a client's work.
		n.viewDirty.Store(true)
		n.wakePump()
	}
	return woke
}

// drainRing delivers the messages of one compute node, and flushes what waits
// for it; drainMu is held. It takes no more than a ring holds, and leaves a hint
// if there is more, so that a fast sender cannot keep a client here.
func (n *node) drainRing(cn fabric.CNID) (woke bool) {
	r := &n.rings[cn]
	taken := 0
	var m fabric.Message
	for ; taken < len(r.slots); taken++ {
		from, to, ok := r.pop(&m)
		if !ok || n.m.isLost() {
			break // what a truncated file has been replaced by is no message
		}
		ram.RaceAcquire() // for each: it may have been sent since the last
		m.From = fabric.Client(cn, from)
		woke = n.table.Deliver(to, &m) || woke
	}
	p := n.peers[cn].Load()
	if taken > 0 && r.publish() {
		if p, err := n.peer(cn); err == nil {
			p.wake(p.bit)
		}
	}
	if taken == len(r.slots) {
		n.hint.Or(hintOf(cn))
	}
	if p != nil {
		p.push()
	}
	return woke
}

// checkView notices which nodes have come and gone, and notifies the agent. What
// nodes that have gone had sent is delivered first.
func (n *node) checkView() {
	n.takeView()
	// A node of this process that has ended makes the view dirty again.
	n.watches.look()
}

func (n *node) takeView() {
	n.viewMu.Lock()
	defer n.viewMu.Unlock()
	v, counters := n.c.view()
	if n.c.m.isLost() {
		n.notice()
		return // no node has gone: the file has
	}
	for cn := range n.c.cns() {
		if counters[cn] == n.known[cn] {
			continue
		}
		n.known[cn] = counters[cn]
		n.drainMu.Lock()
		n.drainRing(cn)
		n.drainMu.Unlock()
		if p := n.peers[cn].Load(); p != nil && p.incarnation != counters[cn] {
			n.peers[cn].CompareAndSwap(p, nil)
			p.drop()
		}
	}
	n.lost = v.Lost
	n.watchPeers(counters[:])
	if v.Epoch > n.announced {
		n.announced = v.Epoch
		n.table.Deliver(fabric.AgentOf(n.id).Index(), &fabric.Message{Kind: fabric.MsgView, Body: [7]uint64{v.Epoch}})
	}
}

// watchPeers watches the nodes that are alive and are not watched, and no others;
// viewMu is held.
func (n *node) watchPeers(counters []uint64) {
	n.watches.retain(func(k watchKey) bool { return counters[k.cn] == k.number })
	for cn := range n.c.cns() {
		incarnation := counters[cn]
		key := watchKey{cn: cn, number: incarnation}
		if cn == n.id || !isLive(incarnation) || n.watches.has(key) {
			continue
		}
		f, h, err := openCompute(n.c.cnPath(cn))
		if err == nil && h.incarnation != incarnation {
			_ = f.Close()
			err = os.ErrNotExist
		}
		if errors.Is(err, os.ErrNotExist) {
			// Its file has gone, or is another's: it has ended, and the view
			// says so now or in a moment.
			if n.c.loseCN(cn, incarnation) {
				n.viewDirty.Store(true)
			}
			continue
		}
		if err != nil {
			continue // no descriptor left, perhaps: the next change looks again
		}
		slot := n.c.cn(cn)
		n.watches.start(key, slot.pid.Load(), slot.pidNS.Load(), f, func() { n.peerEnded(cn, incarnation) })
	}
}

// peerEnded notes the end of a compute node of which the process has ended, and
// cleans up behind it.
func (n *node) peerEnded(cn fabric.CNID, incarnation uint64) {
	if n.c.loseCN(cn, incarnation) {
		n.notifyView()
		n.cleanCN(cn, incarnation+1)
	}
	n.viewDirty.Store(true)
	n.wakePump()
}

// notifyView notifies the other compute nodes of a change of the view.
func (n *node) notifyView() {
	for cn := range n.c.cns() {
		if cn == n.id || !isLive(n.c.cn(cn).counter.Load()) {
			continue
		}
		if p, err := n.peer(cn); err == nil {
			p.wake(hintView)
		}
	}
}
