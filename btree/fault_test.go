package btree

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/memory/reclaim"
)

// A faultPort fails one operation: the k-th from now on, counted over all chains.
type faultPort struct {
	fabric.Port
	until int   // operations until the fault; negative is never
	err   error // of the fault
	done  bool  // the operations from the fault on take place all the same
	hit   bool
}

func (p *faultPort) Do(ops []fabric.Op) error {
	if p.until < 0 || p.until >= len(ops) {
		if p.until >= 0 {
			p.until -= len(ops)
		}
		return p.Port.Do(ops)
	}
	i := p.until
	p.until, p.hit = -1, true
	upTo := i
	if p.done {
		upTo = len(ops)
	}
	if err := p.Port.Do(ops[:upTo]); err != nil {
		return err
	}
	return &fabric.ChainError{Index: i, Op: ops[i], Err: p.err}
}

// faulty returns a client of a tree whose operations can fail.
func faulty(t testing.TB, w *world, p *faultPort) *Client {
	t.Helper()
	p.Port, p.until = w.port(0), -1
	return clientOn(t, w.open(0, w.tiny()), p)
}

func (r *Report) elsewhere() (n uint64) {
	for i := range r.Memory {
		n += r.Memory[i].Elsewhere
	}
	return n
}

// A slot that is refused by the central list, at either operation and however it came to be pushed, is not given up: the compute node still
// has it, or it is leaked, and is found.
func TestRefusedSlotIsKept(t *testing.T) {
	for k := range 4 {
		cl := class(k & 1) // a node, which is written before, or a value
		k /= 2
		for _, e := range []error{fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome} {
			w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
			p := &faultPort{err: e}
			c := faulty(t, w, p)
			var slots []ptr
			for range localSlots + 1 {
				s, err := c.allocOn(0, cl)
				wantErr(t, "alloc", err, nil)
				slots = append(slots, s)
			}
			for i, s := range slots {
				if i == len(slots)-1 {
					p.until = k // the list is full
				}
				c.free(s, cl)
			}
			lost := e == fabric.ErrUnknownOutcome
			if !p.hit || (c.stats.Leaked > 0) != lost {
				t.Fatalf("%v at %d: hit %v, %d slots are lost", e, k, p.hit, c.stats.Leaked)
			}
			if lost {
				continue
			}
			if cl == classNode { // what Drain gives first is the client's shadow, and the client that frees gets no error
				if r := mustBeSound(t, c); r.elsewhere() != 0 {
					t.Fatalf("%v at %d: %v", e, k, r)
				}
				continue
			}
			p.until = k
			wantErr(t, "drain", c.Drain(), e)
			if r := mustBeSound(t, c); r.elsewhere() != 0 {
				t.Fatalf("%v at %d: %v", e, k, r)
			}
			s, err := c.allocOn(0, cl)
			wantErr(t, "alloc", err, nil)
			p.until = k
			wantErr(t, "release", c.session.Release([]reclaim.Block{{Off64: s.off64(), Class: uint8(cl)}}), e)
			wantErr(t, "reclaim", c.Reclaim(w.cns[0].View), nil)
			if r := mustBeSound(t, c); r.elsewhere() != 0 {
				t.Fatalf("%v at %d: %v", e, k, r)
			}
		}
	}
}

// Slots of nodes that crashed nodes have leaked get another incarnation also if the memory node refuses them: a reader may have a ptr of an earlier one.
func TestRefusedSlotHasAnIncarnation(t *testing.T) {
	for k := range 3 { // the first is refused, the second, or the free bits of both
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
		p := &faultPort{err: fabric.ErrNodeDown}
		c := faulty(t, w, p)
		var leaked []reclaim.Block
		for range 2 {
			s, err := c.allocOn(0, classNode)
			wantErr(t, "alloc", err, nil)
			leaked = append(leaked, reclaim.Block{Off64: s.off64(), Class: uint8(classNode)})
		}
		p.until = k
		wantErr(t, "release", c.session.Release(leaked), p.err)
		for i := range leaked {
			s, err := c.allocOn(0, classNode)
			wantErr(t, "alloc", err, nil)
			if s.off64() != leaked[1-i].Off64 || s.inc() == 0 {
				t.Errorf("refused at %d: slot %v of %v", k, s, leaked)
			}
		}
	}
}

// A rewrite is cut short with an unknown outcome: the node may be left moving. Its client goes on, and writes other nodes whole, with another
// shadow.
func TestShadowOfAnUnknownCommit(t *testing.T) {
	for k := range 5 {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
		p := &faultPort{err: fabric.ErrUnknownOutcome}
		c := faulty(t, w, p)
		key := func(i int) []byte { return []byte{'a' + byte(i)} }
		for i := range 20 {
			wantErr(t, "put", c.Put(key(i), key(i)), nil)
		}
		wantErr(t, "lock", c.lock(&c.n, c.leaf, c.t.first), nil)
		items, err := c.n.sorted(nil)
		wantErr(t, "items", err, nil)
		m := c.renew(&c.n, items)
		p.until = k
		wantErr(t, "rewrite", c.rewrite(&c.n, &m, len(c.n.b)), fabric.ErrUnknownOutcome)
		w.c.Poke(c.t.lockAddr(c.t.first), make([]byte, 8)) // as a reset does
		rewrites := c.stats.Rewrites
		for i := range 30 {
			wantErr(t, "put elsewhere", c.Put(key(19), key(i)), nil)
		}
		if c.stats.Rewrites == rewrites {
			t.Fatal("nothing was written whole")
		}
		for i := range 19 {
			wantValue(t, c, string(key(i)), string(key(i)))
		}
		wantErr(t, "put", c.Put(key(0), nil), nil) // finishes the node
		mustBeSound(t, c)
	}
}

// A publishing fails the chain that publishes a bulk load, at one of its operations: the one that writes the first leaf.
type publishing struct {
	faultPort
	first fabric.Addr // the first leaf's
	at    int
}

func (p *publishing) Do(ops []fabric.Op) error {
	if p.first != 0 && len(ops) > 4 && ops[1].Addr == p.first {
		p.until, p.first = p.at, 0
	}
	return p.faultPort.Do(ops)
}

// A bulk load is cut short with an unknown outcome when it publishes: the first leaf may be left moving. Its client goes on, and writes other nodes whole, with another shadow.
func TestShadowOfAnUnknownLoad(t *testing.T) {
	for k := 2; k <= 5; k++ {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
		p := &publishing{at: k}
		p.Port, p.until, p.err = w.port(0), -1, fabric.ErrUnknownOutcome
		c := clientOn(t, w.open(0, w.tiny()), p)
		p.first = c.t.slotAddr(c.t.first, classNode)
		key := func(i int) []byte { return []byte{'a' + byte(i)} }
		load := func(yield func(key, value []byte) bool) {
			for i := range 20 {
				if !yield(key(i), key(i)) {
					return
				}
			}
		}
		wantErr(t, "load", c.BulkLoad(load, BulkOptions{}), fabric.ErrUnknownOutcome)
		w.c.Poke(c.t.lockAddr(c.t.first), make([]byte, 8)) // as a reset does
		rewrites := c.stats.Rewrites
		for i := range 30 {
			wantErr(t, "put elsewhere", c.Put(key(19), key(i)), nil)
		}
		if c.stats.Rewrites == rewrites {
			t.Fatal("nothing was written whole")
		}
		for i := range 19 {
			wantValue(t, c, string(key(i)), string(key(i)))
		}
		wantErr(t, "put", c.Put(key(0), nil), nil) // finishes the node
		mustBeSound(t, c)
	}
}
