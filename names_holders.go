package declock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// A Holder is a process that holds a lock by name.
type Holder struct {
	Name  string // as far as its first 256 bytes
	Mode  Mode
	Node  fabric.CNID // the process as a compute node
	Host  string
	PID   int
	Since time.Time  // by the clock of that host
	Token lock.Token // see Guard.Token

	incarnation uint64
	print       string
	key         []byte // of its record
}

// Holds reports whether it is the name that is held.
func (h *Holder) Holds(name string) bool {
	print := printOf(name)
	return h.print == string(print[:printSize])
}

// ErrNotHeld: no process is known to hold the name.
var ErrNotHeld = errors.New("declock: no process has held the name for longer than 100 ms")

// OpenNames returns the table of named locks with a name, made for as many names as it was made for: for tools. memory.ErrNotFound: there is none.
func (c *Cluster) OpenNames(ctx context.Context, table string) (*Names, error) {
	var e memory.Entry
	err := c.attached(ctx, func(s *Session) (err error) {
		for _, r := range c.node.Regions() {
			if e, err = r.Lookup(s.Port(), table+namesLocks, memory.KindLocks); err == nil || !errors.Is(err, memory.ErrNotFound) {
				return err
			}
		}
		return cmp.Or(err, memory.ErrNotFound)
	})
	if err != nil {
		return nil, fmt.Errorf("declock: names %q: %w", table, err)
	}
	return c.Names(ctx, table, int(e.Info[0])*bucketNames/bucketSlots)
}

// Holders returns what holds the names of the table, in the order of the names: those that have been held for longer than 100 ms, or some more, as processes record that in the
// background. One without a record is held for less, or by a process of a release before records. With an error, as where a memory node is down that has some of the records, the list is
// what could be read.
func (x *Names) Holders(ctx context.Context) ([]Holder, error) {
	list, err := x.recorded(ctx)
	// A grant that was lost has a record until it is unlocked: there are later ones then.
	slices.SortFunc(list, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.print, b.print), cmp.Compare(b.Token, a.Token)) })
	var held []Holder
	over, of := false, ""
	for _, h := range list {
		if h.print != of {
			over, of = false, h.print
		}
		if !over {
			held = append(held, h)
		}
		over = over || h.Mode == Exclusive
	}
	slices.SortStableFunc(held, func(a, b Holder) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token)) })
	return held, err
}

// recorded returns what processes that are members have recorded, and removes the records of others.
func (x *Names) recorded(ctx context.Context) (list []Holder, err error) {
	var none bool
	err = x.c.attached(ctx, func(s *Session) error {
		nodes, err := objstore.Stores.Find(s.Port(), x.name+".held", x.c.memory())
		if none = err == nil && nodes == nil; errors.Is(err, memory.ErrParts) {
			err = nil // what is there of it will do
		}
		return err
	})
	if none || err != nil {
		return nil, err
	}
	st, err := x.records(ctx)
	if err != nil {
		return nil, err
	}
	members, _ := x.c.node.Fabric().(fabric.Members)
	keys, missed := recordKeys(ctx, st)
	for _, key := range keys {
		h, err := holder(ctx, st, key)
		if errors.Is(err, objstore.ErrNotFound) {
			continue // released since
		}
		if errors.Is(err, fabric.ErrNodeDown) { // since its key was read
			missed = err
			continue
		}
		if err != nil {
			return list, errors.Join(missed, err)
		}
		if members != nil && members.Incarnation(h.Node) != h.incarnation {
			sweep(ctx, st, h.key)
			continue
		}
		list = append(list, h)
	}
	return list, missed
}

// mostSkim bounds the bytes that are read at a time, while others wait for the session.
const mostSkim = 1 << 20

// recordKeys returns the keys of a store of records. With an error they are what could be read: of the memory nodes that are not down, or up to what failed.
func recordKeys(ctx context.Context, st *Store) (keys [][]byte, missed error) {
	perNode, _ := st.Buckets()
	for next := uint64(0); next < st.AllBuckets(); {
		err := st.Use(ctx, func(k *objstore.Client) (err error) {
			next, err = k.Skim(next, mostSkim, func(b *objstore.Brief) bool {
				keys = append(keys, slices.Clone(b.Key))
				return true
			})
			return err
		})
		if errors.Is(err, fabric.ErrNodeDown) {
			missed = err
			next = (next/perNode + 1) * perNode
		} else if err != nil {
			return keys, errors.Join(missed, err)
		}
	}
	return keys, missed
}

// sweepWait bounds how long the record of a process that has ended is tried to be removed. The next call does it as well.
const sweepWait = 20 * time.Millisecond

func sweep(ctx context.Context, st *Store, key []byte) {
	ctx, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	_ = st.Delete(ctx, key)
}

// holder reads a record.
func holder(ctx context.Context, st *Store, key []byte) (Holder, error) {
	b, err := st.Get(ctx, key, nil)
	if err != nil {
		return Holder{}, err
	}
	var r record
	if len(key) < printSize {
		return Holder{}, fmt.Errorf("declock: %q is no key of the record of a lock", key)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return Holder{}, fmt.Errorf("declock: the record %q of a lock: %w", b, err)
	}
	return Holder{Name: r.Name, Mode: r.Mode, Node: r.Node, Host: r.Host, PID: r.PID, Since: time.UnixMilli(r.SinceMs), Token: r.Token,
		incarnation: r.Incarnation, print: string(key[:printSize]), key: key}, nil
}

// Break takes a name from what holds it, and returns what did: it declares these processes dead. So they lose all that they hold, are no members any more (Cluster.Done, Guard.Lost), and
// nothing that they still do reaches the cluster's memory; over shared memory, where nothing else does that, they are killed. Break returns when they are shut out, or ctx ends. The lock goes to
// the next that waits or comes, as after a crash, and with a greater token; Guard.Recovered reports that. ErrNotHeld: none has held it for longer than 100 ms.
//
// There is no way to take one lock from a process that lives: it may be about to write to what the lock protects. One that releases the lock at this moment may be declared dead all the
// same. Where records cannot be changed, as with too few copies in sync, or not all records of a shared lock can be read, Break is an error, and takes nothing from any process.
func (x *Names) Break(ctx context.Context, name string) ([]Holder, error) {
	own := x.c.node.Fabric()
	members, ok := own.(fabric.Members)
	if !ok {
		return nil, x.failed(name, errors.ErrUnsupported)
	}
	list, err := x.holders(ctx, name)
	for _, h := range list {
		if h.Node == own.ID() {
			err = errors.Join(err, fmt.Errorf("%w: this process holds it", lock.ErrMisuse))
		}
	}
	if err == nil {
		list, err = x.confirm(ctx, name, list)
	}
	if err != nil {
		return nil, x.failed(name, err)
	}
	for _, h := range list {
		err = errors.Join(err, members.Expel(h.Node, h.incarnation))
	}
	for _, h := range list {
		for err == nil && members.Incarnation(h.Node) == h.incarnation {
			select {
			case <-ctx.Done():
				err = fmt.Errorf("%v is declared dead, and not shut out yet: %w", h.Node, context.Cause(ctx))
			case <-time.After(time.Millisecond):
			}
		}
	}
	return list, x.failed(name, err)
}

// holders returns what holds a name, or why none is known. Of a shared lock it returns all, or an error.
func (x *Names) holders(ctx context.Context, name string) ([]Holder, error) {
	list, err := x.Holders(ctx)
	list = slices.DeleteFunc(list, func(h Holder) bool { return !h.Holds(name) })
	switch {
	case len(list) > 0 && (err == nil || list[0].Mode == Exclusive):
		return list, nil
	case err == nil:
		err = ErrNotHeld
	}
	return nil, err
}

// confirmWait is how long a process that has released a lock, and could not remove its record, may take for that when records can be changed again: it tries it each recordAfter.
const confirmWait = 2*recordAfter + recordWait

// confirm returns which holders still have their record, which they remove before they release the lock; ErrNotHeld if the lock is free. Where records cannot be changed they
// say nothing, and where they could not be a moment ago, holders that have released the lock are given time to remove theirs.
func (x *Names) confirm(ctx context.Context, name string, list []Holder) (still []Holder, err error) {
	switch g, err := x.TryLock(ctx, name); {
	case err == nil:
		return nil, errors.Join(ErrNotHeld, g.Unlock())
	case !errors.Is(err, lock.ErrBusy):
		return nil, err
	}
	st, err := x.records(ctx)
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		if err := st.Touch(ctx, h.key, 0); err != nil && !errors.Is(err, objstore.ErrNotFound) {
			return nil, fmt.Errorf("the record of the holder cannot be confirmed, and nothing was broken: %w", err)
		}
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(confirmWait):
	}
	for _, h := range list {
		switch now, err := holder(ctx, st, h.key); {
		case errors.Is(err, objstore.ErrNotFound):
		case err != nil:
			return nil, err
		case now.incarnation == h.incarnation:
			still = append(still, h)
		}
	}
	if len(still) == 0 {
		return nil, ErrNotHeld
	}
	return still, nil
}
