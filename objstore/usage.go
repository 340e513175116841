package objstore

import (
	"fmt"
	"math/bits"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A Usage is about how much of a store is in use on one memory node.
type Usage struct {
	Items uint64 `json:"items"` // objects, with those that have expired and that no client has asked for since
	Bytes uint64 `json:"bytes"` // of them, with keys and headers, rounded up as their slots do
	Exact bool   `json:"exact"` // all buckets were counted
}

const (
	// fewInSample objects in a sample say too little of how many there are.
	fewInSample = 32
	// usageRead bounds a READ of many buckets.
	usageRead = 32 << 10
)

// Estimate returns the usage of the part of a store that a root entry names, from as many buckets as sample says: keys are spread over
// buckets by their hash. Where that finds few objects it counts all of them, if as many READs of 32 KiB are enough for the table. It opens nothing and takes no lock. It
// costs one READ for each bucket, or for 32 KiB, and for each overflow block.
func Estimate(port fabric.Port, r *memory.Region, e *memory.Entry, sample uint64) (u Usage, err error) {
	g, err := decodeGeometry(e, int(e.Info[0]>>40&0xff))
	if err != nil {
		return u, err
	}
	n := min(max(sample, 1), g.buckets)
	k := counter{port: port, r: r, u: &u}
	size := (g.slots + 1) * slotSize
	buf := port.Alloc(fabric.MaxChain * size)
	defer port.Free(buf)
	// Evenly spaced, from a random one on.
	first, _ := bits.Mul64(port.Rand(), g.buckets)
	ops := make([]fabric.Op, 0, fabric.MaxChain)
	for i := uint64(0); i < n; {
		ops = ops[:0]
		for ; i < n && len(ops) < cap(ops); i++ {
			hi, lo := bits.Mul64(i, g.buckets)
			at, _ := bits.Div64(hi, lo, n)
			b := (first + at) % g.buckets
			ops = append(ops, fabric.Read(e.Addr.Add(tableOffset+b*g.bucketSize+g.lockSize), buf[len(ops)*size:][:size]))
		}
		if err := port.Do(ops); err != nil {
			return u, fmt.Errorf("objstore: buckets of %q on %v: %w", e.Name, e.Addr.MN(), err)
		}
		for j := range ops {
			if err := k.count(ops[j].Buf); err != nil {
				return u, err
			}
		}
	}
	if n < g.buckets && u.Items < fewInSample && g.buckets*g.bucketSize <= n*usageRead {
		u, n = Usage{}, g.buckets
		if err := k.countAll(&g, e.Addr.Add(tableOffset)); err != nil {
			return u, fmt.Errorf("objstore: buckets of %q on %v: %w", e.Name, e.Addr.MN(), err)
		}
	}
	u.Exact = n == g.buckets
	u.Items, u.Bytes = scaled(u.Items, g.buckets, n), scaled(u.Bytes, g.buckets, n)
	return u, nil
}

// scaled returns x*all/part, rounded.
func scaled(x, all, part uint64) uint64 {
	return uint64(float64(x)*float64(all)/float64(part) + 0.5)
}

// A counter counts objects.
type counter struct {
	port fabric.Port
	r    *memory.Region
	u    *Usage
	over []byte
}

// countAll counts the objects of a table.
func (k *counter) countAll(g *geometry, table fabric.Addr) error {
	each := max(usageRead/g.bucketSize, 1)
	buf := k.port.Alloc(int(each * g.bucketSize))
	defer k.port.Free(buf)
	for at := uint64(0); at < g.buckets; at += each {
		n := min(each, g.buckets-at)
		ops := [1]fabric.Op{fabric.Read(table.Add(at*g.bucketSize), buf[:n*g.bucketSize])}
		if err := k.port.Do(ops[:]); err != nil {
			return err
		}
		for i := range n {
			if err := k.count(buf[i*g.bucketSize+g.lockSize:][:(g.slots+1)*slotSize]); err != nil {
				return err
			}
		}
	}
	return nil
}

// count counts the objects of a bucket, and of its overflow blocks. A block that is given back meanwhile is none: what makes no sense is not
// counted.
func (k *counter) count(slots []byte) error {
	if vacant(slots) {
		return nil
	}
	for depth := 0; ; depth++ {
		last := len(slots)/slotSize - 1
		for i := range last {
			w := slotWord(wordAt(slots, i))
			if w != 0 && w.class() < numClasses && w.chunk().offset()+w.class().size() <= k.r.Size() {
				k.u.Items++
				k.u.Bytes += w.readLen()
			}
		}
		block, ok := linkWord(wordAt(slots, last)).chunk()
		if !ok || depth == maxOverflow || block.offset()+overflowSize > k.r.Size() {
			return nil
		}
		if k.over == nil {
			k.over = k.port.Alloc(overflowSize)
			defer func() { k.port.Free(k.over); k.over = nil }()
		}
		ops := [1]fabric.Op{fabric.Read(k.r.At(block.offset()), k.over)}
		if err := k.port.Do(ops[:]); err != nil {
			return fmt.Errorf("objstore: overflow block on %v: %w", k.r.Memory(), err)
		}
		slots = k.over
	}
}
