package inbox

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

// ErrAgent: an agent keeps its ID for as long as its node exists.
var ErrAgent = errors.New("inbox: the agent cannot abandon its ID")

// agentIndex is the index of the agent, where abandoned messages go.
const agentIndex = 0

// A Host is what a table needs of its backend.
type Host interface {
	// Now returns the clock of the compute node.
	Now() fabric.Time
	// Poll delivers what has come for this node, where that takes
	// a call. It is called before each wait: it must be cheap, and nothing is
	// held while it runs.
	Poll()
}

// A Table has the clients of one compute node. Its methods may be called by
// any goroutine.
type Table struct {
	host  Host
	cn    fabric.CNID
	agent *Box
	alarm alarm
	// entries leads from an index to the box that gets its messages: its
	// client's, or the agent's after Abandon, or none.
	entries [fabric.MaxClientIndex + 1]atomic.Pointer[Box]

	mu sync.Mutex
	// next is the first index that was never used. Used ones are taken again
	// when there are no new ones, the longest free first: what is still under
	// way to a client that has gone should not find another.
	next      int
	free      []int
	abandoned map[int]bool
	closed    bool
}

// NewTable returns the table of cn, with the agent in it.
func NewTable(cn fabric.CNID, host Host) *Table {
	t := &Table{host: host, cn: cn, next: agentIndex + 1, abandoned: map[int]bool{}, alarm: alarm{host: host}}
	t.agent = newBox(t)
	t.agent.id.Store(uint32(fabric.AgentOf(cn)))
	t.entries[agentIndex].Store(t.agent)
	return t
}

// Agent returns the box of the agent.
func (t *Table) Agent() *Box { return t.agent }

// Open returns the box of a new client.
func (t *Table) Open() (*Box, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, fabric.ErrClosed
	}
	index, err := t.take()
	if err != nil {
		return nil, err
	}
	b := newBox(t)
	b.id.Store(uint32(fabric.Client(t.cn, index)))
	t.entries[index].Store(b)
	return b, nil
}

// take returns a free index; mu is held.
func (t *Table) take() (int, error) {
	if t.next <= fabric.MaxClientIndex {
		t.next++
		return t.next - 1, nil
	}
	if len(t.free) == 0 {
		return 0, fmt.Errorf("%w (%v has %d clients or abandoned IDs; close Ports, or let the agent retire IDs)",
			fabric.ErrTooManyClients, t.cn, fabric.MaxClientIndex)
	}
	index := t.free[0]
	t.free = t.free[1:]
	return index, nil
}

// Deliver puts a message into the box of the client with an index. It reports
// whether a client was parked and now is not: a caller that goes on computing
// may want to yield. Whatever the index, nothing worse happens than that the
// message is dropped.
func (t *Table) Deliver(index int, m *fabric.Message) (woke bool) {
	if index < 0 || index > fabric.MaxClientIndex {
		return false
	}
	// The entry changes at Abandon: then put refuses, and the second look finds
	// the agent's box, which never refuses unless the node is closed.
	for {
		b := t.entries[index].Load()
		if b == nil {
			return false
		}
		if woke, ok := b.put(index, m); ok {
			return woke
		}
	}
}

// Len returns how many messages are in the box to which those for an index go.
func (t *Table) Len(index int) int {
	if index < 0 || index > fabric.MaxClientIndex {
		return 0
	}
	if b := t.entries[index].Load(); b != nil {
		return b.Len()
	}
	return 0
}

// Abandon gives the box a new ID. What is in it, and what still comes for the
// old ID, goes to the agent's box, in order.
func (t *Table) Abandon(b *Box) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || b.Closed() {
		return fabric.ErrClosed
	}
	if b == t.agent {
		return ErrAgent
	}
	index, err := t.take()
	if err != nil {
		return err
	}
	b.mu.Lock()
	old := b.ID().Index()
	t.agent.mu.Lock()
	woke := false
	for n := int(b.count.Load()); n > 0; n-- {
		woke = t.agent.push(&b.queue[b.head]) || woke
		b.head = (b.head + 1) & (len(b.queue) - 1)
	}
	b.count.Store(0)
	t.agent.mu.Unlock()
	t.entries[old].Store(t.agent)
	t.abandoned[old] = true
	b.id.Store(uint32(fabric.Client(t.cn, index)))
	t.entries[index].Store(b)
	b.mu.Unlock()
	if woke {
		t.agent.wake <- struct{}{}
	}
	return nil
}

// Retire makes an abandoned ID free. Other IDs are left alone.
func (t *Table) Retire(id fabric.ClientID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	index := id.Index()
	if id.CN() != t.cn || !t.abandoned[index] {
		return
	}
	delete(t.abandoned, index)
	t.entries[index].Store(nil)
	t.free = append(t.free, index)
}

// Close closes the box of a client and makes its ID free. The agent's box
// stays open until CloseAll.
func (t *Table) Close(b *Box) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if b == t.agent || b.Closed() {
		return
	}
	index := b.ID().Index()
	t.entries[index].Store(nil)
	t.free = append(t.free, index)
	b.close()
}

// CloseAll closes all boxes: the node leaves.
func (t *Table) CloseAll() {
	t.closeBoxes()
	t.alarm.close()
}

func (t *Table) closeBoxes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for i := range t.next {
		if b := t.entries[i].Load(); b != nil && !b.Closed() {
			b.close()
		}
	}
}
