package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/ram"
	"golang.org/x/sys/unix"
)

// A peer is another compute node, in one incarnation, as this node sends to it.
type peer struct {
	cn          fabric.CNID
	incarnation uint64
	m           *mapping // its file
	asleep      *atomic.Uint64
	hint        *atomic.Uint64
	bit         uint64 // of this node, in its hint

	mu   sync.Mutex
	out  ring
	bell int
	gone bool
	// queue has what did not fit into the ring, in order.
	queue  []queuedMessage
	queued atomic.Int32 // its length, for a look without the mutex
}

type queuedMessage struct {
	from, to int
	m        fabric.Message
}

// The hint of a compute node: bit 0 says that the view may have changed; the
// others that a sender's ring may have messages, or room again for what waits
// for it. Beyond 63 compute nodes they share bits: it is a hint.
const (
	hintView    = 1
	hintSenders = 63
)

func hintOf(cn fabric.CNID) uint64 { return 1 << (1 + (cn-1)%hintSenders) }

// peer returns a compute node, if it is alive.
func (n *node) peer(cn fabric.CNID) (*peer, error) {
	if cn == 0 || uint32(cn) > n.c.maxCN {
		return nil, fmt.Errorf("%w: there is no %v", fabric.ErrNodeDown, cn)
	}
	counter := n.c.cn(cn).counter.Load()
	if p := n.peers[cn].Load(); p != nil && p.incarnation == counter {
		return p, nil
	}
	return n.meet(cn)
}

// meet maps the file of a compute node.
func (n *node) meet(cn fabric.CNID) (*peer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left {
		return nil, fabric.ErrClosed
	}
	counter := n.c.cn(cn).counter.Load()
	old := n.peers[cn].Load()
	if old != nil && old.incarnation == counter {
		return old, nil
	}
	if !isLive(counter) {
		return nil, fmt.Errorf("%w: %v", fabric.ErrNodeDown, cn)
	}
	p, err := n.openPeer(cn, counter)
	if err != nil {
		return nil, err
	}
	n.peers[cn].Store(p)
	if old != nil {
		old.drop()
	}
	return p, nil
}

// openPeer opens the file and the bell of an incarnation of a compute node.
func (n *node) openPeer(cn fabric.CNID, incarnation uint64) (*peer, error) {
	f, h, err := openCompute(n.c.cnPath(cn))
	if err != nil {
		return nil, fmt.Errorf("%w: %v: %w", unreachable(err), cn, err)
	}
	defer f.Close()
	if h.cn != cn || h.incarnation != incarnation || uint32(h.maxCN) != n.c.maxCN || h.slots != n.c.slots {
		return nil, fmt.Errorf("%w: %v is just changing", fabric.ErrNodeDown, cn)
	}
	bell, err := unix.Open(n.c.bellPath(cn), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: the bell of %v: %w", unreachable(err), cn, err)
	}
	m, err := mapFile(f, computeSize(n.c.maxCN, n.c.slots))
	if err != nil {
		_ = unix.Close(bell)
		return nil, fmt.Errorf("%w: %v: %w", unreachable(err), cn, err)
	}
	p := &peer{
		cn: cn, incarnation: incarnation, m: m, bell: bell,
		asleep: m.word(asleepOffset), hint: m.word(hintOffset), bit: hintOf(n.id),
		out: openRing(m, n.c.slots, n.id),
	}
	p.out.produce()
	return p, nil
}

// unreachable returns what it means that a compute node's files cannot be opened: that it
// is down if they are gone or their pipe has no reader, else that this process or machine has too little of something.
func unreachable(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, ErrFormat) || errors.Is(err, io.EOF) {
		return fabric.ErrNodeDown
	}
	return fabric.ErrResources
}

// openCompute opens the file of a compute node and reads its header.
func openCompute(path string) (*os.File, computeHeader, error) {
	var h computeHeader
	f, err := openOwn(path)
	if err != nil {
		return nil, h, err
	}
	var b [headerSize]byte
	if _, err = f.ReadAt(b[:], 0); err == nil {
		err = h.decode(b[:])
	}
	st, errStat := f.Stat()
	if err == nil && (errStat != nil || st.Size() < int64(computeSize(uint32(h.maxCN), h.slots))) {
		err = fmt.Errorf("%w: %s is too short", ErrFormat, path)
	}
	if err != nil {
		_ = f.Close()
		return nil, h, err
	}
	return f, h, nil
}

// send sends a message to a client of the peer, after those that wait. It
// returns an error if the peer has gone.
func (p *peer) send(from, to int, m *fabric.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return fmt.Errorf("%w: %v", fabric.ErrNodeDown, p.cn)
	}
	ram.RaceRelease()
	if len(p.queue) == 0 && p.out.push(from, to, m) {
		p.notify(p.bit)
	} else {
		p.queue = append(p.queue, queuedMessage{from, to, *m})
		p.flush()
	}
	if p.m.isLost() {
		return p.unreachable()
	}
	return nil
}

// unreachable drops what waits for a peer whose file was truncated, and wakes it, so that it notices; mu is held.
func (p *peer) unreachable() error {
	p.queue = nil
	p.queued.Store(0)
	_, _ = unix.Write(p.bell, []byte{1})
	return fmt.Errorf("%w: %v: %w: its process has to open the cluster again", fabric.ErrNodeDown, p.cn, p.m.lost())
}

// flush moves what waits into the ring; mu is held. What does not fit waits for
// the peer to say that there is room.
func (p *peer) flush() {
	sent := 0
	asked := false
	for sent < len(p.queue) {
		q := &p.queue[sent]
		if p.out.push(q.from, q.to, &q.m) {
			sent++
			continue
		}
		if asked {
			break
		}
		// Ask, then look again: the peer makes room, then looks whether it
		// was asked. One of the two sees the other.
		p.out.shared.waiting.Store(1)
		asked = true
	}
	if sent > 0 {
		if p.queue = p.queue[sent:]; len(p.queue) == 0 {
			p.queue = nil // a burst must not hold its memory for ever
		}
		p.notify(p.bit)
	}
	p.queued.Store(int32(len(p.queue)))
}

// notify sets bits in the peer's hint and rings its bell if it sleeps; mu is
// held.
func (p *peer) notify(bits uint64) {
	if p.hint.Load()&bits != bits {
		p.hint.Or(bits)
	}
	ringBell(p.asleep, p.bell)
	runtime.KeepAlive(p)
}

// ringBell wakes a pump that sleeps. The word changes after the bell has rung,
// so that a sender that crashes in between keeps no other from ringing.
func ringBell(asleep *atomic.Uint64, bell int) {
	if word := asleep.Load(); word%2 == 1 {
		// A full pipe has rung already; a broken one has no reader to wake.
		_, _ = unix.Write(bell, []byte{1})
		asleep.CompareAndSwap(word, word+1)
	}
}

// wake notifies a peer from outside of send.
func (p *peer) wake(bits uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.gone {
		p.notify(bits)
	}
}

// push flushes what waits for the peer.
func (p *peer) push() {
	if p.queued.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	if p.flush(); p.m.isLost() {
		_ = p.unreachable()
	}
}

// drop ends the use of a peer that has gone. What waits for it is lost.
func (p *peer) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return
	}
	p.gone = true
	p.queue = nil
	p.queued.Store(0)
	_ = unix.Close(p.bell)
	p.m.release()
}
