package fabrictest

import (
	"errors"

	"github.com/declock/declock/fabric"
)

var errorTests = []test{
	{name: "a misaligned word is refused before anything is posted", solo: misaligned},
	{name: "the last byte of memory can be reached, the next is out of bounds, and so is a length over the address space", solo: bounds},
	{name: "an unknown memory node is down", solo: unknownMN},
	{name: "a buffer that is not the Port's is refused", run: badBuffer},
	{name: "operations that the fabric has not say so", solo: unsupported},
	{name: "operations without meaning are a bad chain", solo: badKind},
	{name: "before a failed operation all are executed, behind it none", solo: middleOfChain},
	{name: "the Port is usable after any error", solo: usableAfterError},
	{name: "a posted chain gives its error to Wait", solo: errorOfWait},
}

func misaligned(c *client) {
	ok := fabric.FAA(fabric.At(0, 0), 1)
	for _, off := range []uint64{1, 4, 7, 63, 4097} {
		a := fabric.At(0, off)
		for _, op := range eachKind(a, nil) {
			c.refused(fabric.ErrMisaligned, 0, op)
			c.refused(fabric.ErrMisaligned, 1, ok, op)
		}
	}
	c.want(fabric.At(0, 0), 0)
}

// eachKind returns an operation of each kind that all fabrics have; those with a buffer if there is one.
func eachKind(a fabric.Addr, buf []byte) []fabric.Op {
	ops := []fabric.Op{fabric.FAA(a, 1), fabric.CAS(a, 0, 1), fabric.Load(a), fabric.Store(a, 1)}
	if buf != nil {
		ops = append(ops, fabric.Read(a, buf), fabric.Write(a, buf))
	}
	return ops
}

func bounds(c *client) {
	end := c.env.cl.Node(0).Memory()[0].Size
	c.do(fabric.FAA(fabric.At(0, end-8), 1), fabric.Load(fabric.At(0, end-8)))
	buf := c.Alloc(4096)
	for n := 1; n <= 128; n *= 2 {
		last := fabric.At(0, end-uint64(n))
		c.do(fabric.Write(last, buf[:n]), fabric.Read(last, buf[:n]))
		c.refused(fabric.ErrOutOfBounds, 0, fabric.Read(last+1, buf[:n]))
		c.refused(fabric.ErrOutOfBounds, 0, fabric.Write(last+1, buf[:n]))
	}
	for _, off := range []uint64{end, end + 8, 2 * end, 1 << 40} {
		a := fabric.At(0, off)
		for _, op := range eachKind(a, buf[:1]) {
			c.refused(fabric.ErrOutOfBounds, 0, op)
		}
	}
	for _, back := range []uint64{7, 8, 4095} {
		a := fabric.At(0, fabric.MaxOffset-back)
		c.refused(fabric.ErrOutOfBounds, 0, fabric.Read(a, buf))
		c.refused(fabric.ErrOutOfBounds, 0, fabric.Write(a, buf))
	}
	c.refused(fabric.ErrOutOfBounds, 0, fabric.FAA(fabric.At(0, fabric.MaxOffset-7), 1))
}

func unknownMN(c *client) {
	for _, mn := range []fabric.MemID{1, 200, fabric.MaxMem} {
		c.refused(fabric.ErrNodeDown, 0, fabric.FAA(fabric.At(mn, 64), 1))
	}
	c.do(fabric.FAA(fabric.At(0, 64), 1))
}

func badBuffer(e *env) {
	other := e.client(0)
	foreign := other.Alloc(64)
	e.solo(func(c *client) {
		own := c.Alloc(64)
		for _, buf := range [][]byte{make([]byte, 64), foreign, make([]byte, 1)} {
			c.refused(fabric.ErrBadBuffer, 0, fabric.Read(fabric.At(0, 64), buf))
			c.refused(fabric.ErrBadBuffer, 1, fabric.Write(fabric.At(0, 64), own), fabric.Write(fabric.At(0, 64), buf))
		}
		c.do(fabric.Read(fabric.At(0, 64), own))
		lent := make([]byte, 72)
		if !c.Lend(lent[:64]) {
			return
		}
		copy(lent, "lent")
		c.do(fabric.Write(fabric.At(0, 64), lent[:64]))
		c.do(fabric.Read(fabric.At(0, 64), own), fabric.Read(fabric.At(0, 64), lent[60:64]))
		if string(own[:4]) != "lent" || string(lent[60:64]) != "lent" {
			c.t.Errorf("lent memory has %q, the memory node %q", lent[60:64], own[:4])
		}
		c.refused(fabric.ErrBadBuffer, 0, fabric.Read(fabric.At(0, 64), lent[60:72]))
		c.Lend(nil)
		c.refused(fabric.ErrBadBuffer, 0, fabric.Read(fabric.At(0, 64), lent[:8]))
	})
}

func unsupported(c *client) {
	a := fabric.At(0, 64)
	for k := fabric.OpMaskedCAS; k <= fabric.OpMaskedFAA16; k++ {
		wide := k == fabric.OpMaskedCAS16 || k == fabric.OpMaskedFAA16
		if !wide && c.Caps().Masked || wide && c.Caps().Atomic16 {
			continue
		}
		c.refused(fabric.ErrUnsupported, 1, fabric.FAA(a, 1), fabric.Op{Kind: k, Addr: a, Wide: &fabric.Wide{}})
	}
	c.want(a, 0)
}

func badKind(c *client) {
	a := fabric.At(0, 64)
	for _, k := range []fabric.OpKind{fabric.OpNone, fabric.OpMaskedFAA16 + 1, 255} {
		c.refused(fabric.ErrBadChain, 1, fabric.FAA(a, 1), fabric.Op{Kind: k, Addr: a})
	}
	if c.Caps().Masked {
		c.refused(fabric.ErrBadChain, 0, fabric.Op{Kind: fabric.OpMaskedCAS, Addr: a})
	}
	c.want(a, 0)
}

func middleOfChain(c *client) {
	size := c.env.cl.Node(0).Memory()[0].Size
	a := fabric.At(0, 64)
	buf := c.Alloc(8)
	bad := []fabric.Op{fabric.FAA(fabric.At(0, size), 1), fabric.Store(fabric.At(0, size), 1),
		fabric.Read(fabric.At(0, size-7), buf), fabric.CAS(fabric.At(0, size+64), 0, 1)}
	for n := range 6 {
		for _, op := range bad {
			c.do(fabric.Store(a, 100), fabric.Store(a+8, 0))
			var ops []fabric.Op
			for range n {
				ops = append(ops, fabric.FAA(a, 1))
			}
			ops = append(ops, op, fabric.FAA(a, 1), fabric.Store(a+8, 1))
			c.refused(fabric.ErrOutOfBounds, n, ops...)
			for i := range n {
				if ops[i].Old != 100+uint64(i) {
					c.fatal("operation %d before the failed one returned %d", i, ops[i].Old)
				}
			}
			c.want(a, 100+uint64(n))
			c.want(a+8, 0)
		}
	}
}

func usableAfterError(c *client) {
	a := fabric.At(0, 64)
	out := fabric.At(0, c.env.cl.Node(0).Memory()[0].Size)
	for i := range uint64(200) {
		c.refused(fabric.ErrOutOfBounds, 0, fabric.FAA(out, 1))
		c.add(a, 1, i)
		c.send(c.ID(), i)
		c.gets(i)
	}
}

func errorOfWait(c *client) {
	a := fabric.At(0, 64)
	out := fabric.At(0, c.env.cl.Node(0).Memory()[0].Size)
	good, bad, more := c.post(fabric.FAA(a, 1)), c.post(fabric.FAA(a, 1), fabric.FAA(out, 1)), c.post(fabric.FAA(a, 1))
	c.wait(good)
	if err := c.Wait(bad); !isChainError(err, fabric.ErrOutOfBounds, 1) {
		c.fatal("Wait: %v", err)
	}
	// What was in flight behind it was executed, or says that it may not have been.
	err := c.Wait(more)
	if err != nil && !errors.Is(err, fabric.ErrUnknownOutcome) {
		c.fatal("Wait behind the failed chain: %v", err)
	}
	if got := c.load(a); got != 3 && (err == nil || got != 2) {
		c.fatal("the counter is %d, and the chain behind the failed one returned %v", got, err)
	}
}

// isChainError reports whether err says that operation index failed with want.
func isChainError(err, want error, index int) bool {
	var ce *fabric.ChainError
	return errors.Is(err, want) && errors.As(err, &ce) && ce.Index == index
}
