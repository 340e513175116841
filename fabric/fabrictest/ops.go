package fabrictest

import (
	"bytes"

	"github.com/declock/declock/fabric"
)

var opTests = []test{
	{name: "memory is zero at first", solo: memoryIsZero},
	{name: "READ returns what WRITE wrote, at any address and size", solo: readWrite},
	{name: "any slice of Alloc's memory may be a buffer", solo: sliceBuffers},
	{name: "Load and Store move a word, little-endian", solo: words},
	{name: "FAA adds modulo 2^64 and returns the value before", solo: faa},
	{name: "CAS swaps if equal and returns the value before", solo: cas},
	{name: "masked CAS compares and swaps the bits of its masks", needs: needMasked, solo: maskedCAS},
	{name: "masked FAA lets no carry leave a field", needs: needMasked, solo: maskedFAA},
	{name: "16-byte masked CAS is one operation on two words", needs: need16, solo: maskedCAS16},
	{name: "16-byte masked FAA carries from the low word to the high", needs: need16, solo: maskedFAA16},
	{name: "memory nodes have memories of their own", mem: []uint64{defaultMem, defaultMem}, solo: twoMemories},
}

// pattern returns n bytes that depend on seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7+i>>8) + seed | 1
	}
	return b
}

func memoryIsZero(c *client) {
	for _, off := range []uint64{0, 8, 4096, defaultMem - 4096} {
		if b := c.read(fabric.At(0, off), 4096); !bytes.Equal(b, make([]byte, 4096)) {
			c.fatal("memory at %#x is not zero", off)
		}
	}
}

func readWrite(c *client) {
	at := uint64(0)
	for i, n := range []int{1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 100_000} {
		for _, shift := range []uint64{0, 1, 7} {
			a := fabric.At(0, at+64+shift)
			data := pattern(n, byte(i))
			c.write(a, data)
			got := c.read(a-1, n+2)
			if !bytes.Equal(got[1:n+1], data) {
				c.fatal("READ of %d bytes at %v differs from WRITE", n, a)
			}
			if got[0] != 0 || got[n+1] != 0 {
				c.fatal("WRITE of %d bytes at %v touched its neighbours", n, a)
			}
			at += uint64(n) + 128
		}
	}
}

func sliceBuffers(c *client) {
	buf := c.Alloc(256)
	copy(buf, pattern(256, 3))
	c.do(fabric.Write(fabric.At(0, 512), buf[13:113]))
	c.do(fabric.Read(fabric.At(0, 512), buf[140:240]))
	if !bytes.Equal(buf[13:113], buf[140:240]) {
		c.fatal("slices of one buffer differ")
	}
	if want := pattern(256, 3); !bytes.Equal(buf[:140], want[:140]) || !bytes.Equal(buf[240:], want[240:]) {
		c.fatal("READ touched what is beside its buffer")
	}
}

func words(c *client) {
	a := fabric.At(0, 4096)
	c.store(a, 0x0807060504030201)
	if got := c.read(a, 8); !bytes.Equal(got, []byte{1, 2, 3, 4, 5, 6, 7, 8}) {
		c.fatal("Store wrote % x", got)
	}
	c.write(a, []byte{0xf1, 2, 3, 4, 5, 6, 7, 0xf8})
	c.want(a, 0xf8070605040302f1)
	c.do(fabric.FAA(a, 1))
	if got := c.read(a, 1); got[0] != 0xf2 {
		c.fatal("FAA of 1 made the first byte %#x, want 0xf2", got[0])
	}
	c.want(a+8, 0)
	c.want(a-8, 0)
}

func faa(c *client) {
	a := fabric.At(0, 64)
	var sum uint64
	for _, d := range []uint64{1, 41, 1 << 63, ^uint64(0), 1 << 63, 0, 0xffff_ffff_ffff_ff00} {
		c.add(a, d, sum)
		sum += d
		c.want(a, sum)
	}
	c.want(a+8, 0)
	c.want(a-8, 0)
}

func cas(c *client) {
	a := fabric.At(0, 64)
	now := uint64(0)
	for _, x := range [][2]uint64{{0, 7}, {0, 9}, {7, ^uint64(0)}, {1 << 63, 0}, {1<<32 - 1, 0}} { // the last two differ in some bits only
		op := &c.do(fabric.CAS(a, x[0], x[1]))[0]
		if op.Old != now || op.Swapped() != (x[0] == now) {
			c.fatal("CAS %#x->%#x on %#x: old %#x, swapped %v", x[0], x[1], now, op.Old, op.Swapped())
		}
		if op.Swapped() {
			now = x[1]
		}
		c.want(a, now)
	}
	c.want(a+8, 0)
}

func needMasked(e *env) {
	if !e.cl.Node(0).Caps().Masked {
		e.t.Skip("Caps.Masked is false")
	}
}

func need16(e *env) {
	if !e.cl.Node(0).Caps().Atomic16 {
		e.t.Skip("Caps.Atomic16 is false")
	}
}

func maskedCAS(c *client) {
	a := fabric.At(0, 64)
	c.store(a, 0x1111_2222_3333_4444)
	w := fabric.Wide{Cmp: [2]uint64{0x9999_2222_9999_9999}, CmpMask: [2]uint64{0x0000_ffff_0000_0000},
		Swap: [2]uint64{0xaaaa_bbbb_cccc_dddd}, SwapMask: [2]uint64{0xffff_0000_0000_00ff}}
	op := fabric.Op{Kind: fabric.OpMaskedCAS, Addr: a, Wide: &w}
	c.do(op)
	if w.Old[0] != 0x1111_2222_3333_4444 {
		c.fatal("old is %#x", w.Old[0])
	}
	c.want(a, 0xaaaa_2222_3333_44dd)
	w.Cmp[0] = 0x0000_2223_0000_0000
	c.do(op)
	c.want(a, 0xaaaa_2222_3333_44dd)
	w.CmpMask[0] = 0
	w.Swap[0], w.SwapMask[0] = 5, ^uint64(0)
	c.do(op)
	c.want(a, 5)
	c.want(a+8, 0)
}

func maskedFAA(c *client) {
	a := fabric.At(0, 64)
	for _, x := range []struct{ before, add, boundary, after uint64 }{
		{0xff, 1, 0, 0x100},
		{0xff, 1, 0x80, 0},                     // field of bits 0 to 7 wraps
		{0x1ff, 0x101, 0x80, 0x200},            // ... and its neighbour counts by itself
		{^uint64(0), 1, 1 << 63, 0},            // the whole word
		{0x7fff_ffff, 1, 1 << 31, 0x8000_0000}, // up to the boundary, not over it
		{0xffff_ffff, 1, 1 << 31, 0},
		{0x00ff_00ff, 0x0001_0001, 1<<7 | 1<<15 | 1<<23, 0},
	} {
		c.store(a, x.before)
		w := fabric.Wide{Swap: [2]uint64{x.add}, Boundary: [2]uint64{x.boundary}}
		c.do(fabric.Op{Kind: fabric.OpMaskedFAA, Addr: a, Wide: &w})
		if w.Old[0] != x.before {
			c.fatal("old is %#x, want %#x", w.Old[0], x.before)
		}
		c.want(a, x.after)
	}
	c.want(a+8, 0)
}

func maskedCAS16(c *client) {
	a := fabric.At(0, 64)
	c.do(fabric.Store(a, 1), fabric.Store(a+8, 2))
	all := [2]uint64{^uint64(0), ^uint64(0)}
	w := fabric.Wide{Cmp: [2]uint64{1, 3}, CmpMask: all, Swap: [2]uint64{7, 8}, SwapMask: all}
	op := fabric.Op{Kind: fabric.OpMaskedCAS16, Addr: a, Wide: &w}
	c.do(op)
	if w.Old != [2]uint64{1, 2} {
		c.fatal("old is %#x", w.Old)
	}
	c.want(a, 1) // the high word differs: nothing happens
	c.want(a+8, 2)
	w.Cmp[1] = 2
	c.do(op)
	c.want(a, 7)
	c.want(a+8, 8)
	c.refused(fabric.ErrMisaligned, 0, fabric.Op{Kind: fabric.OpMaskedCAS16, Addr: a + 8, Wide: &w})
}

func maskedFAA16(c *client) {
	a := fabric.At(0, 64)
	c.do(fabric.Store(a, ^uint64(0)), fabric.Store(a+8, 2))
	w := fabric.Wide{Swap: [2]uint64{1, 1}}
	op := fabric.Op{Kind: fabric.OpMaskedFAA16, Addr: a, Wide: &w}
	c.do(op)
	c.want(a, 0)
	c.want(a+8, 4)
	c.store(a, ^uint64(0))
	w.Boundary[0] = 1 << 63
	c.do(op)
	c.want(a, 0)
	c.want(a+8, 5)
}

func twoMemories(c *client) {
	a, b := fabric.At(0, 800), fabric.At(1, 800)
	c.store(a, 1)
	c.want(b, 0)
	c.store(b, 2)
	c.want(a, 1)
	pa, pb := c.post(fabric.FAA(a, 1)), c.post(fabric.FAA(b, 1))
	c.wait(pb)
	c.wait(pa)
	c.want(a, 2)
	c.want(b, 3)
}
