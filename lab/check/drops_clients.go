package check

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
	"github.com/declock/declock/objstore"
)

// sideKeys is how many keys what is beside the main store or tree has.
const sideKeys = 6

// sideRounds is a client of what is beside the main store or tree.
func (c *client) sideRounds() {
	for c.round = range c.w.s.Rounds {
		c.began = c.w.c.Now()
		c.closeSides(func(x *side) bool { return x.leaving || x.over || c.d.percent(20) })
		if !c.sideRound(c.w.names[c.d.Uint64n(uint64(len(c.w.names)))]) {
			return
		}
		if t := c.w.s.ThinkNs; t > 0 {
			c.sleep(fabric.Time(c.d.Uint64n(uint64(t) + 1)))
		}
	}
	c.closeSides(func(*side) bool { return true })
}

// closeSides closes the clients that this one has of some sides.
func (c *client) closeSides(of func(x *side) bool) {
	for _, x := range slices.Clone(c.uses) {
		if of(x.side) {
			x.client.Close()
			x.side.users--
			c.uses = slices.DeleteFunc(c.uses, func(y sideUse) bool { return y.side == x.side })
		}
	}
}

// A sideUse is a client that a client has of a side.
type sideUse struct {
	side   *side
	client sideClient
}

// sideRound uses what has a name, or makes or drops it. It reports whether the client can go on.
func (c *client) sideRound(m *sideName) bool {
	inc := m.now
	switch {
	case inc == nil && !m.idle():
		return true
	case inc == nil:
		inc = m.begin(c.w)
	case inc.ending && c.d.percent(50):
		return c.dropSide(inc)
	}
	x, goesOn := c.openSide(inc)
	if x == nil {
		return goesOn
	}
	k, goesOn := c.useSide(x)
	if k == nil {
		return goesOn
	}
	for range c.d.between(1, 8) {
		if !c.sideOp(x, k) {
			return false
		}
	}
	switch at := c.d.Uint64n(100); {
	case at < 20 && inc.made && m.idle():
		return c.dropSide(inc)
	case at < 30:
		x.leaving = true
	}
	return true
}

// openSide returns an incarnation as the node has it open, or opens it; nil: it is not to be had now.
func (c *client) openSide(inc *incarnation) (x *side, goesOn bool) {
	n, m := c.n, inc.of
	if err := n.turn(c.port); err != nil {
		return nil, c.sideSurvives("turn", inc, err)
	}
	x = n.sideOf(inc)
	if x != nil || m.now != inc {
		n.opening = false
		if x != nil && x.leaving {
			x = nil
		}
		return x, true
	}
	m.enter(n)
	var col sideCollection
	err := c.mayBeInterrupted(func() (err error) {
		if err = c.w.attach(c.k); err == nil {
			col, err = c.w.openSide(n, c.port, m.name, m.tree, inc.nodes, inc.made)
		}
		return err
	})
	m.leave(n)
	n.opening = false
	if err != nil {
		n.failed[m.name] = true
		return nil, c.sideSurvives("open", inc, err)
	}
	inc.made = true
	x = &side{of: inc, col: col}
	n.sides = append(n.sides, x)
	return x, true
}

// useSide returns the client that this one has of a side, or makes one; nil: that cannot be had now.
func (c *client) useSide(x *side) (k sideClient, goesOn bool) {
	if i := slices.IndexFunc(c.uses, func(y sideUse) bool { return y.side == x }); i >= 0 {
		return c.uses[i].client, true
	}
	k, err := x.client(c.k)
	if err != nil {
		return nil, c.sideSurvives("client", x.of, err)
	}
	x.users++
	c.uses = append(c.uses, sideUse{x, k})
	return k, true
}

// sideSurvives is survives for what is beside the main store or tree: it may have been dropped, and there may be no room for it.
func (c *client) sideSurvives(what string, inc *incarnation, err error) bool {
	switch {
	case inc.ending && isAny(err, objstore.ErrDropped, btree.ErrDropped, memory.ErrRemoved, memory.ErrNotFound),
		isAny(err, memory.ErrNoSpace, objstore.ErrNoSpace, btree.ErrNoSpace, memory.ErrDirectoryFull, memory.ErrHalfCreated):
		c.sleep(c.d.time(again))
		return true
	case len(inc.nodes) > 1 && c.w.s.restarts() && errors.Is(err, memory.ErrNotFound): // it was made while a memory node was down: its part there comes later
		return true
	}
	return c.survives(what+" "+inc.tag, err)
}

// sideOp does an operation, and judges what comes out. What comes out is judged whole until the drop begins: then only where it comes from.
func (c *client) sideOp(x *side, k sideClient) bool {
	inc := x.of
	op := oracle.StoreOp{Client: int(c.port.ID()), Key: "k" + strconv.Itoa(int(c.d.Uint64n(sideKeys)))}
	if op.Method = pick(&c.d, "get", "get", "set", "set", "set", "add", "delete"); op.Method == "set" || op.Method == "add" {
		c.written++
		op.Arg = inc.value(op.Key, op.Client, c.written, int(c.d.Uint64n(uint64(pick(&c.d, 20, 20, 300, 2000)))))
	}
	o, judged, known := &op, !inc.ending, x.col.Dropped()
	if judged {
		o = inc.history.Begin(op)
	}
	c.began = c.w.c.Now()
	err := c.mayBeInterrupted(func() error { return doSide(k, o) })
	switch {
	case known && err == nil:
		c.w.object("drops", fmt.Sprintf("[%v] of %s, which this compute node knows to be dropped", o, inc.tag))
	case o.Method == "get" && o.Result == oracle.Done && !inc.has(o.Key, o.Value):
		c.w.object("drops", fmt.Sprintf("[%v] of %s: that is none of its values: %q", o, inc.tag, o.Value))
	}
	if judged {
		if inc.ending && o.Method == "get" {
			o.Result = oracle.Failed
		} else if inc.ending {
			o.Result = oracle.Unknown
		}
		inc.history.End(o)
	}
	return err == nil || c.sideSurvives(o.Method, inc, err)
}

// doSide does an operation and writes its result down.
func doSide(k sideClient, o *oracle.StoreOp) error {
	if t, ok := k.(*btree.Client); ok {
		return doTree(t, o, true)
	}
	return doStore(k.(*objstore.Client), o, true)
}

// dropSide drops an incarnation, or goes on to drop it.
func (c *client) dropSide(inc *incarnation) bool {
	n, m := c.n, inc.of
	if d := inc.dropper; m.now != inc || d != nil && !d.fenced && (d != n || inc.dropping) {
		return true // it is gone, or another is at it, and tries again
	}
	inc.tried = inc.tried || inc.dropper != nil // whose node has crashed in the middle of it, perhaps
	inc.ending, inc.dropper, inc.dropping = true, n, true
	err := n.turn(c.port)
	if err == nil {
		m.enter(n)
		c.began = c.w.c.Now()
		err = c.mayBeInterrupted(func() error { return c.w.drop(c.k, n, inc) })
		m.leave(n)
		n.opening = false
	}
	inc.dropping = false
	if err != nil {
		inc.tried = true
		return c.sideSurvives("drop", inc, err)
	}
	return true
}

// drop drops an incarnation by a client of a node, as Cluster.DropStore and DropTree do.
func (w *world) drop(k lock.Locker, n *node, inc *incarnation) error {
	m := inc.of
	err := w.attach(k)
	if err == nil {
		if err = m.kind().Drop(k.Port(), m.name, w.mns, n.sim.View); errors.Is(err, memory.ErrNotFound) {
			if !inc.tried {
				w.object("drops", fmt.Sprintf("drop of %s: %v", inc.tag, err))
			}
			err = handle.FreeDropped(k.Port(), w.mns, n.sim.View)
		}
	}
	if err != nil {
		return err
	}
	w.counts.Dropped++
	m.now = nil
	if x := n.sideOf(inc); x != nil {
		x.col.MarkDropped()
	}
	return nil
}

// startSideKeepers starts a keeper on each live node: it looks after what the node has open beside the main store or tree, closes it, and lets it go when it has been dropped.
func (w *world) startSideKeepers() {
	for i, n := range w.nodes {
		if !n.dead {
			w.c.Go(n.sim, fmt.Sprintf("keeper beside cn%d", i+1), func(p fabric.Port) { w.keepSides(i+1, p) })
		}
	}
}

func (w *world) keepSides(cn int, p fabric.Port) {
	n, pause, most := w.nodes[cn-1], minReclaimNs, maxReclaimNs
	if w.s.Seed%2 == 1 { // so that others do much before this compute node notices a drop
		most = 30 * maxReclaimNs
	}
	k := w.locker(n, p)
	clients := map[*side]sideClient{}
	for w.working > 0 || w.siding {
		for _, x := range slices.Clone(n.sides) {
			busy, err := w.keepSide(n, k, x, clients)
			if busy {
				pause = minReclaimNs
			}
			dropped := x.of.ending && isAny(err, memory.ErrRemoved, objstore.ErrDropped, btree.ErrDropped)
			if err != nil && !dropped && !w.toleratesReclaim(cn, "keeper of "+x.of.tag, err) {
				return
			}
		}
		if err := w.freeHalfMade(n, k); err != nil && !w.toleratesReclaim(cn, "half made", err) {
			return
		}
		_ = p.Pause(p.Now() + pause)
		if pause = min(pause*5/4, most); w.s.Seed%2 == 1 {
			pause = min(2*pause, most)
		}
	}
	for _, x := range n.sides {
		if cl := clients[x]; cl != nil {
			cl.Close()
		}
	}
}

// keepSide looks after a side once.
func (w *world) keepSide(n *node, k lock.Locker, x *side, clients map[*side]sideClient) (busy bool, err error) {
	cl := clients[x]
	end := func() {
		if cl != nil {
			cl.Close()
		}
		delete(clients, x)
		n.forget(x)
	}
	if cl == nil {
		if cl, err = x.client(k); err == nil {
			clients[x] = cl
		}
	}
	if err == nil && x.leaving && x.users == 0 {
		err = cl.Leave()
		switch unsettled := errors.Is(err, handle.ErrUnsettled); {
		case unsettled && n != w.nodes[w.s.CNs]: // the compute node must leave the cluster as one that crashes does
			w.c.Kill(n.sim)
			return false, nil
		case errors.Is(err, handle.ErrLocksLeft):
			err = nil // the next time
		case err == nil && cl.Found().Lost > 0:
			x.leaving = false // its registration stays until the compute node leaves the cluster, which comes next where a program closes all
		case err == nil, unsettled:
			end()
			return true, nil
		}
	}
	if err == nil {
		busy, err = cl.ReclaimStep(n.sim.View)
	}
	if isAny(err, objstore.ErrDropped, btree.ErrDropped) {
		var done bool
		if done, err = x.col.LetGo(k, n.sim.View); done {
			w.counts.LetGo++
			end()
		}
	}
	return busy, err
}

// freeHalfMade frees names that clients of a node have failed to make.
func (w *world) freeHalfMade(n *node, k lock.Locker) error {
	for _, mn := range w.mns {
		if !n.creating.Left(mn) {
			continue
		}
		err := lock.Renew(k, mn)
		if err == nil {
			var r *memory.Region
			if r, err = memory.Open(k.Port(), mn); err == nil {
				err = r.FreeLeft(k.Port(), &n.creating)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
