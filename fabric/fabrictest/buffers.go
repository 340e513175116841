package fabrictest

import (
	"bytes"
	"unsafe"

	"github.com/declock/declock/fabric"
)

var bufferTests = []test{
	{name: "Alloc returns aligned zeroed memory of the size asked for", solo: allocAligned},
	{name: "buffers do not overlap", solo: allocApart},
	{name: "a buffer may be larger than a chunk", mem: []uint64{8 << 20}, solo: allocLarge},
	{name: "freed memory is used again, and is zero again", solo: allocReuse},
	{name: "Alloc and Free go on for ever", solo: allocForever},
}

func allocAligned(c *client) {
	for _, n := range []int{1, 7, 8, 9, 64, 100, 1000, 4096, 5000, 65536, 100_000} {
		b := c.Alloc(n)
		if len(b) != n {
			c.fatal("Alloc(%d) returned %d bytes", n, len(b))
		}
		if at := uintptr(unsafe.Pointer(&b[0])); at%8 != 0 {
			c.fatal("Alloc(%d) returned memory at %#x", n, at)
		}
		if !bytes.Equal(b, make([]byte, n)) {
			c.fatal("Alloc(%d) returned memory that is not zero", n)
		}
		copy(b, pattern(n, 9))
	}
}

func allocApart(c *client) {
	var bufs [][]byte
	for i := range 200 {
		b := c.Alloc(1 + i*37%700)
		for k := range b {
			b[k] = byte(i)
		}
		bufs = append(bufs, b)
	}
	for i, b := range bufs {
		for k := range b {
			if b[k] != byte(i) {
				c.fatal("byte %d of buffer %d was overwritten", k, i)
			}
		}
	}
}

func allocLarge(c *client) {
	const size = 3<<20 + 17
	out, in := c.Alloc(size), c.Alloc(size)
	copy(out, pattern(size, 5))
	c.do(fabric.Write(fabric.At(0, 4097), out))
	c.do(fabric.Read(fabric.At(0, 4097), in))
	if !bytes.Equal(in, out) {
		c.fatal("%d bytes did not come back", size)
	}
	c.Free(out)
	c.Free(in)
}

func allocReuse(c *client) {
	for _, n := range []int{8, 100, 4096, 100_000} {
		for range 20 {
			b := c.Alloc(n)
			if !bytes.Equal(b, make([]byte, n)) {
				c.fatal("Alloc(%d) after Free returned memory that is not zero", n)
			}
			copy(b, pattern(n, 9))
			c.do(fabric.Write(fabric.At(0, 64), b))
			c.Free(b)
		}
	}
}

func allocForever(c *client) {
	for i := range 500 { // 500 MiB in all
		a, b := c.Alloc(1<<20), c.Alloc(1+6*i)
		a[0], b[0] = 1, 1
		c.Free(a)
		c.Free(b)
	}
}
