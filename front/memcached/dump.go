package memcached

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/declock/declock/objstore"
)

// crawler answers lru_crawler, of which there is the listing of items.
func (c *conn) crawler(t [][]byte) error {
	switch {
	case len(t) == 3 && string(t[1]) == "metadump":
		return c.metaDump(t[2])
	case len(t) == 3 && (string(t[1]) == "crawl" || string(t[1]) == "tocrawl" || string(t[1]) == "sleep"):
		c.say("CLIENT_ERROR lru crawler disabled")
	default:
		c.say("ERROR")
	}
	return nil
}

// metaDump answers lru_crawler metadump: a line for each item, of all classes, which are one.
func (c *conn) metaDump(class []byte) error {
	if c.srv.o.NoDump {
		c.say("ERROR metadump not allowed")
		return nil
	}
	if n, ok := parseUint32(class); string(class) != "all" && string(class) != "hash" && (!ok || n != 1) {
		c.say("BADCLASS invalid class id")
		return nil
	}
	return c.eachItem(func(key []byte, it *entry, now uint32) bool {
		hit, at := c.srv.uses.last(key, it)
		c.out = appendEncoded(append(c.out, "key="...), key)
		exp := int64(-1)
		if it.expiry != 0 {
			exp = int64(it.expiry)
		}
		c.out = strconv.AppendInt(append(c.out, " exp="...), exp, 10)
		c.out = strconv.AppendUint(append(c.out, " la="...), uint64(min(at, now)), 10)
		c.out = strconv.AppendUint(append(c.out, " cas="...), it.Unique, 10)
		c.out = append(append(c.out, " fetch="...), yesNo(hit)...)
		c.out = strconv.AppendInt(append(c.out, " cls=1 size="...), int64(itemOverhead+len(key)+it.size), 10)
		c.out = append(c.out, '\n')
		return true
	})
}

// appendEncoded appends a key as in a URI.
func appendEncoded(out, key []byte) []byte {
	for _, b := range key {
		switch {
		case b >= 'a' && b <= 'z', b >= 'A' && b <= 'Z', b >= '0' && b <= '9', b == '-', b == '.', b == '_', b == '~':
			out = append(out, b)
		default:
			out = fmt.Appendf(out, "%%%02X", b)
		}
	}
	return out
}

// cacheDump answers stats cachedump: some items of a class.
func (c *conn) cacheDump(t [][]byte) error {
	if c.srv.o.NoDump {
		c.say("CLIENT_ERROR stats cachedump not allowed")
		return nil
	}
	if len(t) < 2 {
		c.say("CLIENT_ERROR bad command line")
		return nil
	}
	class, ok1 := parseUint32(t[0])
	limit, ok2 := parseUint32(t[1])
	switch {
	case !ok1 || !ok2:
		c.say(badLine)
		return nil
	case class >= 64:
		c.say("CLIENT_ERROR Illegal slab id")
		return nil
	case class != 1:
		c.say("END")
		return nil
	}
	n := uint32(0)
	return c.eachItem(func(key []byte, it *entry, _ uint32) bool {
		c.out = fmt.Appendf(c.out, "ITEM %s [%d b; %d s]\r\n", key, it.size, it.expiry)
		n++
		return limit == 0 || n < limit
	})
}

// mostDump bounds the bytes that are read for a dump at a time.
const mostDump = 256 << 10

// A dumped is an item of a dump: value is not there.
type dumped struct {
	key  []byte
	item entry
}

// eachItem calls f with the items of the store, and the second of its clock, until it returns false, and ends the answer. Each bucket is read at a time of its own.
func (c *conn) eachItem(f func(key []byte, it *entry, now uint32) bool) error {
	for next, more := uint64(0), true; more; {
		list, now, err := c.someItems(&next, &more)
		if err != nil {
			c.failed(err)
			return nil
		}
		for i := range list {
			if !f(list[i].key, &list[i].item, now) {
				more = false
				break
			}
		}
		if err := c.room(); err != nil {
			return err
		}
	}
	c.out = append(c.out, "END\r\n"...)
	return nil
}

// someItems returns the items of some buckets, from one on, which becomes the next, and whether there are more buckets.
func (c *conn) someItems(next *uint64, more *bool) (list []dumped, now uint32, err error) {
	from := *next
	err = c.w.do(items, func(k *objstore.Client) (err error) {
		list, now = list[:0], k.Now()
		*next, err = k.Skim(from, mostDump, func(b *objstore.Brief) bool {
			var x dumped
			o := objstore.Item{Value: b.Value, Flags: b.Flags, Expiry: b.Expiry, Early: b.Early, Access: b.Access}
			if x.item.itemOf(&o, b.Size) {
				x.key, x.item.value = slices.Clone(b.Key), nil
				list = append(list, x)
			}
			return true
		})
		*more = *next < k.Store().AllBuckets()
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	number, err := c.srv.flushes.Number(context.Background()) // as it is after the reads
	return slices.DeleteFunc(list, func(x dumped) bool { return x.item.Flush != number }), now, err
}
