package objstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/handle"
)

// What a client has written to backups, and not to the primary, shows when a backup is promoted, however much later: the client crashed, or the outcome of its operation is
// unknown. So one compute node walks through the buckets when another has gone, and compares the backups with the primary. Where they differ the bucket is repaired, under
// its lock: the backups get what the primary has, which is what readers have seen. A compute node repairs the buckets of its own operations that have failed by itself,
// also before it leaves: no walk may come of that, since another compute node may have its number before any looks.
//
// A walk begins when the compute node that has gone is fenced, so nothing that it wrote comes later. All that a crashed client changed at a backup is in slots and links of its
// bucket, or is an object's expiry: what else it wrote, no slot of the primary leads to.

// A walk is what a client knows of the walks through its store.
type walk struct {
	done, now round // of the last walk, and of the one under way
	under     bool
	part      int
	bucket    uint64      // the next
	missed    bool        // a backup that did not answer: it may come back as it is
	asked     uint64      // the epoch of the view in which the walk was another compute node's, or has missed a backup, +1
	look      fabric.Time // then that is looked at anew
}

// A round says what a walk has taken account of.
type round struct {
	begun   bool
	view    fabric.View
	backups []uint32 // the newest in sync of each part
}

// walkLookNs is after how long a compute node that does not walk looks again whether it should, and one whose walk has missed a backup walks again.
const walkLookNs = 10 * fabric.Second

// stale reports whether a compute node has gone since a round began, or a backup has come in sync, to which one may have written that had gone before.
func (r *round) stale(v fabric.View, backups []uint32) bool {
	if !r.begun || v.Lost != r.view.Lost || len(backups) != len(r.backups) {
		return true
	}
	for i, number := range backups {
		if number > r.backups[i] {
			return true
		}
	}
	for i, was := range r.view.Live {
		if was&^v.Live[i] != 0 {
			return true
		}
	}
	return false
}

// unsettled are the buckets of a store of which the backups may differ from the primary, by operations of this compute node.
type unsettled struct {
	mu    sync.Mutex
	list  []spot
	pages atomic.Bool // so may the classes of runs
}

// A spot is a bucket of a part.
type spot struct {
	n      *handle.Part
	bucket fabric.Addr
}

func (u *unsettled) add(x spot) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !slices.Contains(u.list, x) {
		u.list = append(u.list, x)
	}
}

// any reports whether there may be some.
func (u *unsettled) any() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list) > 0 || u.pages.Load()
}

func (u *unsettled) take() []spot {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := u.list
	u.list = nil
	return list
}

// unsettle notes that the backups of a bucket may differ from the primary.
func (c *Client) unsettle(n *handle.Part, bucket fabric.Addr) {
	if n.Region.Replicated() {
		c.s.unsettled.add(spot{n, bucket})
	}
}

// walkStep repairs what this compute node knows to be unsettled, and does some of a walk, if one is due and this compute node's to do. It reports whether there is more to do at
// once.
func (c *Client) walkStep(view func() fabric.View) (busy bool, err error) {
	if err := c.session.Begin(); err != nil {
		return false, err
	}
	defer c.session.End()
	if !c.s.h.UpToDate() || !c.s.h.Registered() || !c.replicated() {
		return false, nil
	}
	if _, err = c.repairAll(); err == nil {
		busy, err = c.walkOn(view())
	}
	if err != nil && isOf(err, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome) && !isOf(err, fabric.ErrFenced, fabric.ErrClosed, lock.ErrMemoryLost) {
		return false, nil // later
	}
	return busy, err
}

func isOf(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(e error) bool { return errors.Is(err, e) })
}

func (c *Client) replicated() bool {
	return slices.ContainsFunc(c.s.h.Parts, func(n *handle.Part) bool { return !n.Missing() && n.Region.Replicated() })
}

// walkOn does some of a walk, or begins one.
func (c *Client) walkOn(v fabric.View) (busy bool, err error) {
	k := &c.walk
	backups, err := c.synced()
	if err != nil {
		return false, err
	}
	if k.under && k.now.stale(v, backups) {
		k.under = false
	}
	if !k.under {
		if !k.done.stale(v, backups) {
			return false, nil
		}
		if mine, err := c.walks(v); err != nil || !mine {
			return false, err
		}
		*k = walk{done: k.done, now: round{true, v, backups}, under: true}
	}
	for ; k.part < len(c.s.h.Parts); k.part, k.bucket = k.part+1, 0 {
		n := c.s.h.Parts[k.part]
		if n.Missing() || !n.Region.Replicated() {
			continue
		}
		if k.bucket == 0 {
			if err := c.levelPages(n); err != nil {
				return false, err
			}
		}
		if k.bucket < c.s.geo.buckets {
			next, err := c.compareBuckets(n, k.bucket)
			if err == nil {
				k.bucket = next
			}
			return err == nil, err
		}
	}
	if left, err := c.repairAll(); left || err != nil {
		return false, err
	}
	k.under = false
	if k.missed {
		k.asked, k.look = v.Epoch+1, c.port.Now()+walkLookNs
		return false, nil
	}
	k.done = k.now
	c.stats.Walks++
	return false, nil
}

// synced returns the number of the newest backup in sync of each part; 0: there is none.
func (c *Client) synced() (list []uint32, err error) {
	list = make([]uint32, len(c.s.h.Parts))
	for i, n := range c.s.h.Parts {
		if n.Missing() || !n.Region.Replicated() {
			continue
		}
		b, err := n.Region.Backups(c.port)
		if err != nil {
			return nil, fmt.Errorf("objstore: walk: %w", err)
		}
		list[i] = b.LastSynced()
	}
	return list, nil
}

// levelPages levels words that change without a lock: a client that has crashed, or failed, may have changed them at the primary only.
func (c *Client) levelPages(n *handle.Part) error {
	if n.Missing() || !n.Region.Replicated() {
		return nil
	}
	c.ops[0] = fabric.Load(n.Region.Stamp()) // the client attaches to what serves now
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return fmt.Errorf("objstore: page table: %w", err)
	}
	missed, err := n.Region.LevelPages(lock.Path(c.l))
	c.walk.missed = c.walk.missed || missed
	if err != nil {
		err = fmt.Errorf("objstore: page table: %w", err)
	}
	return err
}

// walks reports whether a walk is this compute node's: of those that have the store open, the one with the lowest number walks. If two do, that does no harm.
func (c *Client) walks(v fabric.View) (bool, error) {
	k := &c.walk
	if k.asked == v.Epoch+1 && c.port.Now() < k.look {
		return false, nil
	}
	others, err := c.session.Others()
	if err != nil {
		return false, fmt.Errorf("objstore: walk: %w", err)
	}
	own := c.port.ID().CN()
	if slices.ContainsFunc(others, func(cn fabric.CNID) bool { return cn < own && v.Live.Has(cn) }) {
		k.asked, k.look = v.Epoch+1, c.port.Now()+walkLookNs
		return false, nil
	}
	return true, nil
}

// compareBuckets compares some buckets of a part with what the backups have, and returns the next one. It takes no lock: those that differ are compared again under theirs.
func (c *Client) compareBuckets(n *handle.Part, from uint64) (next uint64, err error) {
	g := &c.s.geo
	k := min(max(1, markBytes/g.bucketSize), g.buckets-from)
	size, first := k*g.bucketSize, c.s.bucket(n.Index, from)
	c.table = c.grow(c.table, 2*size)
	here, there := c.table[:size], c.table[size:2*size]
	c.ops[0] = fabric.Read(first, here)
	if err := lock.Do(c.l, c.ops[:1]); err != nil {
		return 0, fmt.Errorf("objstore: walk: %w", err)
	}
	b, err := n.Region.Backups(c.port)
	if err != nil {
		return 0, fmt.Errorf("objstore: walk: %w", err)
	}
	err = b.Synced(func(i int) error {
		if err := b.Read(i, fabric.Read(first, there)); errors.Is(err, fabric.ErrNodeDown) {
			c.walk.missed = true
			return nil
		} else if err != nil {
			return fmt.Errorf("objstore: walk: %w", err)
		}
		for j := range k {
			slots := here[j*g.bucketSize+g.lockSize:][:c.s.slotsLen()]
			same := bytes.Equal(slots, there[j*g.bucketSize+g.lockSize:][:len(slots)])
			if same && wordAt(slots, g.slots) == 0 {
				if same, err = c.sameExpiries(n, &b, i, slots[:g.slots*slotSize]); err != nil {
					return err
				}
			}
			if !same || wordAt(slots, g.slots) != 0 { // overflow blocks are compared under the lock
				c.unsettle(n, c.s.bucket(n.Index, from+j))
			}
		}
		return nil
	})
	return from + k, err
}

// sameExpiries reports whether the objects of slots have the same expiry at a backup.
func (c *Client) sameExpiries(n *handle.Part, b *memory.Backups, backup int, slots []byte) (bool, error) {
	for from := 0; from < len(slots); from += fabric.MaxChain * slotSize {
		ops := c.ops[:0]
		for at := from; at < min(len(slots), from+fabric.MaxChain*slotSize); at += slotSize {
			if w := slotWord(wordAt(slots, at/slotSize)); w != 0 && holds(n, w) {
				ops = append(ops, fabric.Load(n.At(w.chunk().off64).Add(metaOffset)))
			}
		}
		if len(ops) == 0 {
			continue
		}
		if err := lock.Do(c.l, ops); err != nil {
			return false, fmt.Errorf("objstore: walk: %w", err)
		}
		var here [fabric.MaxChain]uint64
		for i := range ops {
			here[i] = ops[i].Old
		}
		if err := b.Read(backup, ops...); err != nil {
			return false, fmt.Errorf("objstore: walk: %w", err)
		}
		for i := range ops {
			if here[i]>>32 != ops[i].Old>>32 {
				return false, nil
			}
		}
	}
	return true, nil
}

// repairAll repairs the buckets that are known to be unsettled, and reports whether some are left, since others have their locks.
func (c *Client) repairAll() (left bool, err error) {
	if c.s.unsettled.pages.Swap(false) {
		for _, n := range c.s.h.Parts {
			if err := c.levelPages(n); err != nil {
				c.s.unsettled.pages.Store(true)
				return false, err
			}
		}
	}
	list := c.s.unsettled.take()
	for i, x := range list {
		ok, err := c.repair(x)
		if err != nil {
			for _, y := range list[i:] {
				c.s.unsettled.add(y)
			}
			return false, err
		}
		if !ok {
			left = true
			c.s.unsettled.add(x)
		}
	}
	return left, nil
}

// repairWaitNs bounds the wait for the lock of a bucket that is to be repaired. It is time enough for the reset of one that a crashed client held.
const repairWaitNs = 200 * fabric.Millisecond

// repair makes the backups of a bucket what the primary is, unless other clients have its lock for long.
func (c *Client) repair(x spot) (ok bool, err error) {
	if c.s.h.Parts[x.n.Index] != x.n {
		return true, nil // it was lost
	}
	c.req = lock.Request{Lock: x.bucket, Mode: lock.Exclusive, Deadline: c.port.Now() + repairWaitNs}
	if err := c.l.Acquire(&c.hv, &c.req); err != nil {
		if errors.Is(err, lock.ErrTimeout) {
			return false, nil
		}
		return false, fmt.Errorf("objstore: repair: %w", err)
	}
	if err = c.repairLocked(x); err == nil {
		c.stats.Repaired++
	}
	err = errors.Join(err, c.l.Release(&c.hv, nil))
	if err != nil {
		err = fmt.Errorf("objstore: repair: %w", err)
	}
	return err == nil, err
}

func (c *Client) repairLocked(x spot) error {
	blocks, err := c.wholeBucket(x.n, x.bucket, nil)
	if err != nil {
		return err
	}
	b, err := x.n.Region.Backups(c.port)
	if err != nil {
		return err
	}
	m := c.mirrored
	ops := m.ops[:0]
	for i := range blocks {
		ops = append(ops, fabric.Write(m.at[i], m.block(i, c.s.slotsLen())))
	}
	if err := b.Write(ops); err != nil {
		return err
	}
	for i := range blocks {
		slots := m.block(i, c.s.slotsLen())
		for j := range len(slots)/slotSize - 1 {
			w := slotWord(wordAt(slots, j))
			if w == 0 || !holds(x.n, w) {
				continue
			}
			a := x.n.At(w.chunk().off64).Add(metaOffset)
			c.ops[0] = fabric.Load(a)
			if err := lock.Do(c.l, c.ops[:1]); err != nil {
				return err
			}
			c.ops[0] = fabric.Store(a, c.ops[0].Old)
			if err := b.Write(c.ops[:1]); err != nil {
				return err
			}
		}
	}
	return nil
}
