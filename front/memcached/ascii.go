package memcached

import (
	"bytes"
	"context"
	"math"
	"strconv"

	"github.com/declock/declock/objstore"
)

// badLine is what a client is told that a request makes no sense.
const badLine = "CLIENT_ERROR bad command line format"

// say appends an answer, unless the request wants none.
func (c *conn) say(text string) {
	if !c.noreply {
		c.out = append(append(c.out, text...), '\r', '\n')
	}
}

// fail appends an answer whatever the request wants.
func (c *conn) fail(text string) {
	c.noreply = false
	c.say(text)
}

// failed reports an error of the store.
func (c *conn) failed(err error) {
	c.srv.o.Log.Debug("memcached: operation failed", "error", err.Error())
	c.fail(failure(err))
}

// split splits a line at its blanks into c.tokens. rest is what is left when there are no more tokens than fit; nil: nothing.
func (c *conn) split(line []byte) (tokens [][]byte, rest []byte) {
	n := 0
	for {
		for len(line) > 0 && line[0] == ' ' {
			line = line[1:]
		}
		if len(line) == 0 {
			return c.tokens[:n], nil
		}
		if n == maxTokens-1 {
			return c.tokens[:n], line
		}
		end := bytes.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		c.tokens[n] = line[:end]
		n++
		line = line[end:]
	}
}

// ascii serves a request of the ASCII protocol, of which line is the first line.
func (c *conn) ascii(line []byte) error {
	if i := bytes.IndexByte(line, 0); i >= 0 {
		line = line[:i] // as C does
	}
	t, rest := c.split(line)
	if len(t) == 0 || len(t[0]) < 2 {
		c.say("ERROR")
		return nil
	}
	if t[0][0] == 'm' && len(t[0]) == 2 {
		return c.meta(t)
	}
	switch string(t[0]) {
	case "get", "bget":
		return c.get(t, rest, false, false)
	case "gets":
		return c.get(t, rest, true, false)
	case "gat":
		return c.get(t, rest, false, true)
	case "gats":
		return c.get(t, rest, true, true)
	case "set":
		return c.store(t, modeSet)
	case "add":
		return c.store(t, modeAdd)
	case "replace":
		return c.store(t, modeReplace)
	case "append":
		return c.store(t, modeAppend)
	case "prepend":
		return c.store(t, modePrepend)
	case "cas":
		return c.store(t, modeCAS)
	case "incr":
		return c.count(t, false)
	case "decr":
		return c.count(t, true)
	case "delete":
		return c.delete(t)
	case "touch":
		return c.touch(t)
	}
	return c.command(t)
}

// has reports whether a request has a number of tokens that it may have; else it is answered with an error.
func (c *conn) has(t [][]byte, least, most int) bool {
	if len(t) < least || len(t) > most {
		c.say("ERROR")
		return false
	}
	return true
}

// quiet takes over that a request wants no answer, if that is its last token.
func (c *conn) quiet(t [][]byte) bool {
	c.noreply = string(t[len(t)-1]) == "noreply"
	return c.noreply
}

// keyOf returns the key of a request, and reports whether it is short enough; else the request is answered.
func (c *conn) keyOf(b []byte) ([]byte, bool) {
	if len(b) > len(c.key) {
		c.say(badLine)
		return nil, false
	}
	return c.key[:copy(c.key[:], b)], true
}

// get is get, gets, gat and gats. rest are further keys.
func (c *conn) get(t [][]byte, rest []byte, unique, touch bool) error {
	if !c.has(t, 2, maxTokens) {
		return nil
	}
	keys, exptime := t[1:], int64(0)
	if touch {
		var ok bool
		if exptime, ok = parseExptime(t[1]); !ok {
			c.say("CLIENT_ERROR invalid exptime argument")
			return nil
		}
		keys = t[2:]
	}
	if !touch && (len(keys) > 1 || rest != nil) {
		return c.getMany(keys, rest, unique)
	}
	a := answer{begin: len(c.out)}
	for {
		for _, key := range keys {
			if len(key) > len(c.key) {
				return c.notGot(&a, nil)
			}
			var err error
			if touch {
				err = c.touched(key, unique, exptime)
			} else {
				err = c.value(key, unique)
			}
			if err != nil {
				return c.notGot(&a, err)
			}
			if err := c.roomFor(&a); err != nil {
				return err
			}
		}
		if rest == nil {
			break
		}
		keys, rest = c.split(rest)
	}
	c.out = append(c.out, "END\r\n"...)
	return nil
}

// An answer is that to a get.
type answer struct {
	begin   int // in c.out
	written bool
}

// roomFor writes what there is of an answer, if it is much.
func (c *conn) roomFor(a *answer) error {
	if len(c.out) < enoughOut {
		return nil
	}
	a.written = true
	return c.flush()
}

// notGot answers a get that has failed, in place of what is not written yet; without an error it makes no sense.
func (c *conn) notGot(a *answer, err error) error {
	if !a.written {
		c.out = c.out[:a.begin]
	}
	if err == nil {
		c.say(badLine)
	} else {
		c.failed(err)
	}
	return nil
}

// value appends the item of a key, if there is one, and counts that.
func (c *conn) value(key []byte, unique bool) error {
	found, err := c.fetch(key, unique)
	if err == nil {
		c.got(key, found)
	}
	return err
}

// fetch appends the item of a key, if there is one.
func (c *conn) fetch(key []byte, unique bool) (found bool, err error) {
	begin := len(c.out)
	found, err = c.w.get(key, func(it *entry, _ *objstore.Client) { c.out = appendValue(c.out[:begin], key, it, unique) })
	if !found {
		c.out = c.out[:begin]
	}
	return found, err
}

// touched is value that gives the item another time of expiry.
func (c *conn) touched(key []byte, unique bool, exptime int64) error {
	begin := len(c.out)
	found, err := c.w.touch(key, exptime, func(it *entry) { c.out = appendValue(c.out[:begin], key, it, unique) })
	if !found {
		c.out = c.out[:begin]
	}
	if err == nil {
		c.srv.counted.touched(found)
		c.srv.counted.got(found)
		c.prefixGet(key, found)
	}
	return err
}

// got counts a get.
func (c *conn) got(key []byte, found bool) {
	c.srv.counted.got(found)
	c.prefixGet(key, found)
	if found {
		c.w.used(key)
	}
}

// prefixGet counts a get for its prefix, if that is wanted.
func (c *conn) prefixGet(key []byte, found bool) {
	p := &c.srv.prefixes
	if !p.on.Load() {
		return
	}
	p.see(key, func(n *prefixCount) {
		if n.gets++; found {
			n.hits++
		}
	})
}

// appendValue appends an item as get and its kin answer it.
func appendValue(out, key []byte, it *entry, unique bool) []byte {
	out = append(append(out, "VALUE "...), key...)
	out = strconv.AppendUint(append(out, ' '), uint64(it.flags), 10)
	out = strconv.AppendUint(append(out, ' '), uint64(it.size), 10)
	if unique {
		out = strconv.AppendUint(append(out, ' '), it.Unique, 10)
	}
	out = append(append(append(out, '\r', '\n'), it.value...), '\r', '\n')
	return out
}

// itemOverhead is what memcached counts for an item besides its key and value and their ends.
const itemOverhead = 48 + 8 + 1 + 2

// fits reports whether an item is not too large.
func (s *Server) fits(key []byte, flags uint32, size int) bool {
	n := itemOverhead + len(key) + size
	if flags != 0 {
		n += 4
	}
	return n <= s.o.MaxItem
}

// store is set, add, replace, append, prepend and cas.
func (c *conn) store(t [][]byte, m mode) error {
	fields := 5
	if m == modeCAS {
		fields = 6
	}
	if !c.has(t, fields, fields+1) {
		return nil
	}
	c.quiet(t)
	key, ok := c.keyOf(t[1])
	if !ok {
		return nil
	}
	r := request{mode: m, key: key}
	var size int32
	var ok1, ok2, ok3 bool
	r.flags, ok1 = parseUint32(t[2])
	r.exptime, ok2 = parseExptime(t[3])
	size, ok3 = parseInt32(t[4])
	ok = ok1 && ok2 && ok3
	if m == modeCAS {
		r.cas, ok1 = parseUint64(t[5])
		ok = ok && ok1
	}
	if !ok || size < 0 || size > math.MaxInt32-2 {
		c.say(badLine)
		return nil
	}
	if taken, err := c.take(&r, int(size), m == modeSet); !taken {
		return err
	}
	c.say(storedTexts[c.w.req.status])
	return nil
}

var storedTexts = [...]string{stored: "STORED", notStored: "NOT_STORED", exists: "EXISTS", notFound: "NOT_FOUND"}

// take reads the data of a request to store an item, size bytes, and stores it. taken: there is nothing to answer but the outcome. An item that is too large
// removes the one of before, if remove says so.
func (c *conn) take(r *request, size int, remove bool) (taken bool, err error) {
	if !c.srv.fits(r.key, r.flags, size) {
		return false, c.tooLarge(r.key, remove, size)
	}
	var good bool
	if r.value, good, err = c.block(size); err != nil {
		return false, err
	}
	if !good {
		c.say("CLIENT_ERROR bad data chunk")
		return false, nil
	}
	if err := c.do(r); err != nil {
		c.failed(err)
		return false, nil
	}
	return true, nil
}

// do stores an item.
func (c *conn) do(r *request) error {
	if p := &c.srv.prefixes; p.on.Load() {
		p.see(r.key, func(n *prefixCount) { n.sets++ })
	}
	c.w.req = *r
	err := c.w.store()
	c.srv.counted.stored(&c.w.req, err)
	c.srv.uses.forget(r.key)
	return err
}

// tooLarge answers a request to store an item that is too large, and passes over its data. The item that it was to replace is removed: it is old.
func (c *conn) tooLarge(key []byte, remove bool, size int) error {
	c.say("SERVER_ERROR object too large for cache")
	c.srv.counted.tooLarge.Add(1)
	if remove {
		_, _ = c.w.delete(key, 0)
	}
	return c.skip(size + 2)
}

// count is incr and decr.
func (c *conn) count(t [][]byte, decr bool) error {
	if !c.has(t, 3, 4) {
		return nil
	}
	c.quiet(t)
	key, ok := c.keyOf(t[1])
	if !ok {
		return nil
	}
	d := delta{decr: decr}
	if d.by, ok = parseUint64(t[2]); !ok {
		c.say("CLIENT_ERROR invalid numeric delta argument")
		return nil
	}
	if err := c.add(key, &d); err != nil {
		c.failed(err)
		return nil
	}
	switch d.status {
	case stored:
		if !c.noreply {
			c.out = append(strconv.AppendUint(c.out, d.value, 10), '\r', '\n')
		}
	case notNumber:
		c.say(notNumeric)
	default:
		c.say("NOT_FOUND")
	}
	return nil
}

const notNumeric = "CLIENT_ERROR cannot increment or decrement non-numeric value"

// add does a delta.
func (c *conn) add(key []byte, d *delta) error {
	err := c.w.count(key, d)
	c.srv.counted.counted(d, err)
	return err
}

// delete is delete.
func (c *conn) delete(t [][]byte) error {
	if !c.has(t, 2, 4) {
		return nil
	}
	if len(t) > 2 {
		zero, quiet := string(t[2]) == "0", c.quiet(t)
		if !(len(t) == 3 && (zero || quiet) || len(t) == 4 && zero && quiet) {
			c.say(badLine + ".  Usage: delete <key> [noreply]")
			return nil
		}
	}
	key, ok := c.keyOf(t[1])
	if !ok {
		return nil
	}
	s, err := c.remove(key, 0)
	switch {
	case err != nil:
		c.failed(err)
	case s == stored:
		c.say("DELETED")
	default:
		c.say("NOT_FOUND")
	}
	return nil
}

// remove deletes an item that has a unique; 0: any.
func (c *conn) remove(key []byte, cas uint64) (status, error) {
	if p := &c.srv.prefixes; p.on.Load() {
		p.see(key, func(n *prefixCount) { n.deletes++ })
	}
	s, err := c.w.delete(key, cas)
	if err == nil {
		c.srv.counted.deleted(s == stored)
	}
	return s, err
}

// touch is touch.
func (c *conn) touch(t [][]byte) error {
	if !c.has(t, 3, 4) {
		return nil
	}
	c.quiet(t)
	key, ok := c.keyOf(t[1])
	if !ok {
		return nil
	}
	exptime, ok := parseExptime(t[2])
	if !ok {
		c.say("CLIENT_ERROR invalid exptime argument")
		return nil
	}
	found, err := c.w.touch(key, exptime, nil)
	if err == nil {
		c.srv.counted.touched(found)
	}
	switch {
	case err != nil:
		c.failed(err)
	case found:
		c.say("TOUCHED")
	default:
		c.say("NOT_FOUND")
	}
	return nil
}

// flushAll is flush_all.
func (c *conn) flushAll(t [][]byte) error {
	if !c.has(t, 1, 3) {
		return nil
	}
	plain := 1
	if c.quiet(t) {
		plain = 2
	}
	var after int32
	if len(t) != plain {
		var ok bool
		if after, ok = parseInt32(t[1]); !ok {
			c.say("CLIENT_ERROR invalid exptime argument")
			return nil
		}
	}
	if c.srv.o.NoFlush {
		c.say("CLIENT_ERROR flush_all not allowed")
		return nil
	}
	if err := c.flushAfter(int64(after)); err != nil {
		c.failed(err)
		return nil
	}
	c.say("OK")
	return nil
}

// flushAfter flushes all items after some seconds, or at a time.
func (c *conn) flushAfter(after int64) error {
	now, err := c.w.now()
	if err != nil {
		return err
	}
	c.srv.counted.add(cmdFlush, 1)
	// What is stored in the second before may not be there any more, as in memcached.
	if after > 0 && expiry(after, now)-1 > now {
		return c.srv.flushes.Schedule(context.Background(), expiry(after, now)-1)
	}
	return c.srv.flushes.Flush(context.Background())
}

// moveTime is debugtime, of memcached's tests.
func (c *conn) moveTime(t [][]byte) error {
	if len(t) < 2 {
		c.say("ERROR")
		return nil
	}
	if string(t[1]) != "p" && string(t[1]) != "r" { // to pause the clock, and go on: it is real
		by, ok := parseInt64(t[1])
		if !ok {
			c.say("ERROR")
			return nil
		}
		c.srv.moved.Add(by)
		_ = c.srv.flushes.Look(context.Background())
	}
	c.say("OK")
	return nil
}

// quit ends the connection when all is answered.
func (c *conn) quit() error {
	_ = c.flush()
	return errQuit
}
