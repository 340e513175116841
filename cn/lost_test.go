package cn_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// words is a memory node's own access to its memory.
type words struct {
	c  *sim.Cluster
	mn fabric.MemID
}

func (o words) Load(offset uint64) uint64 { return o.c.PeekWord(fabric.At(o.mn, offset)) }

func (o words) Store(offset, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	o.c.Poke(fabric.At(o.mn, offset), b[:])
}

// A losing is a cluster in virtual time whose memory nodes come back without their memory, while clients of
// a store and a tree that lie on both are at work.
type losing struct {
	t      *testing.T
	c      *sim.Cluster
	rand   sim.Rand
	mns    []fabric.MemID
	births []uint32
	calm   fabric.Time // no memory node goes away from then on
	told   int
	done   int
}

const losingMemory = 8 << 20

func newLosing(t *testing.T, seed uint64) *losing {
	fabrictest.SkipInVirtualTime(t)
	x := &losing{t: t, c: sim.New(sim.Config{Seed: seed, MaxEvents: 1e6}), rand: sim.NewRand(seed, 1)}
	t.Cleanup(func() { x.c.Close() })
	for range 2 {
		x.mns, x.births = append(x.mns, x.c.AddMN(losingMemory)), append(x.births, 0)
		x.format(len(x.mns) - 1)
	}
	return x
}

func (x *losing) format(i int) {
	u := memory.UUID{x.rand.Uint64(), uint64(x.births[i])}
	if err := memory.FormatOwn(x.mns[i], words{x.c, x.mns[i]}, memory.Params{Size: losingMemory, CapacityLog2: 3, VersionBits: 16, Generation: x.births[i]}, u); err != nil {
		x.t.Fatal(err)
	}
}

// losses draws when memory nodes go away, and come back empty.
func (x *losing) losses() {
	for range 1 + x.rand.Uint64n(3) {
		i := int(x.rand.Uint64n(uint64(len(x.mns))))
		at := fabric.Time(x.rand.Uint64n(uint64(2 * fabric.Millisecond)))
		back := at + 1 + fabric.Time(x.rand.Uint64n(uint64(300*fabric.Microsecond)))
		x.calm = max(x.calm, back+1)
		x.c.At(at, func() { x.c.KillMN(x.mns[i]) })
		x.c.At(back, func() {
			x.c.RestartMN(x.mns[i])
			x.births[i]++
			x.format(i)
		})
	}
}

// total is how many memories were lost so far.
func (x *losing) total() uint32 { return x.births[0] + x.births[1] }

// node makes a compute node, and starts its clients.
func (x *losing) node(clients int) (st *objstore.Store, tree *btree.Tree, n *cn.Node) {
	f := x.c.AddCN()
	p, err := f.Open()
	if err != nil {
		x.t.Fatal(err)
	}
	n, err = cn.New(p, f, cn.Config{CQL: cql.Config{RecheckNs: 500 * fabric.Microsecond, ResetAfterNs: 10 * fabric.Millisecond}})
	if err != nil {
		x.t.Fatal(err)
	}
	y := n.Layout().Lock()
	if st, err = objstore.Open(p, objstore.Config{Name: "s", Nodes: x.mns, Lock: y, Objects: 16}); err != nil {
		x.t.Fatal(err)
	}
	if tree, err = btree.Open(p, btree.Config{Name: "t", Nodes: x.mns, Lock: y}); err != nil {
		x.t.Fatal(err)
	}
	p.Close()
	n.OnMemoryLost(st.MemoryLost)
	n.OnMemoryLost(tree.MemoryLost)
	x.c.GoAgent(f, func(fabric.Port) { _ = n.Agent().Run(nil) })
	for i := range clients {
		x.c.Go(f, fmt.Sprintf("client %d of %v", i, f.ID()), func(p fabric.Port) { x.client(n, st, tree, p) })
	}
	return st, tree, n
}

// client does operations until no memory goes away any more, and then until all of them succeed.
func (x *losing) client(n *cn.Node, st *objstore.Store, tree *btree.Tree, p fabric.Port) {
	l := n.SessionOn(p).Locker()
	var k *objstore.Client
	var b *btree.Client
	for good := 0; good < 30; {
		var err error
		if k == nil {
			k, err = st.Client(l)
		} else if b == nil {
			b, err = tree.Client(l)
		} else {
			err = errors.Join(x.ofStore(st, k), x.ofTree(b))
		}
		switch {
		case err == nil && k != nil && b != nil && p.Now() > x.calm:
			good++
		case errors.Is(err, lock.ErrMemoryLost):
			x.told++
		case err != nil && !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrStaleEpoch) &&
			!errors.Is(err, fabric.ErrUnknownOutcome) && !errors.Is(err, lock.ErrLost):
			x.t.Errorf("%v at %d: %v", p.ID(), p.Now(), err)
			return
		}
		_ = p.Pause(p.Now() + fabric.Time(1+x.rand.Uint64n(5000)))
		if p.Now() > x.calm+5*fabric.Second {
			x.t.Errorf("%v does not go on: %v", p.ID(), err)
			return
		}
	}
	x.done++
}

// ofStore does an operation on the store. What it reads has been written in the memory that there was when it began, or later.
func (x *losing) ofStore(st *objstore.Store, k *objstore.Client) error {
	key := fmt.Appendf(nil, "key%d", x.rand.Uint64n(8))
	mn, _ := st.Locate(key)
	birth := x.births[mn]
	switch x.rand.Uint64n(4) {
	case 0:
		return k.Set(key, fmt.Appendf(nil, "%s %d %0*d", key, birth, int(x.rand.Uint64n(2000)), 1), objstore.Options{})
	case 1:
		return none(k.Delete(key), objstore.ErrNotFound)
	}
	it, err := k.Get(key)
	if err == nil {
		x.written(key, it.Value, birth)
	}
	return none(err, objstore.ErrNotFound)
}

func (x *losing) ofTree(b *btree.Client) error {
	key := fmt.Appendf(nil, "key%02d", x.rand.Uint64n(60))
	lost := x.total()
	switch x.rand.Uint64n(4) {
	case 0, 1:
		return b.Put(key, fmt.Appendf(nil, "%s %d %0*d", key, lost, int(x.rand.Uint64n(200)), 1))
	case 2:
		return none(b.Delete(key), btree.ErrNotFound)
	}
	v, err := b.Get(key)
	if err == nil {
		var of string
		var n uint32
		if _, err := fmt.Sscan(string(v), &of, &n); err != nil || of != string(key) {
			x.t.Errorf("the tree has %q for %s", v, key)
		}
	}
	return none(err, btree.ErrNotFound)
}

// written judges a value that was read of a key.
func (x *losing) written(key, value []byte, least uint32) {
	var of string
	var birth uint32
	if _, err := fmt.Sscan(string(value), &of, &birth); err != nil || of != string(key) || birth < least {
		x.t.Errorf("%s, read in memory %d or later, is %.40q", key, least, value)
	}
}

func none(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Memory nodes come back empty in the middle of whatever clients of three compute nodes do: each goes on, nothing of an old memory is read, and in
// the end store and tree are sound.
func TestMemoryIsLostInVirtualTime(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		if t.Failed() {
			return
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			x := newLosing(t, seed)
			const clients = 2
			var st *objstore.Store
			var tree *btree.Tree
			var n *cn.Node
			for range 3 {
				st, tree, n = x.node(clients)
			}
			x.losses()
			f := n.Fabric().(*sim.Node)
			x.c.Go(f, "checker", func(p fabric.Port) {
				for x.done < 3*clients {
					if p.Now() > x.calm+6*fabric.Second {
						t.Error("clients do not come to an end")
						return
					}
					_ = p.Pause(p.Now() + fabric.Millisecond)
				}
				x.check(st, tree, n.SessionOn(p).Locker())
			})
			if err := x.c.RunUntil(x.calm + 7*fabric.Second); err != nil {
				t.Fatal(err)
			}
			if x.told < 3*clients {
				t.Errorf("told %d times", x.told)
			}
		})
	}
}

func (x *losing) check(st *objstore.Store, tree *btree.Tree, l lock.Locker) {
	k, err := st.Client(l)
	if err != nil {
		x.t.Error(err)
		return
	}
	if r, err := k.Check(objstore.CheckOptions{}); err != nil || !r.Sound() {
		x.t.Errorf("store: %v, %v", r, err)
	}
	b, err := tree.Client(l)
	if err != nil {
		x.t.Error(err)
		return
	}
	if r, err := b.Check(btree.CheckOptions{}); err != nil || !r.Sound() {
		x.t.Errorf("tree: %+v, %v", r, err)
	}
}
