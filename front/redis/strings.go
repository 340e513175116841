package redis

import (
	"bytes"
	"math/big"
	"strconv"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// store returns the items, or answers that there are none.
func (c *conn) store() *item.Items {
	a := c.srv.store.Load()
	if a == nil {
		c.failed(errDetached)
		return nil
	}
	c.most = a.most
	return a.items
}

// view calls f with the item of a key, whose answers are taken back if there turns out to be none. It is not ok if it has answered with an error.
func (c *conn) view(key []byte, f func(it item.Item)) (found, ok bool) {
	x := c.store()
	if x == nil {
		return false, false
	}
	before := len(c.out)
	found, err := x.View(c.srv.ops, key, func(it item.Item) {
		c.out = c.out[:before]
		f(it)
	})
	if err != nil || !found {
		c.out = c.out[:before]
	}
	if err != nil {
		c.failed(err)
		return false, false
	}
	if found {
		c.srv.counted.hits.Add(1)
	} else {
		c.srv.counted.misses.Add(1)
	}
	return found, true
}

// update changes the item of a key. It is not ok if it has answered with an error. What the function has answered is taken back if it is called again, and if the
// change fails after it: a request has one answer.
func (c *conn) update(key []byte, u item.Update) (called, ok bool) {
	x := c.store()
	if x == nil {
		return false, false
	}
	before, apply := len(c.out), u.Apply
	u.Apply = func(o *item.Object) item.Change {
		c.out = c.out[:before]
		return apply(o)
	}
	return c.updated(x, key, u)
}

// updated is update with a function that answers nothing.
func (c *conn) updated(x *item.Items, key []byte, u item.Update) (called, ok bool) {
	before := len(c.out)
	called, err := x.Update(c.srv.ops, key, u)
	if err != nil || !called {
		c.out = c.out[:before]
	}
	if err != nil {
		c.failed(err)
	}
	return called, err == nil
}

func (c *conn) get(args [][]byte) error {
	return c.getPart(args[1], whole, c.null)
}

// A setting is what SET and its kin do.
type setting struct {
	when   condition
	equal  []byte // of compare conditions
	expiry expiry
	keep   bool // the expiry that is there
	get    bool // answer with the value that was there
}

// A condition says when to store.
type condition uint8

const (
	always condition = iota
	ifAbsent
	ifPresent
	ifEqual
	ifUnequal // or absent
)

// holds reports whether a condition holds, of an item of which at least as much as is compared has been read.
func (w condition) holds(o *item.Object, equal []byte) bool {
	switch w {
	case ifAbsent:
		return !o.Found
	case ifPresent:
		return o.Found
	case ifEqual:
		return o.Found && same(&o.Item, equal)
	case ifUnequal:
		return !o.Found || !same(&o.Item, equal)
	}
	return true
}

// same reports whether an item has a value.
func same(it *item.Item, value []byte) bool {
	return it.Size == len(value) && bytes.Equal(it.Value, value)
}

// room copies a value to behind room for a head.
func (c *conn) room(value []byte) []byte {
	var head [item.HeadSize]byte
	c.value = append(append(c.value[:0], head[:]...), value...)
	return c.value
}

// put does a setting. It answers only if there is an error, or with the value that was there if that is asked for.
func (c *conn) put(key, value []byte, s *setting) (stored, ok bool, err error) {
	if len(value) > c.srv.most() {
		c.fail(tooLong)
		return false, false, nil
	}
	up, ok := c.arrivedFor()
	if !ok {
		return false, false, nil
	}
	c.room(value)
	p := &c.putting
	p.setting, p.upload, p.stored = *s, up, false
	if s.get {
		ok, err = c.swap(key, len(s.equal), false, p.apply)
	} else if x := c.store(); x != nil {
		_, ok = c.updated(x, key, item.Update{Read: len(s.equal), Apply: p.apply})
	} else {
		ok = false
	}
	p.setting, p.upload = setting{}, nil
	return p.stored && ok, ok, err
}

// A putting is what put does under the lock.
type putting struct {
	setting
	upload *objstore.Upload
	stored bool

	apply func(*item.Object) item.Change
}

// applyPut decides what becomes of an item that put meets.
func (c *conn) applyPut(o *item.Object) item.Change {
	p := &c.putting
	if p.stored = p.when.holds(o, p.equal); !p.stored {
		return item.Change{}
	}
	ch := item.Change{Action: objstore.Put, Value: c.value, Upload: p.upload, Expiry: p.expiry.at(&o.Item)}
	if p.keep {
		ch.Expiry = o.Expiry
	}
	return ch
}

func (c *conn) set(args [][]byte) error {
	var s setting
	if wrong := s.parse(args[3:]); wrong != "" {
		c.fail(wrong)
		return nil
	}
	switch stored, ok, err := c.put(args[1], args[2], &s); {
	case !ok:
		return err
	case s.get:
	case stored:
		c.ok()
	default:
		c.null()
	}
	return nil
}

// parse reads the options of SET. It returns what is wrong with them.
func (s *setting) parse(options [][]byte) (wrong string) {
	for i := 0; i < len(options); i++ {
		o := options[i]
		unit, last := unitOf(o), i == len(options)-1
		switch {
		case is(o, "NX") && (s.when == always || s.when == ifAbsent):
			s.when = ifAbsent
		case is(o, "XX") && (s.when == always || s.when == ifPresent):
			s.when = ifPresent
		case (is(o, "IFEQ") || is(o, "IFNE")) && s.when == always && !last:
			s.when, s.equal = ifEqual, options[i+1]
			if is(o, "IFNE") {
				s.when = ifUnequal
			}
			i++
		case is(o, "IFDEQ"), is(o, "IFDNE"):
			return "ERR IFDEQ and IFDNE are not supported: use IFEQ and IFNE"
		case is(o, "GET"):
			s.get = true
		case is(o, "KEEPTTL") && s.expiry.unit == noUnit:
			s.keep = true
		case unit != noUnit && s.expiry.may(unit) && !s.keep && !last:
			s.expiry = expiry{unit: unit, text: options[i+1]}
			i++
		default:
			return syntaxError
		}
	}
	return s.expiry.parse("set")
}

func (c *conn) setNX(args [][]byte) error {
	stored, ok, err := c.put(args[1], args[2], &setting{when: ifAbsent})
	if ok {
		c.truth(stored)
	}
	return err
}

// setEX is SETEX and PSETEX.
func (c *conn) setEX(args [][]byte) error {
	s := setting{expiry: expiry{unit: c.now.unit, text: args[2]}}
	if wrong := s.expiry.parse(c.now.name); wrong != "" {
		c.fail(wrong)
		return nil
	}
	_, ok, err := c.put(args[1], args[3], &s)
	if ok {
		c.ok()
	}
	return err
}

func (c *conn) getSet(args [][]byte) error {
	_, _, err := c.put(args[1], args[2], &setting{get: true})
	return err
}

func (c *conn) getDel(args [][]byte) error {
	_, err := c.swap(args[1], 0, true, func(*item.Object) item.Change { return item.Change{Action: objstore.Remove} })
	return err
}

func (c *conn) getEX(args [][]byte) error {
	var e expiry
	persist := false
	for i := 2; i < len(args); i++ {
		unit := unitOf(args[i])
		switch {
		case is(args[i], "PERSIST") && e.unit == noUnit:
			persist = true
		case unit != noUnit && e.may(unit) && !persist && i+1 < len(args):
			e = expiry{unit: unit, text: args[i+1]}
			i++
		default:
			c.fail(syntaxError)
			return nil
		}
	}
	if wrong := e.parse("getex"); wrong != "" {
		if found, ok := c.view(args[1], func(item.Item) {}); found { // Redis looks first
			c.fail(wrong)
		} else if ok {
			c.null()
		}
		return nil
	}
	if e.unit == noUnit && !persist {
		return c.get(args)
	}
	_, err := c.swap(args[1], 0, true, func(o *item.Object) item.Change {
		if !o.Found {
			return item.Change{}
		}
		return expireAt(o, e.at(&o.Item))
	})
	return err
}

// mget answers with the values of keys, many of which are read at a time. Each is read at a moment of its own.
func (c *conn) mget(args [][]byte) error {
	keys := args[1:]
	x := c.store()
	if x == nil {
		return nil
	}
	begin := len(c.out)
	c.array(len(keys))
	for first := true; len(keys) > 0; first = false {
		c.asked = keys
		n, err := x.ViewMany(c.srv.ops, keys, c.got)
		if c.broken != nil {
			return c.broken
		}
		switch {
		case err != nil && first:
			c.out = c.out[:begin]
			c.failed(err)
			return nil
		case err != nil: // the array has begun
			for range keys {
				c.failed(err)
			}
			return nil
		}
		keys = keys[n:]
		if err := c.spill(); err != nil {
			return err
		}
	}
	return nil
}

// got answers with one of many items.
func (c *conn) got(it *item.Item, found bool, err error) {
	key := c.asked[0]
	c.asked = c.asked[1:]
	switch {
	case c.broken != nil:
	case err != nil:
		c.failed(err)
	case found:
		c.srv.counted.hits.Add(1)
		if it.Large == nil {
			c.bulk(it.Value)
			return
		}
		changed, err := c.bulkRange(it.Large, 0, it.Size, nil)
		if changed {
			err = c.getPart(key, whole, c.null)
		}
		c.broken = err
	default:
		c.srv.counted.misses.Add(1)
		c.null()
	}
}

// spill writes the answers in the middle of a request, if there are many of them.
func (c *conn) spill() error {
	switch {
	case len(c.out) < enoughOut:
		return nil
	case c.silent == answers:
		return c.flush()
	}
	c.out = c.out[:0]
	return nil
}

func (c *conn) mset(args [][]byte) error {
	if len(args)%2 == 0 {
		c.fail("ERR wrong number of arguments for 'mset' command")
		return nil
	}
	for i := 1; i < len(args); i += 2 {
		if _, ok, err := c.put(args[i], args[i+1], &setting{}); !ok {
			return err
		}
	}
	c.ok()
	return nil
}

// msetNX is refused: it is all or nothing, for which the keys would have to be locked together.
func (c *conn) msetNX(args [][]byte) error {
	if len(args)%2 == 0 {
		c.fail("ERR wrong number of arguments for 'msetnx' command")
	} else {
		c.fail("ERR MSETNX is not supported: several keys are not changed in one step here")
	}
	return nil
}

func (c *conn) incr(args [][]byte) error { return c.count(args[1], 1) }
func (c *conn) decr(args [][]byte) error { return c.count(args[1], -1) }

func (c *conn) incrBy(args [][]byte) error {
	by, ok := integer(args[2])
	if !ok {
		c.fail(notInteger)
		return nil
	}
	return c.count(args[1], by)
}

func (c *conn) decrBy(args [][]byte) error {
	by, ok := integer(args[2])
	switch {
	case !ok:
		c.fail(notInteger)
	case by == -1<<63:
		c.fail("ERR decrement would overflow")
	default:
		return c.count(args[1], -by)
	}
	return nil
}

// change is update with a function that answers. A key that is not there is seen as well.
func (c *conn) change(key []byte, read int, f func(o *item.Object) item.Change) {
	c.update(key, item.Update{Read: read, Apply: f})
}

// instead returns the change that stores a value in place of an item's, with its flags and expiry.
func (c *conn) instead(o *item.Object) item.Change {
	return item.Change{Action: objstore.Put, Value: c.value, Flags: o.Flags, Expiry: o.Expiry, State: o.State}
}

// mostDigits is how much of a value is read to find an integer in it: more than an integer has, so that a longer value is none.
const mostDigits = 24

func (c *conn) count(key []byte, by int64) error {
	c.change(key, mostDigits, func(o *item.Object) item.Change {
		v := int64(0)
		if o.Found {
			var ok bool
			if v, ok = integer(o.Value); !ok {
				c.fail(notInteger)
				return item.Change{}
			}
		}
		sum := v + by
		if (sum > v) != (by > 0) && by != 0 {
			c.fail("ERR increment or decrement would overflow")
			return item.Change{}
		}
		c.value = strconv.AppendInt(c.room(nil), sum, 10)
		c.number(sum)
		return c.instead(o)
	})
	return nil
}

func (c *conn) incrByFloat(args [][]byte) error {
	const notFloat = "ERR value is not a valid float"
	by, ok := float(args[2])
	if !ok {
		c.fail(notFloat)
		return nil
	}
	c.change(args[1], longestFloat+1, func(o *item.Object) item.Change {
		v := new(big.Float).SetPrec(64)
		if o.Found {
			var ok bool
			if v, ok = float(o.Value); !ok {
				c.fail(notFloat)
				return item.Change{}
			}
		}
		if !v.IsInf() && !by.IsInf() {
			v = new(big.Float).SetPrec(64).Add(v, by)
		}
		if !finite(v) || by.IsInf() {
			c.fail("ERR increment would produce NaN or Infinity")
			return item.Change{}
		}
		c.value = appendFloat(c.room(nil), v)
		c.bulk(c.value[item.HeadSize:])
		return c.instead(o)
	})
	return nil
}

func (c *conn) append(args [][]byte) error {
	return c.splice(args[1], args[2], func(size int) int { return size })
}

func (c *conn) strlen(args [][]byte) error {
	if found, ok := c.view(args[1], func(it item.Item) { c.number(int64(it.Size)) }); ok && !found {
		c.number(0)
	}
	return nil
}

func (c *conn) getRange(args [][]byte) error {
	from, ok1 := integer(args[2])
	to, ok2 := integer(args[3])
	if !ok1 || !ok2 {
		c.fail(notInteger)
		return nil
	}
	return c.getPart(args[1], func(size int) (int, int) {
		n := int64(size)
		a, b := from, to
		if a < 0 {
			a = max(a+n, 0)
		}
		if b < 0 {
			b = max(b+n, 0)
		}
		b = min(b, n-1)
		if from < 0 && to < 0 && from > to || a > b {
			return 0, 0
		}
		return int(a), int(b + 1 - a)
	}, func() { c.bulk(nil) })
}

func (c *conn) setRange(args [][]byte) error {
	at, ok := integer(args[2])
	data := args[3]
	switch {
	case !ok:
		c.fail(notInteger)
		return nil
	case at < 0:
		c.fail("ERR offset is out of range")
		return nil
	}
	if len(data) == 0 && c.upload == nil {
		return c.strlen(args)
	}
	begin := int(min(at, objstore.MaxValueBytes))
	return c.splice(args[1], data, func(int) int { return begin })
}
