package cn

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/inbox"
)

// A fakeFabric is a cluster in one process, with goroutines and real time: for what the
// simulator cannot show, contexts and races.
type fakeFabric struct {
	mu    sync.Mutex // a chain executes under it, whole
	mems  [][]byte
	nodes [4]*fakeNode
	view  fabric.View
	epoch time.Time
}

type fakeNode struct {
	f     *fakeFabric
	id    fabric.CNID
	table *inbox.Table
	agent *fakePort
	ended bool // it has left as one that has crashed
}

func newFake(cns int, mems ...uint64) *fakeFabric {
	f := &fakeFabric{epoch: time.Now()}
	for _, size := range mems {
		f.mems = append(f.mems, make([]byte, size))
	}
	for i := range cns {
		n := &fakeNode{f: f, id: fabric.CNID(i + 1)}
		n.table = inbox.NewTable(n.id, n)
		n.agent = &fakePort{Box: n.table.Agent(), n: n}
		f.nodes[i] = n
		f.view.Live.Add(n.id)
	}
	return f
}

func (n *fakeNode) Now() fabric.Time          { return fabric.Time(time.Since(n.f.epoch)) }
func (n *fakeNode) Poll()                     {}
func (n *fakeNode) ID() fabric.CNID           { return n.id }
func (n *fakeNode) Caps() fabric.Caps         { return fabric.Caps{Fabric: "fake"} }
func (n *fakeNode) View() fabric.View         { return n.f.view }
func (n *fakeNode) Agent() fabric.Port        { return n.agent }
func (n *fakeNode) Retire(id fabric.ClientID) { n.table.Retire(id) }
func (n *fakeNode) Close() error              { n.table.CloseAll(); return nil }
func (n *fakeNode) Fail() error               { n.ended = true; return n.Close() }

func (n *fakeNode) MemoryEpoch(fabric.MemID) uint32 { return 0 } // not known
func (n *fakeNode) Leased() bool                    { return true }

func (n *fakeNode) Memory() (list []fabric.Memory) {
	for i, m := range n.f.mems {
		list = append(list, fabric.Memory{ID: fabric.MemID(i), Size: uint64(len(m)), Epoch: 1})
	}
	return list
}

func (n *fakeNode) Open() (fabric.Port, error) {
	b, err := n.table.Open()
	if err != nil {
		return nil, err
	}
	return &fakePort{Box: b, n: n}, nil
}

type fakePort struct {
	*inbox.Box
	n     *fakeNode
	stats fabric.Stats
}

var _ fabric.Port = (*fakePort)(nil)

func (p *fakePort) Caps() fabric.Caps                            { return p.n.Caps() }
func (p *fakePort) Now() fabric.Time                             { return p.n.Now() }
func (p *fakePort) Rand() uint64                                 { return rand.Uint64() }
func (p *fakePort) Alloc(n int) []byte                           { return make([]byte, n) }
func (p *fakePort) Lend([]byte) bool                             { return false }
func (p *fakePort) Free([]byte)                                  {}
func (p *fakePort) Stats() *fabric.Stats                         { return &p.stats }
func (p *fakePort) Post(ops []fabric.Op) (fabric.Pending, error) { panic("fake: Post") }
func (p *fakePort) Wait(fabric.Pending) error                    { panic("fake: Wait") }
func (p *fakePort) Reattach(fabric.MemID, uint32) error          { return nil }
func (p *fakePort) Abandon() error                               { return p.n.table.Abandon(p.Box) }
func (p *fakePort) Close() error                                 { p.n.table.Close(p.Box); return nil }

func (p *fakePort) Send(to fabric.ClientID, m *fabric.Message) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	c := *m
	c.From = p.ID()
	p.n.f.nodes[to.CN()-1].table.Deliver(to.Index(), &c)
	return nil
}

func (p *fakePort) Do(ops []fabric.Op) error {
	if p.Closed() {
		return fabric.ErrClosed
	}
	if err := fabric.CheckChain(ops, p.Caps()); err != nil {
		return err
	}
	p.stats.Count(ops)
	p.n.f.mu.Lock()
	defer p.n.f.mu.Unlock()
	for i := range ops {
		o := &ops[i]
		mem, off := p.n.f.mems[o.Addr.MN()], o.Addr.Offset()
		if off+uint64(o.Size()) > uint64(len(mem)) {
			return &fabric.ChainError{Index: i, Op: *o, Err: fabric.ErrOutOfBounds}
		}
		switch {
		case o.Kind == fabric.OpRead && o.Buf != nil:
			copy(o.Buf, mem[off:])
			continue
		case o.Kind == fabric.OpWrite && o.Buf != nil:
			copy(mem[off:], o.Buf)
			continue
		}
		w := mem[off : off+8]
		old := binary.LittleEndian.Uint64(w)
		switch o.Kind {
		case fabric.OpRead:
			o.Old = old
		case fabric.OpWrite:
			binary.LittleEndian.PutUint64(w, o.Arg)
		case fabric.OpFAA:
			o.Old = old
			binary.LittleEndian.PutUint64(w, old+o.Arg)
		case fabric.OpCAS:
			o.Old = old
			if old == o.Cmp {
				binary.LittleEndian.PutUint64(w, o.Arg)
			}
		default:
			panic(fmt.Sprintf("fake: %v", o.Kind))
		}
	}
	return nil
}
