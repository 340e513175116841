package item

import (
	"context"
	"slices"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// Buckets returns how many there are to Scan.
func (x *Items) Buckets() uint64 { return x.objects().AllBuckets() }

// mostScan bounds the bytes that Scan reads, and mostAtATime those that Count reads before another operation may have its client.
const (
	mostScan    = 1 << 20
	mostAtATime = 4 << 20
)

// Scan appends the keys of items in the buckets from one on to keys, until it has enough of them or has read about 1 MiB, and returns the bucket to go on with: Buckets at the
// end. A key that is there all the time is found, however the items of its bucket change.
func (x *Items) Scan(ctx context.Context, from uint64, enough int, keys [][]byte) (_ [][]byte, next uint64, err error) {
	begin := len(keys)
	number, err := x.flushes.Number(ctx)
	if err != nil {
		return keys, from, err
	}
	var numbers []uint32
	next, err = x.skim(ctx, from, mostScan, func() { keys, numbers = keys[:begin], numbers[:0] }, func(b *objstore.Brief) bool {
		var h Head
		if h.Decode(b.Value) && int32(h.Flush-number) >= 0 {
			keys, numbers = append(keys, slices.Clone(b.Key)), append(numbers, h.Flush)
		}
		return len(numbers) < enough
	})
	if err != nil {
		return keys[:begin], from, err
	}
	number, err = x.flushes.Number(ctx) // as it is after the reads
	there := keys[:begin]
	for i, n := range numbers {
		if n == number {
			there = append(there, keys[begin+i])
		}
	}
	return there, next, err
}

// skim is objstore.Client.Skim: begin is called before it, and again if it has to be done anew.
func (x *Items) skim(ctx context.Context, from, most uint64, begin func(), f func(*objstore.Brief) bool) (next uint64, err error) {
	for since := time.Duration(0); ; {
		begin()
		err := x.objects().Use(ctx, func(c *objstore.Client) (err error) {
			next, err = c.Skim(min(from, x.Buckets()), most, f)
			return err
		})
		if !x.retry(ctx, err, &since) {
			return next, err
		}
	}
}

// usageSample is how many buckets of a memory node Usage looks at.
const usageSample = 4096

// Usage returns about how much of the store is in use.
func (x *Items) Usage(ctx context.Context) (sum objstore.Usage, err error) {
	err = x.cluster.Use(ctx, func(s *declock.Session) error {
		return s.Do(ctx, func() error {
			sum.Exact = true
			for _, r := range x.cluster.Node().Regions() {
				if !slices.Contains(x.objects().Nodes(), r.Memory()) {
					continue
				}
				u, err := usageOf(s.Port(), r, x.name)
				if err != nil {
					return err
				}
				sum.Items += u.Items
				sum.Bytes += u.Bytes
				sum.Exact = sum.Exact && u.Exact
			}
			return nil
		})
	})
	return sum, err
}

func usageOf(port fabric.Port, r *memory.Region, name string) (u objstore.Usage, err error) {
	e, err := r.Lookup(port, name, memory.KindStore)
	if err != nil {
		return u, err
	}
	return objstore.Estimate(port, r, &e, usageSample)
}

// Bounds of what Count looks at: objects, and bytes of buckets, of a store of which it looks at all, and of a larger one.
const (
	countKeys  = 4096
	countTable = 128 << 20 // for each memory node
	countPart  = 4 << 20
)

// Count returns how many items there are: exactly, if there are no more than 4096 objects, those that were flushed among them, and the store is not too large to
// look at all buckets; else about, from those in buckets that lie side by side, over which keys are spread by their hash.
func (x *Items) Count(ctx context.Context) (uint64, error) {
	most, all := uint64(countPart), x.Buckets()
	if whole := x.objects().IndexBytes(); whole <= countTable*uint64(len(x.objects().Nodes())) {
		most = whole + countKeys<<10 // and what is read of so many objects
	}
	var seen []uint32 // numbers of flushes
	next := uint64(0)
	for left := most; next < all && left > 0 && len(seen) < countKeys; left -= min(left, mostAtATime) {
		begin := len(seen)
		again := func() { seen = seen[:begin] }
		var err error
		next, err = x.skim(ctx, next, min(left, mostAtATime), again, func(b *objstore.Brief) bool {
			var h Head
			if h.Decode(b.Value) {
				seen = append(seen, h.Flush)
			}
			return len(seen) < countKeys
		})
		if err != nil {
			return 0, err
		}
	}
	number, err := x.flushes.Number(ctx)
	live := uint64(0)
	for _, n := range seen {
		if n == number {
			live++
		}
	}
	if next < all {
		live = (live*all + next/2) / next
	}
	return live, err
}

// Limit returns how many bytes objects may take.
func (x *Items) Limit() (sum uint64) {
	for _, r := range x.cluster.Node().Regions() {
		if limit := x.objects().MemoryLimit(); limit != 0 {
			sum += limit
		} else {
			sum += r.Size()
		}
	}
	return sum
}

// Times returns how long operations on the items took that were timed: those that read, and updates.
func (x *Items) Times() (gets, updates front.Timed) { return x.gets.Timed(), x.updates.Timed() }

// Stats returns what operations on the items have counted.
func (x *Items) Stats() objstore.Stats { return x.objects().Stats() }
