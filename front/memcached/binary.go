package memcached

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/declock/declock/objstore"
)

const (
	binRequest  = 0x80 // the first byte of a request
	binResponse = 0x81
	binHeader   = 24
	binMostRead = 32 // of extras; those of requests that there are have at most 20
)

// An opcode says what a binary request is.
type opcode uint8

const (
	opGet opcode = iota
	opSet
	opAdd
	opReplace
	opDelete
	opIncrement
	opDecrement
	opQuit
	opFlush
	opGetQ
	opNoop
	opVersion
	opGetK
	opGetKQ
	opAppend
	opPrepend
	opStat
	opSetQ
	opAddQ
	opReplaceQ
	opDeleteQ
	opIncrementQ
	opDecrementQ
	opQuitQ
	opFlushQ
	opAppendQ
	opPrependQ
	_
	opTouch
	opGAT
	opGATQ
	_
	opListMechs
	opAuth
	opStep
	opGATK
	opGATKQ
)

// loud are the opcodes of which there are quiet ones, by the quiet ones: those say nothing of what is as it should be.
var loud = map[opcode]opcode{opGetQ: opGet, opGetKQ: opGetK, opSetQ: opSet, opAddQ: opAdd, opReplaceQ: opReplace, opDeleteQ: opDelete, opIncrementQ: opIncrement,
	opDecrementQ: opDecrement, opQuitQ: opQuit, opFlushQ: opFlush, opAppendQ: opAppend, opPrependQ: opPrepend, opGATQ: opGAT, opGATKQ: opGATK}

// A binStatus is how a binary request ended.
type binStatus uint16

const (
	binOK          binStatus = 0
	binNotFound    binStatus = 1
	binExists      binStatus = 2
	binTooLarge    binStatus = 3
	binInvalid     binStatus = 4
	binNotStored   binStatus = 5
	binNotNumber   binStatus = 6
	binAuthFailed  binStatus = 0x20
	binUnknown     binStatus = 0x81
	binOutOfMemory binStatus = 0x82
	binInternal    binStatus = 0x84
)

var binTexts = map[binStatus]string{binNotFound: "Not found", binExists: "Data exists for key.", binTooLarge: "Too large.", binInvalid: "Invalid arguments",
	binNotStored: "Not stored.", binNotNumber: "Non-numeric server-side value for incr or decr", binAuthFailed: "Auth failure.", binUnknown: "Unknown command",
	binOutOfMemory: "Out of memory"}

// A packet is a binary request without its value.
type packet struct {
	given  opcode
	op     opcode // without quiet
	quiet  bool
	extras []byte
	key    []byte
	value  int // bytes that follow
	opaque uint32
	cas    uint64
}

// need has n bytes read, and returns them. They are good until more is read.
func (c *conn) need(n int) ([]byte, error) {
	for c.to-c.from < n {
		if n > len(c.in) {
			bigger := make([]byte, max(n, busyBuffer))
			c.to = copy(bigger, c.in[c.from:c.to])
			c.from, c.in = 0, bigger
		}
		if err := c.fill(c.to == c.from); err != nil {
			return nil, err
		}
	}
	return c.in[c.from:][:n], nil
}

// binary serves a request of the binary protocol.
func (c *conn) binary() error {
	h, err := c.need(binHeader)
	if err != nil {
		return err
	}
	if h[0] != binRequest {
		return errQuit
	}
	c.lastAt.Store(int64(c.srv.clock()))
	p := packet{given: opcode(h[1]), opaque: binary.BigEndian.Uint32(h[12:]), cas: binary.BigEndian.Uint64(h[16:])}
	key, extras, body := int(binary.BigEndian.Uint16(h[2:])), int(h[4]), int(binary.BigEndian.Uint32(h[8:]))
	p.op = p.given
	if op, quiet := loud[p.op]; quiet {
		p.op, p.quiet = op, true
	}
	if key+extras > body {
		c.binSay(&p, binUnknown)
		return c.quit()
	}
	if key > len(c.key) {
		c.binSay(&p, binInvalid)
		return c.quit()
	}
	all, err := c.need(binHeader + extras + key)
	if err != nil {
		return err
	}
	p.extras = all[binHeader:][:extras]
	p.key = c.key[:copy(c.key[:], all[binHeader+extras:])]
	p.value = body - extras - key
	c.from += len(all)
	if !p.sound() {
		c.binSay(&p, binInvalid)
		return c.quit()
	}
	c.noreply = false
	c.state.Store(connWorks)
	err = c.binServe(&p)
	if err == nil {
		err = c.room()
	}
	return err
}

// sound reports whether a request has the parts that it must have.
func (p *packet) sound() bool {
	extras, key := len(p.extras), len(p.key)
	switch p.op {
	case opVersion, opNoop, opQuit, opListMechs:
		return extras == 0 && key == 0 && p.value == 0
	case opFlush:
		return (extras == 0 || extras == 4) && key == 0 && p.value == 0
	case opSet, opAdd, opReplace:
		return extras == 8 && key > 0
	case opGet, opGetK, opDelete:
		return extras == 0 && key > 0 && p.value == 0
	case opIncrement, opDecrement:
		return extras == 20 && key > 0 && p.value == 0
	case opAppend, opPrepend, opAuth, opStep:
		return extras == 0 && key > 0
	case opStat:
		return extras == 0
	case opTouch, opGAT, opGATK:
		return extras == 4 && key > 0 && p.value == 0
	}
	return true
}

func (c *conn) binServe(p *packet) error {
	if !c.admitted && p.op != opVersion {
		c.binSay(p, binAuthFailed)
		return c.quit()
	}
	switch p.op {
	case opGet, opGetK, opTouch, opGAT, opGATK:
		c.binGet(p)
	case opSet, opAdd, opReplace, opAppend, opPrepend:
		return c.binStore(p)
	case opDelete:
		s, err := c.remove(p.key, p.cas)
		c.binDone(p, binStatuses[s], 0, err)
	case opIncrement, opDecrement:
		c.binCount(p)
	case opQuit:
		c.binDone(p, binOK, 0, nil)
		return c.quit()
	case opFlush:
		c.binFlush(p)
	case opNoop:
		c.binDone(p, binOK, 0, nil)
		return c.flush()
	case opVersion:
		c.binAnswer(p, binOK, 0, "", "", Version)
	case opStat:
		c.binStats(p)
		return c.skip(p.value)
	default:
		c.binSay(p, binUnknown)
		return c.skip(p.value)
	}
	return nil
}

var binStatuses = [...]binStatus{stored: binOK, notStored: binNotStored, exists: binExists, notFound: binNotFound}

// binAnswer appends an answer.
func (c *conn) binAnswer(p *packet, s binStatus, cas uint64, extras, key, value string) {
	c.binHead(p, s, cas, len(extras), len(key), len(value))
	c.out = append(append(append(c.out, extras...), key...), value...)
}

// binHead appends the header of an answer.
func (c *conn) binHead(p *packet, s binStatus, cas uint64, extras, key, value int) {
	c.out = append(c.out, binResponse, byte(p.given))
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(key))
	c.out = append(c.out, byte(extras), 0)
	c.out = binary.BigEndian.AppendUint16(c.out, uint16(s))
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(extras+key+value))
	c.out = binary.BigEndian.AppendUint32(c.out, p.opaque)
	c.out = binary.BigEndian.AppendUint64(c.out, cas)
}

// binSay appends an answer that is only a status.
func (c *conn) binSay(p *packet, s binStatus) { c.binAnswer(p, s, 0, "", "", binTexts[s]) }

// binDone answers a request that has no more to tell than how it ended.
func (c *conn) binDone(p *packet, s binStatus, cas uint64, err error) {
	switch {
	case err != nil:
		c.binFailed(p, err)
	case s != binOK:
		c.binSay(p, s)
	case !p.quiet:
		c.binAnswer(p, binOK, cas, "", "", "")
	}
}

// binFailed reports an error of the store.
func (c *conn) binFailed(p *packet, err error) {
	switch {
	case errors.Is(err, objstore.ErrNoSpace):
		c.binSay(p, binOutOfMemory)
	case errors.Is(err, objstore.ErrValueSize):
		c.binSay(p, binTooLarge)
	default:
		c.binAnswer(p, binInternal, 0, "", "", strings.TrimPrefix(failure(err), "SERVER_ERROR "))
	}
}

// binGet is get and touch in all their forms.
func (c *conn) binGet(p *packet) {
	key := p.op == opGetK || p.op == opGATK
	begin := len(c.out)
	answer := func(it *entry) {
		value, name := it.value, p.key
		if p.op == opTouch {
			value = nil
		}
		if !key {
			name = nil
		}
		c.out = c.out[:begin]
		c.binHead(p, binOK, it.Unique, 4, len(name), len(value))
		c.out = binary.BigEndian.AppendUint32(c.out, it.flags)
		c.out = append(append(c.out, name...), value...)
	}
	var found bool
	var err error
	if p.op == opGet || p.op == opGetK {
		if found, err = c.w.get(p.key, func(it *entry, _ *objstore.Client) { answer(it) }); err == nil {
			c.got(p.key, found)
		}
	} else if found, err = c.w.touch(p.key, int64(binary.BigEndian.Uint32(p.extras)), answer); err == nil {
		c.srv.counted.touched(found)
	}
	if !found {
		c.out = c.out[:begin]
	}
	switch {
	case err != nil:
		c.binFailed(p, err)
	case found, p.quiet:
	case key:
		c.binAnswer(p, binNotFound, 0, "", string(p.key), "")
	default:
		c.binSay(p, binNotFound)
	}
}

// binStore is set, add, replace, append and prepend.
func (c *conn) binStore(p *packet) error {
	r := request{key: p.key, cas: p.cas, mode: map[opcode]mode{opSet: modeSet, opAdd: modeAdd, opReplace: modeReplace, opAppend: modeAppend, opPrepend: modePrepend}[p.op]}
	if len(p.extras) == 8 {
		r.flags, r.exptime = binary.BigEndian.Uint32(p.extras), int64(binary.BigEndian.Uint32(p.extras[4:]))
		if r.cas != 0 {
			r.mode = modeCAS
		}
	}
	if !c.srv.fits(r.key, r.flags, p.value) {
		c.binSay(p, binTooLarge)
		c.srv.counted.tooLarge.Add(1)
		if p.op == opSet {
			_, _ = c.w.delete(p.key, 0)
		}
		return c.skip(p.value)
	}
	var err error
	if r.value, err = c.bytes(p.value, 0); err != nil {
		return err
	}
	err = c.do(&r)
	s := binOK
	if err == nil {
		r = c.w.req
		s = binStatuses[r.status]
		switch {
		case s == binNotStored && r.mode == modeAdd:
			s = binExists
		case s == binNotStored && r.mode == modeReplace:
			s = binNotFound
		}
	}
	c.binDone(p, s, r.stored, err)
	return nil
}

// noCreation is the exptime of an incr or decr that makes no item.
const noCreation = 1<<32 - 1

// binCount is incr and decr.
func (c *conn) binCount(p *packet) {
	exptime := binary.BigEndian.Uint32(p.extras[16:])
	d := delta{decr: p.op == opDecrement, by: binary.BigEndian.Uint64(p.extras), initial: binary.BigEndian.Uint64(p.extras[8:]), cas: p.cas,
		create: exptime != noCreation, createFor: int64(exptime)}
	err := c.add(p.key, &d)
	switch {
	case err != nil:
		c.binFailed(p, err)
	case d.status == notNumber:
		c.binSay(p, binNotNumber)
	case d.status != stored:
		c.binSay(p, binStatuses[d.status])
	case !p.quiet:
		c.binHead(p, binOK, d.item.Unique, 0, 0, 8)
		c.out = binary.BigEndian.AppendUint64(c.out, d.value)
	}
}

// binFlush is flush_all.
func (c *conn) binFlush(p *packet) {
	if c.srv.o.NoFlush {
		c.binSay(p, binAuthFailed)
		return
	}
	after := int64(0)
	if len(p.extras) == 4 {
		after = int64(binary.BigEndian.Uint32(p.extras))
	}
	c.binDone(p, binOK, 0, c.flushAfter(after))
}

// binStats is stats: an answer for each line, and one without a name.
func (c *conn) binStats(p *packet) {
	t, _ := c.split([]byte("stats " + string(p.key)))
	begin := len(c.out)
	_ = c.stats(t)
	text := string(c.out[begin:])
	c.out = c.out[:begin]
	switch {
	case text == "ERROR\r\n", strings.HasPrefix(text, "CLIENT_ERROR"):
		c.binSay(p, binNotFound)
		return
	case strings.HasPrefix(text, "SERVER_ERROR"):
		c.binAnswer(p, binInternal, 0, "", "", strings.TrimSpace(text))
		return
	case len(t) == 3 && string(t[2]) == "dump":
		c.binAnswer(p, binOK, 0, "", "detailed", text)
		text = ""
	}
	for line := range strings.SplitSeq(text, "\r\n") {
		if line, ok := strings.CutPrefix(line, "STAT "); ok {
			name, value, _ := strings.Cut(line, " ")
			c.binAnswer(p, binOK, 0, "", name, value)
		}
	}
	c.binAnswer(p, binOK, 0, "", "", "")
}
