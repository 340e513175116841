package check

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
)

// Nodes of the tree of a scenario hold few records, so that they split and are unlinked all the time.
const (
	treeKey    = 4
	treeInline = 16
	treeNode   = 136
)

// treeRounds is a client of the tree.
func (c *client) treeRounds() {
	t, err := c.n.tree.Client(c.k)
	for err != nil {
		if !c.survives("open", err) {
			return
		}
		t, err = c.n.tree.Client(c.k)
	}
	defer func() { c.w.deferred += t.Stats().Deferred }()
	for c.round = range c.w.s.Rounds {
		c.began = c.w.c.Now()
		err = c.mayBeInterrupted(func() error {
			if c.d.percent(15) {
				descending := c.d.percent(50)
				c.w.tap.drawBegin(c.port, &oracle.StoreOp{Method: "scan"})
				err := c.w.scanTree(t, int(c.port.ID()), descending)
				c.w.tap.drawEnd(c.port, "has scanned the tree")
				return err
			}
			o := c.w.store.Begin(c.drawTreeOp())
			c.w.tap.drawBegin(c.port, o)
			err := doTree(t, o, c.w.s.Room > 0)
			c.w.store.End(o)
			c.w.tap.drawEnd(c.port, o.String())
			if o.Result == oracle.Done {
				c.w.counts.Grants++
			}
			return err
		})
		if err != nil {
			c.w.unknown++
		}
		if err != nil && !c.survives("tree", err) {
			return
		}
		c.sleep(c.d.time(c.w.s.ThinkNs))
	}
	t.Close()
}

// treeKeyOf returns the i-th key of the tree.
func treeKeyOf(i int) string { return "k" + strconv.Itoa(i) }

// drawTreeOp draws an operation.
func (c *client) drawTreeOp() oracle.StoreOp {
	o := oracle.StoreOp{Client: int(c.port.ID()), Key: treeKeyOf(int(c.d.Uint64n(uint64(c.w.s.Keys))))}
	// Runs of puts and runs of deletions, so that leaves fill and become empty.
	if o.Method = pick(&c.d, "get", "get", "set", "set", "add", "delete", "delete"); c.round/8%2 == 1 && o.Method == "set" {
		o.Method = "delete"
	}
	if o.Method == "set" || o.Method == "add" {
		o.Arg = fmt.Sprintf("%d%04d", uint64(o.Client)&0xffff, c.round) // all values differ
		if n := c.w.s.Values; n > 0 && c.d.percent(30) {
			o.Arg += string(make([]byte, c.d.Uint64n(uint64(n))))
		}
	}
	return o
}

// doTree does an operation and writes its result down.
func doTree(t *btree.Client, o *oracle.StoreOp, short bool) (err error) {
	key, arg := []byte(o.Key), []byte(o.Arg)
	switch o.Method {
	case "get":
		var v []byte
		v, err = t.Get(key)
		o.Value = string(v)
	case "set":
		err = t.Put(key, arg)
	case "add":
		err = t.Insert(key, arg)
	case "delete":
		err = t.Delete(key)
	}
	return ends(o, err, short, errors.Is(err, fabric.ErrFenced) || ofRestart(err))
}

// scanTree scans the whole tree. What it finds of each key must be what a get at some time within would.
func (w *world) scanTree(t *btree.Client, client int, descending bool) error {
	gets := make([]*oracle.StoreOp, w.s.Keys)
	known := map[string]bool{}
	for i := range gets {
		// Each is a client of its own: they are all under way at once.
		gets[i] = w.store.Begin(oracle.StoreOp{Client: client<<8 + i + 1, Method: "get", Key: treeKeyOf(i)})
		known[gets[i].Key] = true
	}
	found := make(map[string]string, w.s.Keys)
	last := ""
	err := t.Each(btree.Range{Descending: descending}, func(k, v []byte) bool {
		if key := string(k); last != "" && key == last || last != "" && (key < last) != descending {
			w.object("scan", fmt.Sprintf("client %v: %q behind %q, descending: %v", client, key, last, descending))
		}
		last = string(k)
		if !known[last] {
			w.object("scan", fmt.Sprintf("client %v: key %q, which nobody put", client, last))
		}
		found[last] = string(v)
		return true
	})
	if err != nil {
		return err
	}
	for _, o := range gets {
		if v, ok := found[o.Key]; ok {
			o.Result, o.Value = oracle.Done, v
		} else {
			o.Result = oracle.NotFound
		}
		w.store.End(o)
	}
	return nil
}

// repairTree has what was left undone done, if a fault, or a want of memory, may have had something left undone. It is false if it cannot.
func (w *world) repairTree(p fabric.Port) bool {
	faulty := w.s.givesUp() || w.s.Room > 0 && w.deferred > 0
	for cn := 1; cn <= w.s.CNs; cn++ {
		faulty = faulty || w.dead(cn)
	}
	if !faulty {
		return true
	}
	n := w.nodes[w.s.CNs]
	t, err := n.tree.Client(w.locker(n, p))
	if err != nil {
		w.object("tree check", err.Error())
		return false
	}
	defer t.Close()
	w.inspectTree(t, btree.CheckOptions{})
	w.readTree(t)
	w.inspectTree(t, btree.CheckOptions{Repair: true})
	return true
}

// judgeTree checks the tree, of which nothing may be undone or missing.
func (w *world) judgeTree(n *node, p fabric.Port) {
	t, err := n.tree.Client(w.locker(n, p))
	if err != nil {
		w.object("tree check", err.Error())
		return
	}
	r := w.inspectTree(t, btree.CheckOptions{})
	if r == nil {
		return
	}
	if !r.Clean() {
		w.object("tree check", fmt.Sprintf("something was left undone:\n%v", r))
	}
	var elsewhere uint64
	for i := range r.Memory {
		elsewhere += r.Memory[i].Elsewhere
	}
	if elsewhere > t.Found().Lost { // a settling that a promotion has cut
		w.object("leaked memory", r.String())
	}
	w.readTree(t)
}

func (w *world) inspectTree(t *btree.Client, o btree.CheckOptions) *btree.Report {
	r, err := t.Check(o)
	switch {
	case err != nil:
		w.object("tree check", err.Error())
		return nil
	case !r.Sound():
		w.object("tree check", r.String())
	}
	return r
}

// readTree reads all keys once more, one by one and by scans.
func (w *world) readTree(t *btree.Client) {
	for i := range w.s.Keys {
		o := w.store.Begin(oracle.StoreOp{Client: 0, Method: "get", Key: treeKeyOf(i)})
		if err := doTree(t, o, false); err != nil {
			w.object("errors", fmt.Sprintf("at the end: %v: %v", o, err))
		}
		w.store.End(o)
	}
	for _, descending := range []bool{false, true} {
		if err := w.scanTree(t, 0, descending); err != nil {
			w.object("errors", fmt.Sprintf("at the end: scan: %v", err))
		}
	}
}
