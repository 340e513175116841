package fabrictest

import (
	"bytes"

	"github.com/declock/declock/fabric"
)

var fillTests = []test{
	{name: "Fill writes what is counted, where it is told, and nothing else", needs: needFill, solo: fillWrites},
	{name: "Fill of nothing, and of what brings nothing, changes nothing", needs: needFill, solo: fillNothing},
	{name: "Fill beyond the end of a memory node calls nobody", needs: needFill, solo: fillBeyond},
	{name: "Fill is counted as a WRITE", needs: needFill, solo: fillCounts},
	{name: "Fill takes place behind the chains before it", needs: needFill, solo: fillBehind},
	{name: "Fill of a closed Port calls nobody", needs: needFill, solo: fillClosed},
}

// needFill skips what the Ports of the first node cannot do to memory node 0.
func needFill(e *env) {
	if f, ok := e.cl.Node(0).Agent().(fabric.Filler); !ok || !f.Fills(0) {
		e.t.Skip("no memory is in the address space of clients")
	}
}

// fill fills n bytes by CPU, of which f writes some.
func (c *client) fill(a fabric.Addr, n int, f func(dst []byte) int) int {
	c.t.Helper()
	got, err := c.Port.(fabric.Filler).Fill(a, n, f)
	c.must(err, "Fill")
	return got
}

// nobody is to be called by nobody.
func (c *client) nobody([]byte) int {
	c.fatal("Fill has called for what it refuses")
	return 0
}

func fillWrites(c *client) {
	a := fabric.At(0, 64)
	c.write(a, bytes.Repeat([]byte{'-'}, 64))
	for _, at := range []uint64{8, 13, 40} {
		got := c.fill(a.Add(at), 11, func(dst []byte) int {
			if len(dst) != 11 {
				c.fatal("%d bytes to fill, want 11", len(dst))
			}
			return copy(dst, "seven b")
		})
		if got != 7 {
			c.fatal("%d bytes were filled, want 7", got)
		}
	}
	if got, want := string(c.read(a, 64)), "--------seven"+"seven b"+"--------------------"+"seven b"+"-----------------"; got != want {
		c.fatal("memory is %q, want %q", got, want)
	}
}

func fillNothing(c *client) {
	a := fabric.At(0, 64)
	c.store(a, 7)
	if got := c.fill(a, 0, c.nobody); got != 0 {
		c.fatal("%d bytes of none", got)
	}
	if got := c.fill(a, 8, func([]byte) int { return 0 }); got != 0 {
		c.fatal("%d bytes of none", got)
	}
	c.want(a, 7)
}

func fillBeyond(c *client) {
	f := c.Port.(fabric.Filler)
	for _, off := range []uint64{defaultMem - 7, defaultMem, fabric.MaxOffset} {
		_, err := f.Fill(fabric.At(0, off), 8, c.nobody)
		c.fails(err, fabric.ErrOutOfBounds, "Fill of 8 bytes at %#x", off)
	}
	if got := c.fill(fabric.At(0, defaultMem-8), 8, func(dst []byte) int { return copy(dst, "the end.") }); got != 8 {
		c.fatal("%d bytes at the end of the memory, want 8", got)
	}
}

func fillCounts(c *client) {
	before := *c.Port.Stats()
	c.fill(fabric.At(0, 64), 100, func(dst []byte) int { return 30 })
	if s := c.Port.Stats(); s.Chains != before.Chains+1 || s.Ops[fabric.OpWrite] != before.Ops[fabric.OpWrite]+1 || s.WriteBytes != before.WriteBytes+30 {
		c.fatal("counters %+v after 30 bytes, from %+v", *s, before)
	}
}

func fillBehind(c *client) {
	a := fabric.At(0, 64)
	pending := c.post(fabric.Store(a, 1))
	c.wait(pending)
	c.fill(a, 8, func(dst []byte) int { return copy(dst, []byte{2, 0, 0, 0, 0, 0, 0, 0}) })
	c.want(a, 2)
	c.store(a, 3)
	c.want(a, 3)
}

func fillClosed(c *client) {
	f := c.Port.(fabric.Filler)
	c.must(c.Port.Close(), "Close")
	_, err := f.Fill(fabric.At(0, 64), 8, c.nobody)
	c.fails(err, fabric.ErrClosed, "Fill of a closed Port")
}
