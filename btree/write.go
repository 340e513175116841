package btree

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// change appends a record to the locked node n, and releases the lock. It is one chain: WRITE the
// record behind those that are there, store the word, release. If there is no room, the
// node is written whole or split; if it would be empty, it is marked dead.
//
// Until the word is stored the node is as it was; if a compute node crashes before, no reader looks at its bytes.
func (c *Client) change(n *node, k kind, key, value []byte) error {
	if k == kindDeleted && len(n.low) > 0 && c.t.h.Whole() {
		// The leftmost node of a level is never dead: no node could take its keys over. Nor is any while a part is missing: the node that takes them over may be there.
		last, err := c.lastRecord(n, key)
		if err != nil {
			return c.unlock(err)
		}
		if last {
			return c.markDead(n, key)
		}
	}
	if n.used+recordSize(len(key), len(value)) > len(n.b) {
		return c.makeRoom(n, k, key, value)
	}
	at := n.used
	n.used += putRecord(n.b[at:], k, key, value)
	n.word = makeWord(stateAlive, n.used, extend(n.word.crc(), n.b[at:n.used]))
	setWord(n.b, n.word)
	if err := c.mirror(n.self, n.b[:n.used], n.word); err != nil {
		return c.unlock(err)
	}
	c.setHandoff(n)
	ops := c.appendOps(n.b[:n.used], at)
	if c.t.h.Parts[n.self.node()].Replicated() {
		c.hold.Deferred = 0 // who defers a change has no verdict on it (publish)
	}
	if err := c.publish(n.self, ops); err != nil {
		return err
	}
	if n.level > 0 {
		if _, err := c.keep(nil, n); err != nil {
			return err
		}
	}
	return nil
}

// appendOps makes the operations that write the locked node, which is in b, from an offset on, or from what a holder before
// has deferred to this one: WRITE the records, store the word. It returns their number. The next holder of the lock
// may do both its own and these.
func (c *Client) appendOps(b []byte, at int) int {
	if c.deferred != 0 {
		at = c.deferred
	}
	a := c.hold.Lock.Add(c.t.geo.lockSize)
	c.before[0] = fabric.Write(a.Add(uint64(at)), b[at:])
	c.before[1] = fabric.Store(a, get64(b, 0))
	c.hold.Deferred = uint64(at)
	return 2
}

// markDead marks the locked node n dead instead of removing its last record, and releases the lock. What is
// left of an inner node is one child, which then has no separator.
func (c *Client) markDead(n *node, key []byte) error {
	items, err := c.sorted(n)
	if err != nil {
		return c.unlock(err)
	}
	ops := 0
	if c.deferred != 0 { // its checksum is that of records which are to be written yet
		ops = c.appendOps(n.b[:n.used], 0)
		c.hold.Deferred = 0
	}
	dead := makeWord(stateDead, n.used, n.word.crc())
	if err := c.mirror(n.self, n.b[:n.used], dead); err != nil {
		return c.unlock(err)
	}
	c.before[ops] = fabric.Store(c.t.slotAddr(n.self, classNode), uint64(dead))
	if err := c.publish(n.self, ops+1); err != nil {
		return err
	}
	c.stats.Emptied++
	for i := range items {
		if x := &items[i]; n.level > 0 && !bytes.Equal(x.key, key) {
			c.later(job{kind: jobComplete, level: n.level, low: x.key, high: fence{x.key, true}, self: x.child()})
		}
	}
	c.later(job{kind: jobUnlink, level: n.level, low: n.low, high: n.high, link: n.link, self: n.self}) // done first
	return nil
}

// lastRecord reports whether the node will be empty without the key: a leaf that has no other, an inner node
// that has only one other child, which its left neighbour can lead to.
func (c *Client) lastRecord(n *node, key []byte) (bool, error) {
	items, err := c.sorted(n)
	remaining := len(items)
	for i := range items {
		if bytes.Equal(items[i].key, key) {
			remaining--
		}
	}
	return remaining == 0 || remaining == 1 && n.level > 0, err
}

// makeRoom puts a record for which there is no room behind the others into the locked node n.
func (c *Client) makeRoom(n *node, k kind, key, value []byte) error {
	size := recordSize(len(key), len(value))
	if cap(c.rec) < size {
		c.rec = make([]byte, size)
	}
	rec := c.rec[:putRecord(c.rec[:size], k, key, value)]
	items, err := n.sorted(c.items[:0])
	if err != nil {
		return c.unlock(err)
	}
	x := item{raw: rec}
	x.kind, x.key, x.value = k, rec[recordHeader:recordHeader+len(key)], rec[recordHeader+len(key):]
	c.items = merge(items, 0, x)
	m := c.renew(n, c.items)
	m.tail = k != kindDeleted && len(c.items) > 0 && bytes.Equal(c.items[len(c.items)-1].key, key)
	most := len(n.b)
	if len(c.items) > MinRecords && k != kindDeleted {
		most = most / 4 * 3 // or it would be written whole too often
	}
	return c.rewrite(n, &m, most)
}

// renew returns the image of the locked node n with other items.
func (c *Client) renew(n *node, items []item) image {
	return image{self: n.self, link: n.link, token: max(n.token, c.hold.Token), version: n.version + 1,
		level: n.level, low: n.low, high: n.high, items: items}
}

// rewrite writes the locked node n whole, or splits it if it would have more than so many bytes, and
// releases the lock.
func (c *Client) rewrite(n *node, m *image, most int) error {
	if m.size() > most {
		return c.split(n, m)
	}
	shadow, err := c.shadowOn(n.self.node())
	if err != nil {
		return c.unlock(err)
	}
	c.stats.Rewrites++
	return c.commit(n, m, shadow, 0)
}

// commit writes the locked node n anew as m, and releases the lock. It is one chain: WRITE the shadow, store the word that
// leads to it, WRITE the node, store its word, release. From the second operation to the fourth the
// shadow is the node: a client that finds it so under the lock finishes the work. The first
// operations of before are executed first.
func (c *Client) commit(n *node, m *image, shadow ptr, before int) error {
	used := m.build(c.left)
	w := finish(c.left, stateShadow, used)
	alive := makeWord(stateAlive, used, w.crc())
	if err := c.mirror(n.self, c.left[:used], alive); err != nil {
		return c.unlock(err)
	}
	a := c.t.slotAddr(n.self, classNode)
	ops := c.before[before:]
	ops[0] = fabric.Write(c.t.slotAddr(shadow, classNode), c.left[:used])
	ops[1] = fabric.Store(a, uint64(movingWord(m.version, shadow)))
	ops[2] = fabric.Write(a.Add(8), c.left[8:used])
	ops[3] = fabric.Store(a, uint64(alive))
	// What was in n is not needed any more: m is built.
	n.used, n.word = copy(n.b, c.left[:used]), alive
	setWord(n.b, alive)
	c.setHandoff(n)
	if err := c.publish(n.self, before+4); err != nil {
		// The node may be half written: the shadow is what it is to be.
		c.lose(shadow)
		c.shadow[shadow.node()].Store(0)
		return err
	}
	if m.level > 0 {
		var in node
		setWord(c.left, alive)
		if err := in.parse(c.left, alive); err != nil {
			return err
		}
		if _, err := c.keep(nil, &in); err != nil {
			return err
		}
	}
	return nil
}

// shadowOn returns the client's slot for shadows on a memory node.
func (c *Client) shadowOn(node int) (ptr, error) {
	p := ptr(c.shadow[node].Load())
	if p == 0 {
		var err error
		if p, err = c.allocOn(node, classNode); err != nil {
			return 0, noSpace(err)
		}
		c.shadow[node].Store(uint64(p))
	}
	return p, nil
}

// split divides the locked node n, which is to be m, and releases the lock. The right half is written
// to a slot of its own before; the one chain of the left half then publishes both.
func (c *Client) split(n *node, m *image) error {
	shadow, err := c.shadowOn(n.self.node())
	if err != nil {
		return c.unlock(err)
	}
	right := *m
	at := m.middle(len(n.b))
	sep := separator(m.items[at-1].key, m.items[at].key, m.level)
	right.low, right.items, right.token, right.version = sep, m.items[at:], 0, 1
	before, err := c.writeNew(n.self.node(), &right)
	if errors.Is(err, ErrNoSpace) && m.size() <= len(n.b) {
		c.stats.Rewrites++
		return c.commit(n, m, shadow, 0) // it is full, but it has room
	}
	if err != nil {
		return c.unlock(err)
	}
	done := job{kind: jobComplete, level: m.level + 1, low: bytes.Clone(sep), high: fence{bytes.Clone(right.high.key), right.high.some}, self: right.self}
	m.link, m.high, m.items = right.self, fence{key: done.low, some: true}, m.items[:at]
	if err := c.commit(n, m, shadow, before); err != nil {
		c.lose(right.self)
		return err
	}
	c.stats.Splits++
	c.later(done)
	return nil
}

// writeNew writes a new node to a slot on a memory node that is up. If that is the near one, the WRITE is in
// c.before instead, and before is 1.
func (c *Client) writeNew(near int, m *image) (before int, down error) {
	node := c.t.nextNode(near)
	for range c.t.h.Parts {
		slot, err := c.alloc(node, classNode)
		if err != nil {
			return 0, err
		}
		m.self = slot.next()
		used := m.build(c.right)
		finish(c.right, stateAlive, used)
		if slot.node() == near {
			if err := c.mirrorWrite(near, fabric.Write(c.t.slotAddr(slot, classNode), c.right[:used])); err != nil {
				c.giveUp(slot, classNode, err)
				return 0, fmt.Errorf("btree: new node %v: %w", m.self, err)
			}
			c.before[0] = fabric.Write(c.t.slotAddr(slot, classNode), c.right[:used])
			return 1, nil
		}
		if err = c.writeUnlinked(slot, classNode, c.right[:used]); err == nil {
			return 0, nil
		}
		err = fmt.Errorf("btree: new node %v: %w", m.self, err)
		c.giveUp(slot, classNode, err)
		if !errors.Is(err, fabric.ErrNodeDown) {
			return 0, err
		}
		// Another memory node may be up.
		down, node = err, c.t.after(slot)
	}
	return 0, down
}

// middle returns the number of items that stay in the left half of a node of so many bytes: all but the
// last if that is new and there is nothing to the right, as when keys come in ascending order.
func (m *image) middle(most int) int {
	k := len(m.items)
	last := &m.items[k-1]
	if m.tail && !m.high.some && m.size()-len(last.raw)+len(last.key) <= most {
		return k - 1
	}
	half := 0
	for i := range m.items {
		half += len(m.items[i].raw)
	}
	half /= 2
	at, sum := 0, 0
	for at < k-1 && (at == 0 || sum+len(m.items[at].raw)/2 < half) {
		sum += len(m.items[at].raw)
		at++
	}
	return at
}

// separator returns a short key that is above a and not above b. In an inner node it is b, which has a record.
func separator(a, b []byte, level uint8) []byte {
	if level > 0 {
		return b
	}
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return b[:n+1]
}

// nextNode returns where a new node is to be: the memory nodes take turns.
func (t *Tree) nextNode(near int) int {
	if len(t.h.Parts) == 1 {
		return near
	}
	return int(t.turn.Add(1) % uint64(len(t.h.Parts)))
}

// after returns the memory node behind that of a slot. A client that looks for one that is up goes round by it: the turn
// is shared, and might lead to the same one every time.
func (t *Tree) after(slot ptr) int { return (slot.node() + 1) % len(t.h.Parts) }
