package memcached

import (
	"encoding/base64"
	"math"
	"strconv"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

const (
	mostFlags     = 18 // of a meta command, with its name and key
	longestOpaque = 32
)

// A metaError is what a client is told that a meta command makes no sense.
type metaError string

const (
	errOpaque   metaError = "CLIENT_ERROR opaque token too long"
	errToken    metaError = "CLIENT_ERROR bad token in command line format"
	errTwice    metaError = "CLIENT_ERROR duplicate flag"
	errFlag     metaError = "CLIENT_ERROR invalid flag"
	errBadLine  metaError = badLine
	errAnyFlag  metaError = "CLIENT_ERROR invalid or duplicate flag"
	errManyGet  metaError = "CLIENT_ERROR options flags are too long"
	errMany     metaError = "CLIENT_ERROR options flags too long"
	errMode     metaError = "CLIENT_ERROR incorrect length for M token"
	errModeSet  metaError = "CLIENT_ERROR invalid mode for ms M token"
	errModeMath metaError = "CLIENT_ERROR invalid mode for ma M token"
	errKey      metaError = "CLIENT_ERROR error decoding key"
	errInitial  metaError = "CLIENT_ERROR invalid numeric initial value"
	errDelta    metaError = "CLIENT_ERROR invalid numeric delta value"
)

// metaFlags are the flags of a meta command.
type metaFlags struct {
	list   [][]byte // in the order in which they are answered
	key    []byte
	binary bool // the key came in base64

	value, quiet, leave, invalidate, vivify, hasTTL, hasCAS bool

	ttl, vivifyTTL, recache int64
	mode                    byte
	flags                   uint32
	cas, delta, initial     uint64
}

// parseFlags reads the flags of a meta command, and the key. What is wrong comes last, as the first that memcached would report.
func (c *conn) parseFlags(key []byte, list [][]byte) (f metaFlags, wrong metaError) {
	f = metaFlags{list: list, key: c.key[:copy(c.key[:], key)], delta: 1}
	var seen [128]bool
	for _, t := range list {
		if t[0] >= 127 || seen[t[0]] {
			return f, errTwice
		}
		seen[t[0]] = true
		if t[0] == 'b' {
			f.binary = true
			n, err := base64.StdEncoding.Decode(c.key[:], key)
			if err != nil || n == 0 {
				wrong = errKey
			}
			f.key = c.key[:n]
			continue
		}
		switch err := f.set(t[0], t[1:]); {
		case err == errFlag:
			return f, err
		case err != "" && (err != errOpaque || wrong == ""):
			wrong = err
		}
	}
	return f, wrong
}

// set takes a flag over.
func (f *metaFlags) set(flag byte, rest []byte) (wrong metaError) {
	ok := true
	switch flag {
	case 'N':
		f.vivify = true
		f.vivifyTTL, ok = parseExptime(rest)
		wrong = errToken
	case 'T':
		f.hasTTL = true
		f.ttl, ok = parseExptime(rest)
		wrong = errToken
	case 'R':
		f.recache, ok = parseExptime(rest)
		wrong = errToken
	case 'F':
		f.flags, ok = parseUint32(rest)
		wrong = errBadLine
	case 'C':
		f.cas, ok = parseUint64(rest)
		f.hasCAS, wrong = ok, errToken
	case 'M':
		if ok = len(rest) == 1; ok {
			f.mode = rest[0]
		}
		wrong = errMode
	case 'J':
		f.initial, ok = parseUint64(rest)
		wrong = errInitial
	case 'D':
		f.delta, ok = parseUint64(rest)
		wrong = errDelta
	case 'v':
		f.value = true
	case 'u':
		f.leave = true
	case 'q':
		f.quiet = true
	case 'I':
		f.invalidate = true
	case 'O':
		ok, wrong = len(rest) < longestOpaque, errOpaque
	case 'P', 'L', 'k', 's', 't', 'c', 'f', 'l', 'h':
	default:
		return errFlag
	}
	if ok {
		return ""
	}
	return wrong
}

// meta serves meta commands: m and a letter.
func (c *conn) meta(t [][]byte) error {
	command := t[0][1]
	switch command {
	case 'n':
		c.say("MN")
		return c.flush()
	case 'g', 's', 'd', 'a', 'e':
	default:
		c.say("ERROR")
		return nil
	}
	if !c.has(t, 2, math.MaxInt) {
		return nil
	}
	if len(t[1]) > len(c.key) || command == 's' && len(t) == 2 {
		c.say(badLine)
		return nil
	}
	if len(t) >= mostFlags+2 {
		if command == 'g' {
			c.say(string(errManyGet))
		} else {
			c.say(string(errMany))
		}
		return nil
	}
	if command == 's' {
		return c.metaSet(t)
	}
	f, wrong := c.parseFlags(t[1], t[2:])
	if wrong != "" {
		if wrong != errOpaque && (command == 'd' || command == 'a') {
			wrong = errAnyFlag
		}
		c.say(string(wrong))
		return nil
	}
	begin := len(c.out)
	var err error
	switch command {
	case 'g':
		err = c.metaGet(&f)
	case 'd':
		err = c.metaDelete(&f)
	case 'a':
		err = c.metaCount(&f)
	case 'e':
		err = c.metaDebug(&f)
	}
	if err != nil {
		c.out = c.out[:begin]
		c.failed(err)
	}
	return c.room()
}

// metaKey appends the key as the client gave it.
func (c *conn) metaKey(f *metaFlags) {
	if f.binary {
		c.out = append(base64.StdEncoding.AppendEncode(c.out, f.key), " b"...)
	} else {
		c.out = append(c.out, f.key...)
	}
}

// metaEcho appends what every answer to a meta command may have: opaque and key.
func (c *conn) metaEcho(f *metaFlags, t []byte) {
	switch t[0] {
	case 'O':
		c.out = append(append(c.out, ' '), t...)
	case 'k':
		c.out = append(c.out, " k"...)
		c.metaKey(f)
	}
}

// metaShort answers with a code, opaque and key.
func (c *conn) metaShort(code string, f *metaFlags) {
	c.out = append(c.out, code...)
	for _, t := range f.list {
		c.metaEcho(f, t)
	}
	c.out = append(c.out, '\r', '\n')
}

// metaTTL appends how long an item will live.
func (c *conn) metaTTL(expiry, now uint32) {
	if expiry == 0 {
		c.out = append(c.out, " t-1"...)
	} else {
		c.out = strconv.AppendInt(append(c.out, " t"...), int64(expiry)-int64(now), 10)
	}
}

// metaGet is mg. It takes a lock only if it changes the item.
func (c *conn) metaGet(f *metaFlags) error {
	w, begin := c.w, len(c.out)
	found := false
	if !f.hasTTL {
		change := false
		live, err := w.get(f.key, func(it *entry, k *objstore.Client) {
			c.out = c.out[:begin]
			change = c.metaHit(f, it, false, k.Now())
		})
		if err != nil {
			return err
		}
		if found = live && !change; found && !f.leave {
			w.used(f.key)
		}
		if found || !live && !f.vivify {
			return c.metaGot(f, begin, live)
		}
	}
	called, err := w.update(f.key, -1, !f.vivify, func(o *objstore.Object, it *entry, live bool, number uint32) objstore.Change {
		c.out = c.out[:begin]
		if found = live || f.vivify; !found {
			return objstore.Change{Action: objstore.Remove}
		}
		if !live {
			*it = entry{Head: item.Head{Unique: item.Unique(f.key, o.Token), Flush: number}}
			it.expiry = expiry(f.vivifyTTL, o.Now)
		}
		won := c.metaHit(f, it, !live, o.Now)
		if f.hasTTL {
			it.expiry, it.early = expiry(f.ttl, o.Now), 0
		}
		if !won {
			return objstore.Change{Action: objstore.Expire, Expiry: it.expiry, Early: it.early}
		}
		it.State |= tokenSent
		return w.rewritten(it)
	})
	if err != nil {
		return err
	}
	if found = found && called; found && !f.leave {
		w.used(f.key)
	}
	return c.metaGot(f, begin, found)
}

// metaGot counts an mg, and answers a miss.
func (c *conn) metaGot(f *metaFlags, begin int, found bool) error {
	n := &c.srv.counted.counters
	if f.hasTTL {
		n.touched(found)
	} else {
		n.got(found)
	}
	if !found {
		if c.out = c.out[:begin]; !f.quiet {
			c.metaShort("EN", f)
		}
	}
	return nil
}

// rewritten returns the change that stores an item with another head.
func (w *worker) rewritten(it *entry) objstore.Change {
	w.buf = append(w.buf[:0], make([]byte, headSize)...)
	it.Head.Encode(w.buf)
	w.buf = append(w.buf, it.value...)
	return objstore.Change{Action: objstore.Put, Value: w.buf, Flags: it.flags, Expiry: it.expiry, Early: it.early}
}

// metaHit answers mg with an item, and reports whether the client is the one that is to store it anew.
func (c *conn) metaHit(f *metaFlags, it *entry, created bool, now uint32) (won bool) {
	if f.value {
		c.out = strconv.AppendInt(append(c.out, "VA "...), int64(it.size), 10)
	} else {
		c.out = append(c.out, "HD"...)
	}
	second := it.expiry
	for _, t := range f.list {
		switch t[0] {
		case 'T':
			second = expiry(f.ttl, now)
		case 'N':
			won = won || created
		case 'R':
			won = won || it.State&tokenSent == 0 && !created && second != 0 && second < expiry(f.recache, now)
		case 's':
			c.out = strconv.AppendInt(append(c.out, " s"...), int64(it.size), 10)
		case 't':
			c.metaTTL(second, now)
		case 'c':
			c.out = strconv.AppendUint(append(c.out, " c"...), it.Unique, 10)
		case 'f':
			c.out = strconv.AppendUint(append(c.out, " f"...), uint64(it.flags), 10)
		case 'l':
			_, at := c.srv.uses.last(f.key, it)
			c.out = strconv.AppendUint(append(c.out, " l"...), uint64(now-min(at, now)), 10)
		case 'h':
			hit, _ := c.srv.uses.last(f.key, it)
			c.out = append(c.out, " h0"...)
			if hit {
				c.out[len(c.out)-1] = '1'
			}
		default:
			c.metaEcho(f, t)
		}
	}
	if it.State&tokenSent != 0 {
		c.out = append(c.out, " Z"...)
	}
	if it.State&stale != 0 {
		c.out = append(c.out, " X"...)
		won = won || it.State&tokenSent == 0
	}
	if won {
		c.out = append(c.out, " W"...)
	}
	c.out = append(c.out, '\r', '\n')
	if f.value {
		c.out = append(append(c.out, it.value...), '\r', '\n')
	}
	return won
}

// save takes the tokens of a request out of the way of what is read next.
func (c *conn) save(t [][]byte) {
	c.saved = c.saved[:0]
	for i := range t {
		c.marks[i] = len(c.saved)
		c.saved = append(c.saved, t[i]...)
	}
	for i := range t {
		end := len(c.saved)
		if i+1 < len(t) {
			end = c.marks[i+1]
		}
		t[i] = c.saved[c.marks[i]:end]
	}
}

// setModes are the modes of ms.
var setModes = map[byte]mode{0: modeSet, 'S': modeSet, 'E': modeAdd, 'A': modeAppend, 'P': modePrepend, 'R': modeReplace}

// metaSet is ms.
func (c *conn) metaSet(t [][]byte) error {
	size, ok := parseInt32(t[2])
	if !ok || size < 0 || size > math.MaxInt32-2 {
		c.say(badLine)
		return nil
	}
	c.save(t)
	f, wrong := c.parseFlags(t[1], t[3:])
	r := request{key: f.key, flags: f.flags, exptime: f.ttl, cas: f.cas}
	if r.mode, ok = setModes[f.mode]; !ok && wrong == "" {
		wrong = errModeSet
	}
	if f.hasCAS && (r.mode == modeSet || r.mode == modeReplace) {
		r.mode, r.invalidate = modeCAS, f.invalidate
	}
	if wrong != "" {
		c.say(string(wrong))
		return c.skip(int(size) + 2)
	}
	if taken, err := c.take(&r, int(size), true); !taken {
		return err
	}
	if s := &c.w.req; s.status != stored || !f.quiet {
		c.out = append(c.out, metaCodes[s.status]...)
		for _, t := range f.list {
			if t[0] == 'c' {
				c.out = strconv.AppendUint(append(c.out, " c"...), s.stored, 10)
			} else {
				c.metaEcho(&f, t)
			}
		}
		c.out = append(c.out, '\r', '\n')
	}
	return nil
}

var metaCodes = [...]string{stored: "HD", notStored: "NS", exists: "EX", notFound: "NF"}

// metaDelete is md.
func (c *conn) metaDelete(f *metaFlags) (err error) {
	s := notFound
	if !f.invalidate {
		s, err = c.remove(f.key, f.cas)
	} else {
		var called bool
		called, err = c.w.update(f.key, -1, true, func(o *objstore.Object, it *entry, live bool, _ uint32) objstore.Change {
			switch {
			case !live:
				s = notFound
				return objstore.Change{Action: objstore.Remove}
			case f.hasCAS && f.cas != it.Unique:
				s = exists
				return objstore.Change{}
			}
			s = stored
			if f.hasTTL {
				it.expiry, it.early = expiry(f.ttl, o.Now), 0
			}
			it.State, it.Unique = stale, item.Unique(f.key, o.Token)
			return c.w.rewritten(it)
		})
		if !called {
			s = notFound
		}
	}
	if err == nil && (s != stored || !f.quiet) {
		c.metaShort(metaCodes[s], f)
	}
	return err
}

// metaCount is ma.
func (c *conn) metaCount(f *metaFlags) error {
	d := delta{by: f.delta, cas: f.cas, create: f.vivify, initial: f.initial, createFor: f.vivifyTTL}
	switch f.mode {
	case 0, 'I', 'i', '+':
	case 'D', 'd', '-':
		d.decr = true
	default:
		c.say(string(errModeMath))
		return nil
	}
	if f.hasTTL {
		d.exptime = &f.ttl
	}
	if err := c.add(f.key, &d); err != nil {
		return err
	}
	switch {
	case d.status == notNumber:
		c.say(notNumeric)
	case d.status != stored:
		c.metaShort(metaCodes[d.status], f)
	case !f.quiet || d.created:
		c.metaCounted(f, &d)
	}
	return nil
}

// metaCounted answers ma with the item as it is now.
func (c *conn) metaCounted(f *metaFlags, d *delta) {
	var digits [20]byte
	value := strconv.AppendUint(digits[:0], d.value, 10)
	if f.value {
		c.out = strconv.AppendInt(append(c.out, "VA "...), int64(len(value)), 10)
	} else {
		c.out = append(c.out, "HD"...)
	}
	for _, t := range f.list {
		switch t[0] {
		case 'c':
			c.out = strconv.AppendUint(append(c.out, " c"...), d.item.Unique, 10)
		case 't':
			c.metaTTL(d.item.expiry, d.now)
		default:
			c.metaEcho(f, t)
		}
	}
	c.out = append(c.out, '\r', '\n')
	if f.value {
		c.out = append(append(c.out, value...), '\r', '\n')
	}
}

// metaDebug is me: what is known of an item.
func (c *conn) metaDebug(f *metaFlags) error {
	var it entry
	var now uint32
	found, err := c.w.look(f.key, func(x *entry, k *objstore.Client) { it, now = *x, k.Now() })
	if err != nil {
		return err
	}
	c.srv.counted.add(cmdMeta, 1)
	if !found {
		c.say("EN")
		return nil
	}
	hit, at := c.srv.uses.last(f.key, &it)
	c.out = append(c.out, "ME "...)
	if f.binary {
		c.out = base64.StdEncoding.AppendEncode(c.out, f.key)
	} else {
		c.out = append(c.out, f.key...)
	}
	exp := int64(-1)
	if it.expiry != 0 {
		exp = int64(it.expiry) - int64(now)
	}
	c.out = strconv.AppendInt(append(c.out, " exp="...), exp, 10)
	c.out = strconv.AppendUint(append(c.out, " la="...), uint64(now-min(at, now)), 10)
	c.out = strconv.AppendUint(append(c.out, " cas="...), it.Unique, 10)
	c.out = append(append(c.out, " fetch="...), yesNo(hit)...)
	c.out = strconv.AppendInt(append(c.out, " cls=1 size="...), int64(itemOverhead+len(f.key)+it.size), 10)
	c.out = append(c.out, '\r', '\n')
	return nil
}
