package redis

import (
	"fmt"
	"math"
	"time"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// An expiry is when an item expires, as a client has said it.
type expiry struct {
	unit unit
	text []byte
	ms   int64
}

// A unit is what an expiry counts in, and from when.
type unit uint8

const (
	noUnit unit = iota
	seconds
	milliseconds
	unixSeconds
	unixMilliseconds
)

// unitOf returns the unit of an option.
func unitOf(option []byte) unit {
	switch {
	case is(option, "EX"):
		return seconds
	case is(option, "PX"):
		return milliseconds
	case is(option, "EXAT"):
		return unixSeconds
	case is(option, "PXAT"):
		return unixMilliseconds
	}
	return noUnit
}

// may reports whether an option with a unit may follow: the last of several with the same one counts.
func (e *expiry) may(u unit) bool { return e.unit == noUnit || e.unit == u }

// parse reads the text of the option of a command, and returns what is wrong with it.
func (e *expiry) parse(command string) (wrong string) {
	if e.unit == noUnit {
		return ""
	}
	v, ok := integer(e.text)
	if !ok {
		return notInteger
	}
	if v <= 0 || !e.take(v) {
		return invalidExpire(command)
	}
	return ""
}

func invalidExpire(command string) string {
	return fmt.Sprintf("ERR invalid expire time in '%s' command", command)
}

// take takes a number for the time. It is not ok if that is later than the store's last second.
func (e *expiry) take(v int64) (ok bool) {
	if e.unit == seconds || e.unit == unixSeconds {
		if v > math.MaxInt64/1000 || v < math.MinInt64/1000 {
			return false
		}
		v *= 1000
	}
	e.ms = v
	last := int64(item.LastExpiry)
	if e.unit == seconds || e.unit == milliseconds {
		last -= time.Now().UnixMilli()
	}
	return v <= last
}

// at returns the time at which an item that is changed now expires, in milliseconds; 0: never. It is never early, and what is past is before now.
func (e *expiry) at(it *item.Item) int64 {
	switch e.unit {
	case noUnit:
		return 0
	case seconds, milliseconds:
		return max(it.NowMs()+e.ms, 1)
	}
	return max(e.ms, 1)
}

// expireAt returns the change that has an item expire at a time, which removes it if that is past.
func expireAt(o *item.Object, ms int64) item.Change {
	if ms != 0 && ms <= o.NowMs() {
		return item.Change{Action: objstore.Remove}
	}
	return item.Change{Action: objstore.Expire, Expiry: ms}
}

func (c *conn) del(args [][]byte) error {
	deleted := int64(0)
	for _, key := range args[1:] {
		found := false
		called, ok := c.update(key, item.Update{IfFound: true, Apply: func(o *item.Object) item.Change {
			found = o.Found
			return item.Change{Action: objstore.Remove}
		}})
		if !ok {
			return nil
		}
		if called && found {
			deleted++
		}
	}
	c.number(deleted)
	return nil
}

// delEX deletes a key if it has a value, or has not.
func (c *conn) delEX(args [][]byte) error {
	when, equal := always, []byte(nil)
	switch {
	case len(args) == 2:
	case len(args) == 4 && is(args[2], "IFEQ"):
		when, equal = ifEqual, args[3]
	case len(args) == 4 && is(args[2], "IFNE"):
		when, equal = ifUnequal, args[3]
	default:
		c.fail(syntaxError)
		return nil
	}
	deleted := false
	if called, ok := c.update(args[1], item.Update{Read: len(equal), IfFound: true, Apply: func(o *item.Object) item.Change {
		if deleted = o.Found && when.holds(o, equal); deleted {
			return item.Change{Action: objstore.Remove}
		}
		return item.Change{}
	}}); ok {
		c.truth(called && deleted)
	}
	return nil
}

func (c *conn) exists(args [][]byte) error {
	n := int64(0)
	for _, key := range args[1:] {
		found, ok := c.view(key, func(item.Item) {})
		if !ok {
			return nil
		}
		if found {
			n++
		}
	}
	c.number(n)
	return nil
}

func (c *conn) typeOf(args [][]byte) error {
	switch found, ok := c.view(args[1], func(item.Item) {}); {
	case found:
		c.out = append(c.out, "+string\r\n"...)
	case ok:
		c.out = append(c.out, "+none\r\n"...)
	}
	return nil
}

// Options of EXPIRE and its kin.
const (
	expireNX = 1 << iota // only if it does not expire
	expireXX             // only if it does
	expireGT             // only if it expires later then
	expireLT             // only if it expires earlier then
)

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func (c *conn) expire(args [][]byte) error {
	e := expiry{unit: c.now.unit}
	options, wrong := expireOptions(args[3:])
	v, ok := integer(args[2])
	switch {
	case wrong != "":
	case !ok:
		wrong = notInteger
	case !e.take(v):
		wrong = invalidExpire(c.now.name)
	}
	if wrong != "" {
		c.fail(wrong)
		return nil
	}
	c.expireKey(args[1], &e, func(o *item.Object, at int64) bool {
		return !(options&expireNX != 0 && o.Expiry != 0 || options&expireXX != 0 && o.Expiry == 0 ||
			options&expireGT != 0 && (o.Expiry == 0 || at <= o.Expiry) || options&expireLT != 0 && o.Expiry != 0 && at >= o.Expiry)
	})
	return nil
}

func expireOptions(args [][]byte) (options int, wrong string) {
	for _, a := range args {
		switch {
		case is(a, "NX"):
			options |= expireNX
		case is(a, "XX"):
			options |= expireXX
		case is(a, "GT"):
			options |= expireGT
		case is(a, "LT"):
			options |= expireLT
		default:
			return 0, fmt.Sprintf("ERR Unsupported option %s", text(a, len(a)))
		}
	}
	switch {
	case options&expireNX != 0 && options != expireNX:
		return 0, "ERR NX and XX, GT or LT options at the same time are not compatible"
	case options&(expireGT|expireLT) == expireGT|expireLT:
		return 0, "ERR GT and LT options at the same time are not compatible"
	}
	return options, ""
}

// expireKey gives a key another expiry if a function says so, and answers whether.
func (c *conn) expireKey(key []byte, e *expiry, may func(o *item.Object, at int64) bool) {
	done := false
	if called, ok := c.update(key, item.Update{IfFound: true, Apply: func(o *item.Object) item.Change {
		at := e.at(&o.Item)
		if done = o.Found && may(o, at); done {
			return expireAt(o, at)
		}
		return item.Change{}
	}}); ok {
		c.truth(called && done)
	}
}

func (c *conn) persist(args [][]byte) error {
	c.expireKey(args[1], &expiry{}, func(o *item.Object, _ int64) bool { return o.Expiry != 0 })
	return nil
}

// ttl is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func (c *conn) ttl(args [][]byte) error {
	unit := c.now.unit
	if found, ok := c.view(args[1], func(it item.Item) {
		v := it.Expiry
		switch {
		case v == 0:
			v = -1
		case unit == seconds:
			v = (max(v-it.NowMs(), 0) + 500) / 1000
		case unit == milliseconds:
			v = max(v-it.NowMs(), 0)
		case unit == unixSeconds:
			v = (v + 500) / 1000
		}
		c.number(v)
	}); ok && !found {
		c.number(-2)
	}
	return nil
}

func (c *conn) flushAll(args [][]byte) error {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "ASYNC") && !is(args[1], "SYNC") {
		c.fail(syntaxError)
		return nil
	}
	x := c.store()
	if x == nil {
		return nil
	}
	if err := x.Flush(c.srv.ops); err != nil {
		c.failed(err)
		return nil
	}
	c.ok()
	return nil
}
