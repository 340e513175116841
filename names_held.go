package declock

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
)

// A process records in a store beside a table of names which of them it has held for longer than recordAfter, so that others can say what holds a name: [Names.Holders]. An
// acquisition that is given back sooner has no record, and costs no operation for it. Guard.Unlock removes the record first, and so
// does the background when a lock is lost: so a record whose process lives is of a lock that is held, unless it could not be removed.
const (
	recordAfter = 100 * time.Millisecond
	// recordWait bounds how long a record takes: so long Unlock waits for its own to go, twice if that is just being written. One that stays is removed later.
	recordWait = 100 * time.Millisecond
	// recordedName is how many bytes of a name a record has.
	recordedName = 256
	maxRecord    = 4096
)

// heldNames are the names that this process holds.
type heldNames struct {
	c           *Cluster
	host        string
	incarnation uint64
	serial      atomic.Uint64
	ctx         context.Context // ends with Close
	stop        context.CancelFunc
	running     sync.WaitGroup

	mu     sync.Mutex
	all    []*heldName
	looked bool // a goroutine looks at them
}

// A heldName is a name that a guard holds.
type heldName struct {
	table *Names
	name  string
	print [printSize]byte
	mode  Mode
	guard Guard
	since time.Time
	at    int // in heldNames.all; -1: it has been removed

	mu       sync.Mutex
	lost     <-chan struct{} // of the guard; nil: it has not been held for long
	key      []byte          // of its record; nil: it has none
	recorded bool            // for certain
	released bool
}

// A record is what a process says of a name that it holds, as JSON.
type record struct {
	Name        string      `json:"name"`
	Mode        Mode        `json:"mode"`
	Node        fabric.CNID `json:"node"`
	Incarnation uint64      `json:"incarnation"`
	Host        string      `json:"host"`
	PID         int         `json:"pid"`
	SinceMs     int64       `json:"since_ms"` // Unix time
	Token       lock.Token  `json:"token"`
}

func (h *heldNames) start(c *Cluster) {
	h.c = c
	h.host, _ = os.Hostname()
	f := c.node.Fabric()
	if m, ok := f.(fabric.Members); ok {
		h.incarnation = m.Incarnation(f.ID())
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
}

// close ends what is recorded. The records of what is held are of a process that has left then.
func (h *heldNames) close() {
	h.stop()
	h.mu.Lock()
	h.looked = true // none looks any more
	h.mu.Unlock()
	h.running.Wait()
}

// add notes that a guard holds a name.
func (h *heldNames) add(g Guard, x *Names, k *nameKey, name string, mode lock.Mode) {
	n := &heldName{table: x, name: name, print: k.print, mode: Mode(mode) + Shared, guard: g, since: time.Now()}
	g.h.named = n
	h.mu.Lock()
	defer h.mu.Unlock()
	n.at = len(h.all)
	h.all = append(h.all, n)
	if !h.looked {
		h.looked = true
		h.running.Go(h.look)
	}
}

// remove is called when there is no record of a name that is released: by release, and by look, which may have found the name before it was removed.
func (h *heldNames) remove(n *heldName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.at < 0 {
		return
	}
	last := h.all[len(h.all)-1]
	last.at = n.at
	h.all[n.at], h.all[len(h.all)-1] = last, nil
	h.all = h.all[:len(h.all)-1]
	n.at = -1
}

// look records what has been held for long, until nothing is held.
func (h *heldNames) look() {
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-time.After(recordAfter):
		}
		h.mu.Lock()
		if h.looked = len(h.all) > 0; !h.looked {
			h.mu.Unlock()
			return
		}
		var due []*heldName
		for _, n := range h.all {
			if time.Since(n.since) >= recordAfter {
				due = append(due, n)
			}
		}
		h.mu.Unlock()
		for _, n := range due {
			h.keep(n)
		}
	}
}

// keep records a name that is held, and removes the record of one that is not. What fails is done again.
func (h *heldNames) keep(n *heldName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithTimeout(h.ctx, recordWait)
	defer cancel()
	if n.released || n.isLost() {
		if n.unrecord(ctx) && n.released {
			h.remove(n)
		}
		return
	}
	if n.recorded {
		return
	}
	st, err := n.table.records(ctx)
	if err != nil {
		return
	}
	r := record{
		Name: n.name[:min(len(n.name), recordedName)], Mode: n.mode, Node: h.c.node.Fabric().ID(), Incarnation: h.incarnation,
		Host: h.host, PID: os.Getpid(), SinceMs: n.since.UnixMilli(), Token: n.guard.token,
	}
	b, err := json.Marshal(r)
	if err != nil {
		return
	}
	if n.key == nil {
		n.key = n.print[:]
		for _, x := range []uint64{uint64(r.Node), r.Incarnation, h.serial.Add(1)} { // over shared memory incarnations count for each compute node
			n.key = binary.LittleEndian.AppendUint64(n.key, x)
		}
	}
	n.recorded = st.Set(ctx, n.key, b, SetOptions{}) == nil
}

// isLost reports whether the lock was lost: others may hold it, though it is not released yet. mu is held, which Unlock waits for before it releases the lock.
func (n *heldName) isLost() bool {
	if n.lost == nil {
		n.lost = n.guard.Lost()
	}
	select {
	case <-n.lost:
		return true
	default:
		return false
	}
}

// release is called before a name is unlocked.
func (h *heldNames) release(n *heldName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.released = true
	ctx, cancel := context.WithTimeout(context.Background(), recordWait)
	defer cancel()
	if n.unrecord(ctx) {
		h.remove(n)
	}
}

// unrecord reports whether the name has no record any more. mu is held.
func (n *heldName) unrecord(ctx context.Context) bool {
	if n.key == nil {
		return true
	}
	st, err := n.table.records(ctx)
	if err == nil {
		err = st.Delete(ctx, n.key)
	}
	if err == nil || errors.Is(err, objstore.ErrNotFound) {
		n.key = nil
	}
	return n.key == nil
}

// records returns the store with the records of a table of names.
func (x *Names) records(ctx context.Context) (*Store, error) {
	if st := x.held.Load(); st != nil && !st.Dropped() {
		return st, nil
	}
	st, err := x.c.Store(ctx, x.name+".held", StoreConfig{Objects: uint64(x.locks.n), MaxValue: maxRecord, CacheEntries: -1})
	if err == nil {
		x.held.Store(st)
	}
	return st, err
}
