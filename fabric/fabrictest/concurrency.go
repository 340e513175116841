package fabrictest

import (
	"encoding/binary"
	"slices"

	"github.com/declock/declock/fabric"
)

var concurrencyTests = []test{
	{name: "FAAs of many clients add up and return distinct values", cns: 3, run: faaSum},
	{name: "CAS elects exactly one", cns: 3, run: casElects},
	{name: "CAS loops lose no update, and CAS and FAA on one word are atomic with each other", cns: 3, run: casAndFAA},
	{name: "aligned words of large READs and WRITEs are not torn", cns: 2, run: wordsNotTorn},
	{name: "Load and Store are not torn", cns: 2, run: loadStoreNotTorn},
	{name: "atomics on neighbouring words do not disturb each other", cns: 3, run: neighbours},
	{name: "masked FAAs on fields of one word add up", cns: 2, needs: needMasked, run: maskedConcurrent},
}

// crowd starts a body on per clients of each of cns nodes, numbered from 0.
func (e *env) crowd(cns, per int, body func(c *client, k int)) int {
	for k := range cns * per {
		e.run(e.client(k%cns), func(c *client) { body(c, k) })
	}
	return cns * per
}

func faaSum(e *env) {
	const each = 200
	a := fabric.At(0, 64)
	seen := make([][]uint64, 12)
	n := e.crowd(3, 4, func(c *client, k int) {
		for range each {
			seen[k] = append(seen[k], c.do(fabric.FAA(a, 1))[0].Old)
		}
	})
	e.cl.Wait()
	for k, s := range seen {
		if !slices.IsSorted(s) {
			e.t.Errorf("client %d saw a counter go back: %v", k, s)
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(seen...)))
	for i, v := range all {
		if v != uint64(i) {
			e.t.Fatalf("value %d of %d returned is %d: one twice or missing", i, len(all), v)
		}
	}
	if len(all) != n*each {
		e.t.Fatalf("%d values, want %d", len(all), n*each)
	}
	e.solo(func(c *client) { c.want(a, uint64(n*each)) })
}

func casElects(e *env) {
	const rounds = 100
	won := make([][]bool, 9)
	n := e.crowd(3, 3, func(c *client, k int) {
		won[k] = make([]bool, rounds)
		for r := range rounds {
			a := fabric.At(0, uint64(64+8*r))
			op := &c.do(fabric.CAS(a, 0, uint64(k)+1))[0]
			won[k][r] = op.Swapped()
		}
	})
	e.cl.Wait()
	e.solo(func(c *client) {
		for r := range rounds {
			winners := 0
			for k := range n {
				if won[k][r] {
					winners++
					c.want(fabric.At(0, uint64(64+8*r)), uint64(k)+1)
				}
			}
			if winners != 1 {
				c.fatal("round %d: %d of %d clients won", r, winners, n)
			}
		}
	})
}

func casAndFAA(e *env) {
	const each = 100
	a := fabric.At(0, 64)
	e.crowd(3, 2, func(c *client, k int) {
		for range each {
			if k < 2 {
				c.do(fabric.FAA(a, 1))
				continue
			}
			for v := c.load(a); ; {
				op := &c.do(fabric.CAS(a, v, v+1<<32))[0]
				if op.Swapped() {
					break
				}
				v = op.Old
			}
		}
	})
	e.cl.Wait()
	e.solo(func(c *client) { c.want(a, 2*each+4*each<<32) })
}

// whole reports whether the two halves of a word belong together.
func whole(w uint64) bool { return uint32(w) == uint32(w>>32)*0x9e3779b1 }

func wholeWord(k uint32) uint64 { return uint64(k)<<32 | uint64(k*0x9e3779b1) }

func wordsNotTorn(e *env) {
	const size, rounds = 4096, 150
	a := fabric.At(0, 8192)
	e.crowd(2, 2, func(c *client, k int) {
		buf := c.Alloc(size)
		for r := range rounds {
			if k < 2 {
				for i := 0; i < size; i += 8 {
					binary.LittleEndian.PutUint64(buf[i:], wholeWord(uint32(r*2+k+1)))
				}
				c.do(fabric.Write(a, buf))
				continue
			}
			c.do(fabric.Read(a, buf))
			for i := 0; i < size; i += 8 {
				if w := binary.LittleEndian.Uint64(buf[i:]); !whole(w) {
					c.fatal("torn word %#x at %d", w, i)
				}
			}
		}
	})
}

func loadStoreNotTorn(e *env) {
	a := fabric.At(0, 64)
	e.crowd(2, 2, func(c *client, k int) {
		buf := c.Alloc(8)
		for r := range uint32(300) {
			switch k {
			case 0:
				c.store(a, wholeWord(r))
			case 1:
				binary.LittleEndian.PutUint64(buf, wholeWord(r+1000))
				c.do(fabric.Write(a, buf))
			case 2:
				if w := c.load(a); !whole(w) {
					c.fatal("torn Load %#x", w)
				}
			default:
				c.do(fabric.Read(a, buf))
				if w := binary.LittleEndian.Uint64(buf); !whole(w) {
					c.fatal("torn READ %#x", w)
				}
			}
		}
	})
}

func neighbours(e *env) {
	const each = 200
	n := e.crowd(3, 3, func(c *client, k int) {
		a := fabric.At(0, uint64(64+8*k))
		for i := range uint64(each) {
			c.add(a, 1, i)
		}
	})
	e.cl.Wait()
	e.solo(func(c *client) {
		for k := range n {
			c.want(fabric.At(0, uint64(64+8*k)), each)
		}
	})
}

func maskedConcurrent(e *env) {
	const each = 300
	a := fabric.At(0, 64)
	e.crowd(2, 2, func(c *client, k int) {
		w := fabric.Wide{Swap: [2]uint64{1 << (16 * k)}, Boundary: [2]uint64{1<<15 | 1<<31 | 1<<47}}
		for range each {
			c.do(fabric.Op{Kind: fabric.OpMaskedFAA, Addr: a, Wide: &w})
		}
	})
	e.cl.Wait()
	e.solo(func(c *client) { c.want(a, each*0x0001_0001_0001_0001) })
}
