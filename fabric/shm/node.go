package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
	"golang.org/x/sys/unix"
)

// closeFlush is how long Close goes on trying to send what is queued for those
// whose rings are full.
const closeFlush = 100 * time.Millisecond

// A node is a compute node.
type node struct {
	c           *cluster
	id          fabric.CNID
	incarnation uint64
	alive       atomic.Uint64 // the incarnation, until fail
	slot        *cnSlot
	key         uint64
	clock       clock
	table       *inbox.Table
	agent       *port
	closed      atomic.Bool
	ctx         context.Context // ends with the node
	cancel      context.CancelFunc

	// What others write for this node: see computeHeader.
	file   *os.File // its lock is the proof that this node exists
	m      *mapping
	asleep *atomic.Uint64
	hint   *atomic.Uint64
	woken  atomic.Bool // a client of this node was woken, for which no other has made room yet
	bell   *os.File

	drainMu sync.Mutex
	rings   []ring // by sender

	// The pump's.
	sleep     uint64
	viewDirty atomic.Bool
	pumping   sync.WaitGroup

	viewMu    sync.Mutex
	announced uint64   // epoch of the last view of which the agent was notified
	known     []uint64 // counters of the last view
	lost      uint64   // and its View.Lost

	failing sync.Once
	failed  chan struct{} // closed by fail

	watches watchSet

	peers [int(fabric.MaxCN) + 1]atomic.Pointer[peer]
	mu    sync.Mutex // for coming to know peers and memory nodes
	mems  [MaxMN]*memory
	left  bool // no more of them
}

// Join makes the process a compute node of a cluster, with the lowest number
// that is free. A process may join more than once. ctx ends the wait for others
// that are joining or leaving, no more.
func Join(ctx context.Context, o Options) (fabric.Node, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	c, err := openCluster(ctx, &o, false)
	if err != nil {
		return nil, err
	}
	if !c.isNew() && c.sweep(noMN) == 0 {
		err = fmt.Errorf("%w: of %q nothing was left but the files of crashed processes, which are removed now; start it again, as with: declock up --name %s",
			ErrNoCluster, o.Name, o.Name)
	}
	n := &node{c: c, key: o.Key, failed: make(chan struct{})}
	if n.key == 0 {
		n.key = c.key
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err == nil {
		n.clock, err = newClock(c.clock)
	}
	if err == nil {
		err = n.enter()
	}
	c.unlock()
	if err != nil {
		n.cancel()
		c.close()
		return nil, err
	}
	if err := n.begin(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter takes a number and makes the files of this node. The cluster's lock is
// held, and what crashed nodes left has been swept.
func (n *node) enter() error {
	c := n.c
	for id := range c.cns() {
		if !isLive(c.cn(id).counter.Load()) {
			n.id = id
			break
		}
	}
	if n.id == 0 {
		return fmt.Errorf("%w: cluster %q has %d, which is its MaxCN; stop one, or create the cluster anew with more",
			ErrFull, c.name, c.maxCN)
	}
	n.slot = c.cn(n.id)
	n.incarnation = n.slot.counter.Load() + 1
	n.alive.Store(n.incarnation)
	c.removeCN(n.id)
	if err := n.makeFiles(); err != nil {
		if n.file != nil {
			n.m.release()
			_ = n.file.Close()
		}
		c.removeCN(n.id)
		return fmt.Errorf("join cluster %q as %v: %w", c.name, n.id, err)
	}
	n.table = inbox.NewTable(n.id, n)
	n.slot.pid.Store(uint64(os.Getpid()))
	n.slot.pidNS.Store(pidNamespace())
	n.slot.joined.Store(int64(n.Now()))
	n.slot.beat.Store(0)
	// From here on others send.
	n.slot.counter.Store(n.incarnation)
	return nil
}

// makeFiles makes the file with the rings, locked, and the bell.
func (n *node) makeFiles() (err error) {
	c := n.c
	n.file, err = os.OpenFile(c.cnPath(n.id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if ok, err := tryLock(n.file); err != nil || !ok {
		return errors.Join(fmt.Errorf("%w: %s is locked by another process", ErrInUse, n.file.Name()), err)
	}
	size := computeSize(c.maxCN, c.slots)
	if err := allocate(n.file, int64(size)); err != nil {
		return err
	}
	if n.m, err = mapFile(n.file, size); err != nil {
		return err
	}
	h := computeHeader{cn: n.id, maxCN: uint16(c.maxCN), incarnation: n.incarnation, slots: c.slots}
	b := h.encode()
	copy(n.m.bytes(0, headerSize), b[:])
	n.asleep, n.hint = n.m.word(asleepOffset), n.m.word(hintOffset)
	n.rings = make([]ring, c.maxCN+1)
	for id := range c.cns() {
		n.rings[id] = openRing(n.m, c.slots, id)
	}
	if err := unix.Mkfifo(c.bellPath(n.id), 0o600); err != nil {
		return fmt.Errorf("make %s: %w", c.bellPath(n.id), err)
	}
	// Open for writing too, or it would be at its end when no sender has it.
	n.bell, err = os.OpenFile(c.bellPath(n.id), os.O_RDWR|unix.O_NONBLOCK, 0)
	return err
}

// begin attaches to what there is and starts the pump.
func (n *node) begin() error {
	for id := fabric.MemID(0); id < MaxMN; id++ {
		if liveWord(n.c.mn(id).live.Load()).state() != memUp {
			continue
		}
		if _, err := n.memory(id); err != nil && !errors.Is(err, fabric.ErrNodeDown) {
			return err
		}
	}
	n.agent = n.newPort(n.table.Agent())
	v, counters := n.c.view()
	n.announced = v.Epoch
	n.known, n.lost = append([]uint64(nil), counters[:]...), v.Lost
	n.viewMu.Lock()
	n.watchPeers(counters[:])
	n.viewMu.Unlock()
	n.pumping.Go(n.pump)
	if n.c.lease().Load() > 0 {
		n.slot.beat.Store(1)
		n.pumping.Go(n.beat)
	}
	n.notifyView()
	return nil
}

// ID is fabric.Node.ID.
func (n *node) ID() fabric.CNID { return n.id }

// Caps is fabric.Node.Caps.
func (n *node) Caps() fabric.Caps { return caps }

// Now returns the cluster's clock.
func (n *node) Now() fabric.Time { return n.clock.now() }

// View is fabric.Node.View.
func (n *node) View() fabric.View {
	v, _ := n.c.view()
	if n.c.m.isLost() {
		n.viewMu.Lock()
		defer n.viewMu.Unlock()
		return viewOf(n.known, n.lost) // the last: no node has gone, the file has
	}
	return v
}

// Open is fabric.Node.Open.
func (n *node) Open() (fabric.Port, error) {
	box, err := n.table.Open()
	if err != nil {
		return nil, err
	}
	return n.newPort(box), nil
}

// Agent is fabric.Node.Agent.
func (n *node) Agent() fabric.Port { return n.agent }

// Retire is fabric.Node.Retire.
func (n *node) Retire(id fabric.ClientID) { n.table.Retire(id) }

// Close is fabric.Node.Close.
func (n *node) Close() error { return n.end(n.c.endCN) }

// Fail is fabric.Node.Fail.
func (n *node) Fail() error { return n.end(n.c.loseCN) }

// end leaves the cluster: note records how.
func (n *node) end(note func(id fabric.CNID, incarnation uint64) (mine bool)) error {
	if n.closed.Load() {
		return nil
	}
	if !n.flushQueues() { // a client that waits for such a message may wait for long: let all look after their locks
		note = n.c.loseCN
	}
	if n.closed.Swap(true) {
		return nil
	}
	n.table.CloseAll()
	n.cancel()
	err := n.c.lock(context.Background())
	if n.damage() != nil {
		note = n.c.loseCN // it could not give its locks back
	}
	mine := note(n.id, n.incarnation)
	if err == nil {
		if mine {
			n.c.removeCN(n.id)
		}
		_ = n.file.Close()
		n.c.sweep(noMN)
		n.c.unlock()
	} else {
		err = fmt.Errorf("%v has left, but its files are still in %s: %w", n.id, n.c.dir, err)
	}
	n.leave()
	return err
}

// leave notifies the others and gives everything back.
func (n *node) leave() {
	n.notifyView()
	_ = n.bell.Close()
	n.pumping.Wait()
	n.watches.close()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = true
	for i := range n.peers {
		if p := n.peers[i].Swap(nil); p != nil {
			p.drop()
		}
	}
	for _, m := range n.mems {
		if m != nil {
			m.m.release()
		}
	}
	_ = n.file.Close()
	n.m.release()
	n.c.close()
}

// flushQueues gives what is queued for full rings a last chance, and reports whether all of it is sent.
func (n *node) flushQueues() (done bool) {
	limit := time.Now().Add(closeFlush)
	for time.Now().Before(limit) {
		left := int32(0)
		for i := range n.peers {
			if p := n.peers[i].Load(); p != nil {
				p.push()
				left += p.queued.Load()
			}
		}
		if left == 0 {
			return true
		}
		time.Sleep(100 * time.Microsecond)
	}
	return false
}

// cleanCN removes the files of a compute node that has ended, unless its number
// has been taken since. If it cannot, the node that takes the number will.
func (n *node) cleanCN(cn fabric.CNID, counter uint64) {
	if n.c.lock(n.ctx) != nil {
		return
	}
	defer n.c.unlock()
	if n.c.cn(cn).counter.Load() == counter {
		n.c.removeCN(cn)
	}
}
