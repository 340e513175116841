package objstore

import "github.com/declock/declock/fabric"

// The word of an object's access and expiry, its second one, has two forms. The first is that of programs that count expiry in seconds:
//
//	 63                              32 31 30                           0
//	+----------------------------------+--+------------------------------+
//	|  second of expiry, 0 is never    | 0|   second of the last access  |
//	+----------------------------------+--+------------------------------+
//
// The other one is that of an object which expires between two seconds:
//
//	 63                              32 31 30       21 20               0
//	+----------------------------------+--+-----------+------------------+
//	|  second of expiry                | 1|   early   |   access / 4 s   |
//	+----------------------------------+--+-----------+------------------+
//
// Early is how many milliseconds before the begin of that second it expires, access the low bits of the second of the last access, in units of 4 s. A program that does
// not know this form takes the low half for an access in the future, and the object for one that expires up to a second later. When bit 31 of the second is set, from
// 2038 on, all words with an expiry have the second form.
const (
	fineMark    = 1 << 31
	earlyShift  = 21
	earlyMask   = 1<<10 - 1
	accessUnit  = 4
	accessMask  = 1<<earlyShift - 1
	accessAhead = 3600 / accessUnit // how far an access may be in the future, by another node's clock
)

// An expiry is when an object expires. The zero expiry is never.
type expiry struct {
	second uint32 // of the store's clock
	early  uint16 // milliseconds before that, below 1000
}

// latest is the last expiry, in 2106, in milliseconds.
const latest = (1<<32 - 1) * 1000

// expiryAt returns the expiry at a millisecond of the store's clock.
func expiryAt(ms uint64) expiry {
	ms = min(max(ms, 1), latest)
	s := (ms + 999) / 1000
	return expiry{uint32(s), uint16(s*1000 - ms)}
}

// passed reports whether it has come.
func (e expiry) passed(now fabric.Time) bool {
	return e.second != 0 && int64(now/fabric.Millisecond) >= int64(e.second)*1000-int64(e.early)
}

// An access is when an object was used last: its second, or the low bits of it and coarse, as read of a word of the second form.
type access struct {
	second uint32
	coarse bool
}

// at returns the second, as far as it is known. now is the second of the store's clock.
func (a access) at(now uint32) uint32 {
	if !a.coarse {
		return a.second
	}
	ago := (now/accessUnit - a.second) & accessMask
	if ago > accessMask-accessAhead {
		ago -= accessMask + 1
	}
	return (now/accessUnit - ago) * accessUnit
}

// metaWord returns the word of an expiry and an access, which is not coarse.
func metaWord(e expiry, a access) uint64 {
	low := a.second
	if e.early != 0 || e.second != 0 && low&fineMark != 0 {
		low = fineMark | uint32(e.early)<<earlyShift | low/accessUnit&accessMask
	}
	return uint64(e.second)<<32 | uint64(low)
}

// fromMeta is the way back.
func fromMeta(w uint64) (expiry, access) {
	second, low := uint32(w>>32), uint32(w)
	if early := low >> earlyShift & earlyMask; second != 0 && low&fineMark != 0 && early < 1000 {
		return expiry{second, uint16(early)}, access{low & accessMask, true}
	}
	return expiry{second: second}, access{second: low}
}

// expiryMask are the bits of a word that have its expiry. Of one that another program writes, which counts in seconds, they are those of seconds.
func expiryMask(w uint64) uint64 {
	if e, _ := fromMeta(w); e.early != 0 {
		return 0xffffffff<<32 | fineMark | earlyMask<<earlyShift
	}
	return 0xffffffff<<32 | fineMark
}

// expiryOf returns when an object with options expires that is stored now. A TTL in seconds counts from the next full second, so that the object lives for its TTL at
// least, and less than a second longer.
func (c *Client) expiryOf(o Options) expiry {
	now := c.Clock()
	switch {
	case o.Millis != 0:
		return expiryAt(uint64((now+fabric.Millisecond-1)/fabric.Millisecond) + min(o.Millis, latest))
	case o.TTL == 0:
		return expiry{}
	}
	s := uint32((now + fabric.Second - 1) / fabric.Second)
	return expiry{second: max(s+min(o.TTL, ^uint32(0)-s), 1)}
}
