package item

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// Buckets returns how many there are to Scan.
func (x *Items) Buckets() uint64 {
	perNode, _ := x.objects().Buckets()
	return perNode * uint64(len(x.objects().Nodes()))
}

// mostLooks bounds how often Scan looks at a bucket that changes.
const mostLooks = 100

// Scan appends the keys in a bucket to keys, those of items that were flushed or have expired among them. A key that is there all the time is
// among them, however the items of the bucket change.
func (x *Items) Scan(ctx context.Context, bucket uint64, keys [][]byte) ([][]byte, error) {
	perNode, _ := x.objects().Buckets()
	mn, i := x.objects().Nodes()[bucket/perNode], bucket%perNode
	begin := len(keys)
	for since := time.Duration(0); ; {
		err := x.objects().Use(ctx, func(c *objstore.Client) error {
			for range mostLooks {
				d, err := c.Inspect(mn, i)
				if err != nil {
					return err
				}
				sound := true
				keys, sound = x.seen(d, keys, begin)
				if sound {
					break
				}
			}
			return nil
		})
		if !x.retry(ctx, err, &since) {
			return keys, err
		}
	}
}

// seen adds the keys that a look has found to those of looks before, which begin at an index. It is not sound if an object was changed between the look at its slot
// and that at itself: its key is in neither, or another one twice.
func (x *Items) seen(d *objstore.BucketDump, keys [][]byte, begin int) (_ [][]byte, sound bool) {
	sound = true
	now := map[string]bool{}
	for i := range d.Slots {
		if d.Slots[i].Segment {
			continue
		}
		key := d.Slots[i].Key
		if d.Slots[i].Err != nil || now[key] {
			sound = false
			continue
		}
		if mn, at := x.objects().Locate([]byte(key)); mn.String() != d.Node || at != d.Index {
			sound = false
			continue
		}
		now[key] = true
		known := false
		for _, k := range keys[begin:] {
			known = known || bytes.Equal(k, []byte(key))
		}
		if !known {
			keys = append(keys, []byte(key))
		}
	}
	return keys, sound
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

// Bounds of what Count looks at.
const (
	countKeys    = 4096
	countBuckets = 4096
)

// Count returns how many items there are: exactly, if the store has no more than 4096 buckets, or objects in no more than that, those that were flushed or have expired among them, and it
// is not too large to look at all buckets; else about, from those in buckets that lie side by side, over which keys are spread by their hash.
func (x *Items) Count(ctx context.Context) (uint64, error) {
	all := x.Buckets()
	few, err := x.occupied(ctx)
	if err != nil {
		return 0, err
	}
	if few != nil {
		live, _, err := x.live(ctx, uint64(len(few)), math.MaxInt, func(i uint64) uint64 { return few[i] })
		return live, err
	}
	from := rand.Uint64N(all)
	live, looked, err := x.live(ctx, min(all, countBuckets), countKeys, func(i uint64) uint64 { return (from + i) % all })
	if err != nil {
		return 0, err
	}
	return (live*all + looked/2) / looked, nil
}

// occupied returns which buckets have objects, or nil if they are many.
func (x *Items) occupied(ctx context.Context) (list []uint64, err error) {
	perNode, _ := x.objects().Buckets()
	list = []uint64{}
	for i, mn := range x.objects().Nodes() {
		begin, ok := len(list), false
		look := func(c *objstore.Client) (err error) {
			list, ok, err = c.Occupied(mn, countKeys, list[:begin])
			return err
		}
		err := x.objects().Use(ctx, look)
		for since := time.Duration(0); x.retry(ctx, err, &since); {
			err = x.objects().Use(ctx, look)
		}
		if err != nil || !ok {
			return nil, err
		}
		for j := begin; j < len(list); j++ {
			list[j] += uint64(i) * perNode
		}
	}
	return list, nil
}

// live counts the items that are there in the first of n buckets, until it has seen enough, and returns in how many buckets it has looked.
func (x *Items) live(ctx context.Context, n uint64, enough int, bucket func(i uint64) uint64) (live, looked uint64, err error) {
	var keys [][]byte
	for seen := 0; looked < n && seen < enough; {
		keys = keys[:0]
		for ; looked < n && len(keys) < mostMany; looked++ {
			if keys, err = x.Scan(ctx, bucket(looked), keys); err != nil {
				return 0, 0, err
			}
		}
		seen += len(keys)
		for k := keys; len(k) > 0; {
			var failed error
			m, err := x.ViewMany(ctx, k, func(_ *Item, found bool, e error) {
				if failed = errors.Join(failed, e); found {
					live++
				}
			})
			if err = errors.Join(err, failed); err != nil {
				return 0, 0, err
			}
			k = k[m:]
		}
	}
	return live, looked, nil
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
