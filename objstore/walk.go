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

// A compute node that walks (package memory/handle) reads the buckets of the primary and of each backup without a lock, and repairs those that differ under their locks. It repairs the
// buckets of its own operations that have failed by itself, also before it leaves: no walk may come of that, since another compute node may have its number before any looks.
//
// All that a crashed client changed at a backup is in slots and links of its bucket, or is an object's expiry: what else it wrote, no slot of the primary leads to.

// A walk is what a client knows of the walks through its store.
type walk struct {
	handle.Walk
	part   int
	bucket uint64 // the next
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
	if !c.s.h.UpToDate() || !c.s.h.Registered() || !c.s.h.Replicated() {
		return false, nil
	}
	if _, err = c.repairAll(); err == nil {
		busy, err = c.walkOn(view())
	}
	if err == nil && !busy {
		busy, err = c.session.SeekRound(view())
	}
	if err != nil && handle.Later(err) {
		return false, nil
	}
	return busy, err
}

// settled is handle.Hooks.Settled.
func (c *Client) settled() bool { return !c.s.unsettled.pages.Load() }

// walkOn does some of a walk, or begins one.
func (c *Client) walkOn(v fabric.View) (busy bool, err error) {
	k := &c.walk
	k.Wanted = c.s.geo.segment != 0 && (c.large.sweep.under || c.large.sweep.due(v))
	busy, over, err := c.session.WalkOn(&k.Walk, v, func() { k.part, k.bucket = 0, 0 }, c.walkBuckets)
	if over {
		c.stats.Walks++
	}
	return busy, err
}

// walkBuckets goes on with a walk.
func (c *Client) walkBuckets() (busy, over bool, err error) {
	k := &c.walk
	for ; k.part < len(c.s.h.Parts); k.part, k.bucket = k.part+1, 0 {
		n := c.s.h.Parts[k.part]
		if !n.Replicated() {
			continue
		}
		if k.bucket == 0 {
			missed, err := c.session.LevelPages(n)
			if k.Missed = k.Missed || missed; err != nil {
				return false, false, err
			}
		}
		if k.bucket < c.s.geo.buckets {
			next, err := c.compareBuckets(n, k.bucket)
			if err == nil {
				k.bucket = next
			}
			return err == nil, false, err
		}
	}
	left, err := c.repairAll()
	return false, !left, err
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
			c.walk.Missed = true
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
			e, _ := fromMeta(here[i])
			if there, _ := fromMeta(ops[i].Old); e != there {
				return false, nil
			}
		}
	}
	return true, nil
}

// repairAll repairs the buckets that are known to be unsettled, and reports whether some are left, since others have their locks.
func (c *Client) repairAll() (left bool, err error) {
	if c.s.unsettled.pages.Swap(false) {
		missed, err := c.session.LevelAll(&c.walk.Walk)
		if missed || err != nil { // a backup that did not answer may come back as it is
			c.s.unsettled.pages.Store(true)
		}
		if err != nil {
			return false, err
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
	if err := b.Write(ops, 0); err != nil {
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
			if err := b.Write(c.ops[:1], 0); err != nil {
				return err
			}
		}
	}
	return nil
}
