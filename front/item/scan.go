package item

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
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
	for since := x.clock(); ; {
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
		if !x.retry(ctx, err, since) {
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

// Bounds of what Count looks at to see how many objects are there for clients.
const (
	countSample  = 64 // keys
	countBuckets = 4096
)

// Count returns about how many items there are: objects, from a sample of buckets, less the part of them that was flushed or has expired, by a sample of those.
func (x *Items) Count(ctx context.Context) (uint64, error) {
	u, err := x.Usage(ctx)
	if err != nil || u.Items == 0 {
		return 0, err
	}
	var keys [][]byte
	all := x.Buckets()
	from := rand.Uint64N(all)
	for i := uint64(0); i < min(all, countBuckets) && len(keys) < countSample; i++ {
		if keys, err = x.Scan(ctx, (from+i)%all, keys); err != nil {
			return 0, err
		}
	}
	live := uint64(0)
	for _, k := range keys {
		found, err := x.View(ctx, k, func(Item) {})
		if err != nil {
			return 0, err
		}
		if found {
			live++
		}
	}
	if len(keys) == 0 {
		return u.Items, nil
	}
	return (u.Items*live + uint64(len(keys))/2) / uint64(len(keys)), nil
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

// Stats returns what operations on the items have counted.
func (x *Items) Stats() objstore.Stats { return x.objects().Stats() }
