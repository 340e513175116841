package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

// A memory is a memory node in one of its epochs, mapped.
type memory struct {
	id     fabric.MemID
	base   unsafe.Pointer // what offset 0 is
	size   uint64
	live   *atomic.Uint64
	expect uint64 // what live is while the memory node is up in this epoch
	m      *mapping
}

// attach maps a memory node that is up.
func (n *node) attach(id fabric.MemID) (*memory, error) {
	if id >= MaxMN {
		return nil, fmt.Errorf("%w: there is no %v", fabric.ErrNodeDown, id)
	}
	slot := n.c.mn(id)
	if w := liveWord(slot.live.Load()); w.state() != memUp {
		if err := n.c.truncated(id); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %v is %v", fabric.ErrNodeDown, id, w.state())
	}
	path, err := regionPath(n.c.mnPath(id))
	if err != nil {
		return nil, attachError(id, err)
	}
	r, err := openRegion(path)
	if err != nil {
		return nil, attachError(id, err)
	}
	defer func() { r.m.release() }()
	mem, err := n.mapMemory(id, r)
	if err != nil {
		_ = r.file.Close()
		return nil, err
	}
	slot, word, live := n.c.mn(id), mem.live, liveWord(mem.expect)
	n.watches.start(watchKey{mn: id, number: uint64(mem.epoch())}, slot.pid.Load(), slot.pidNS.Load(), r.file,
		func() { n.endMN(id, word, live); runtime.KeepAlive(mem) })
	return mem, nil
}

// attachError tells a memory node that has just gone from one that cannot be
// attached to.
func attachError(id fabric.MemID, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: %v has gone", fabric.ErrNodeDown, id)
	}
	if errors.Is(err, ErrTruncated) {
		return fmt.Errorf("%w: %v: %w", fabric.ErrNodeDown, id, err)
	}
	return fmt.Errorf("attach %v: %w", id, err)
}

func (n *node) mapMemory(id fabric.MemID, r *region) (*memory, error) {
	if r.blank || r.live().state() != memUp {
		return nil, fmt.Errorf("%w: %v", fabric.ErrNodeDown, id)
	}
	live := r.live()
	if r.mem != id {
		return nil, fmt.Errorf("%w: %s is %v, not %v", ErrFormat, r.file.Name(), r.mem, id)
	}
	if r.key != n.key {
		return nil, fmt.Errorf("%w: %v of cluster %q", fabric.ErrBadKey, id, n.c.name)
	}
	if locked, err := isLocked(r.file); err != nil {
		return nil, err
	} else if !locked {
		n.endMN(id, r.liveWord(), live)
		return nil, fmt.Errorf("%w: the process of %v has ended", fabric.ErrNodeDown, id)
	}
	m, err := mapFile(r.file, uintptr(r.start+r.size))
	if err != nil {
		return nil, err
	}
	if r.flags&flagHuge != 0 {
		// Only faster; the server has found that it works.
		_ = unix.Madvise(m.bytes(0, m.size), unix.MADV_HUGEPAGE)
	}
	return &memory{
		id: id, base: m.at(uintptr(r.start)), size: r.size,
		live: m.word(memoryLiveOffset), expect: uint64(live), m: m,
	}, nil
}

func (m *memory) epoch() uint32 { return liveWord(m.expect).epoch() }

func (m *memory) isUp() bool { return m.live.Load() == m.expect }

// endMN notes that the server of a memory node has gone.
func (n *node) endMN(id fabric.MemID, word *atomic.Uint64, live liveWord) {
	down := uint64(makeLive(live.epoch(), memDown))
	word.CompareAndSwap(uint64(live), down)
	n.c.mn(id).live.CompareAndSwap(uint64(live), down)
}

// memory returns a memory node in its present epoch, attached.
func (n *node) memory(id fabric.MemID) (*memory, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left {
		return nil, fabric.ErrClosed
	}
	if id < MaxMN && n.mems[id] != nil && n.mems[id].isUp() {
		return n.mems[id], nil
	}
	m, err := n.attach(id)
	if err != nil {
		return nil, err
	}
	if old := n.mems[id]; old != nil {
		// Ports may be using it for a moment yet; its memory is lost anyway. Operations under way hit nothing, and notice: live is no
		// longer what they expect.
		n.watches.stop(watchKey{mn: id, number: uint64(old.epoch())})
		old.m.release()
	}
	n.mems[id] = m
	return m, nil
}

// refusal says why a memory node refuses operations of an epoch that is over.
func (n *node) refusal(m *memory) error {
	now := liveWord(n.c.mn(m.id).live.Load())
	if now.epoch() != m.epoch() && now.state() == memUp {
		return fmt.Errorf("%w: %v is in epoch %d, this port attached in %d", fabric.ErrStaleEpoch, m.id, now.epoch(), m.epoch())
	}
	if err := m.m.lost(); err != nil {
		n.loseMN(m)
		return fmt.Errorf("%w: %v: %w: start that memory node again", fabric.ErrNodeDown, m.id, err)
	}
	if err := n.c.truncated(m.id); err != nil {
		return err
	}
	return fmt.Errorf("%w: %v", fabric.ErrNodeDown, m.id)
}

// loseMN notes that a memory node has lost memory, for all: those that have not touched what is lost still have the header mapped.
func (n *node) loseMN(m *memory) {
	if !n.c.mn(m.id).live.CompareAndSwap(m.expect, uint64(makeLive(m.epoch(), memDown))) {
		return
	}
	if r, err := openHeader(m.m.path); err == nil {
		n.endMN(m.id, r.liveWord(), liveWord(m.expect))
		r.close()
	}
}

// truncated returns an error if a memory node's file is shorter than its memory.
func (c *cluster) truncated(id fabric.MemID) error {
	path, err := regionPath(c.mnPath(id))
	if err != nil {
		return nil
	}
	st, err := os.Stat(path)
	if want := c.mn(id).size.Load(); err != nil || !st.Mode().IsRegular() || uint64(st.Size()) >= want {
		return nil
	}
	return fmt.Errorf("%w: %v: %w: %s was truncated: start that memory node again", fabric.ErrNodeDown, id, ErrTruncated, path)
}

// Memory is fabric.Node.Memory: those that are up, and those whose server has
// ended and that may come back.
func (n *node) Memory() []fabric.Memory {
	var list []fabric.Memory
	for id := fabric.MemID(0); id < MaxMN; id++ {
		slot := n.c.mn(id)
		w := liveWord(slot.live.Load())
		if w.state() != memUp && w.state() != memDown {
			continue
		}
		// Attached, its end is noticed.
		_, _ = n.memory(id)
		list = append(list, fabric.Memory{ID: id, Size: slot.size.Load(), Epoch: w.epoch()})
	}
	return list
}

// MemoryEpoch is fabric.Node.MemoryEpoch: the word that all processes share has the epoch before the memory node is up in it.
func (n *node) MemoryEpoch(id fabric.MemID) uint32 {
	if id >= MaxMN {
		return 0
	}
	return liveWord(n.c.mn(id).live.Load()).epoch()
}

// Leased is fabric.Node.Leased: no memory node is replicated.
func (n *node) Leased() bool { return true }
