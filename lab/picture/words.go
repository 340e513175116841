package picture

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"github.com/declock/declock/lab/locks/drtm"
	"github.com/declock/declock/lab/locks/dslr"
	"github.com/declock/declock/lab/locks/mcs"
	"github.com/declock/declock/lab/locks/ncosed"
	"github.com/declock/declock/lab/locks/rmarw"
	"github.com/declock/declock/lab/locks/shift"
	"github.com/declock/declock/lock"
)

// Words takes the words of memory and of messages apart, for people.
type Words struct {
	// Lock takes apart the words of a lock: what is in b, which begins at an offset of it.
	Lock func(off uint64, b []byte) string
	// Token takes a fencing token apart.
	Token func(lock.Token) string

	places []place // by address
}

// A place is a part of memory that has a name.
type place struct {
	at    fabric.Addr // in the first memory of its memory node
	size  uint64
	name  string
	words func(off uint64, b []byte) string
}

// Name gives a part of memory a name. words takes apart what is there; nil: it is words that mean themselves.
func (w *Words) Name(at fabric.Addr, size uint64, name string, words func(off uint64, b []byte) string) {
	p := place{at.In(0), size, name, words}
	i, there := slices.BinarySearchFunc(w.places, p.at, func(p place, a fabric.Addr) int { return cmp.Compare(p.at, a) })
	if there {
		w.places[i] = p
		return
	}
	w.places = slices.Insert(w.places, i, p)
}

// find returns the place of an address.
func (w *Words) find(a fabric.Addr) (p place, off uint64, ok bool) {
	a = a.In(0)
	for _, p := range slices.Backward(w.places) {
		if p.at <= a {
			off = uint64(a) - uint64(p.at)
			return p, off, off < p.size
		}
	}
	return p, 0, false
}

// NameOf returns the name of the place that begins at an address, or the address.
func (w *Words) NameOf(a fabric.Addr) string {
	if p, _, ok := w.find(a); ok {
		return p.name
	}
	return a.String()
}

// Effect says what an operation has done, or seen.
func (w *Words) Effect(e *sim.Event) string {
	p, off, ok := w.find(e.Op.Addr)
	name, words := e.Op.Addr.In(0).String(), plain
	if ok {
		name = p.name
		if p.words != nil {
			words = func(_ uint64, b []byte) string { return p.words(off, b) }
		} else if off > 0 {
			name += fmt.Sprintf("+%d", off)
		}
	} else if text := guess(e.Op.Buf); text != "" {
		return fmt.Sprintf("object at %#x: %s", e.Op.Addr.Offset(), text)
	}
	before, after := contents(e)
	if before == nil {
		return fmt.Sprintf("%s: %s", name, words(off, after))
	}
	return fmt.Sprintf("%s: %s", name, change(words(off, before), words(off, after)))
}

// plain is the words of memory of which nothing is known.
func plain(_ uint64, b []byte) string {
	switch {
	case len(b) > 16:
		return fmt.Sprintf("%d bytes", len(b))
	case len(b) == 16:
		return fmt.Sprintf("%#x %#x", binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
	case len(b) == 8:
		return fmt.Sprintf("%#x", binary.LittleEndian.Uint64(b))
	}
	return fmt.Sprintf("%x", b)
}

// contents returns what an operation has found, if it has changed it or tried to, and what was there afterwards.
func contents(e *sim.Event) (before, after []byte) {
	op := e.Op
	switch {
	case op.Buf != nil:
		return nil, op.Buf
	case op.Kind == fabric.OpRead:
		return nil, word(op.Old)
	case op.Size() == 16:
		old := op.Wide.Old
		now := [2]uint64{e.New, old[1] + op.Wide.Swap[1]}
		if op.Kind == fabric.OpMaskedCAS16 {
			now[1] = old[1]
			if !failed(e) {
				now[1] = old[1]&^op.Wide.SwapMask[1] | op.Wide.Swap[1]&op.Wide.SwapMask[1]
			}
		}
		return append(word(old[0]), word(old[1])...), append(word(now[0]), word(now[1])...)
	}
	return word(e.Old), word(e.New)
}

func word(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// change says what a text has become: of texts with equal fields only those that differ.
func change(before, after string) string {
	if before == after {
		return before + ", as it was"
	}
	a, b := strings.Fields(before), strings.Fields(after)
	if len(a) != len(b) || len(a) < 2 {
		return before + " → " + after
	}
	var now []string
	for i := range b {
		if a[i] != b[i] {
			now = append(now, b[i])
		}
	}
	return before + " → " + strings.Join(now, " ")
}

// Of returns the words of a lock of package lab/locks by its name; y is DecLock's layout, for the locks that have it.
func Of(name string, y cql.Layout) *Words {
	w := &Words{Token: number}
	for _, m := range baselines {
		if strings.HasPrefix(name, m.prefix) {
			w.Lock = func(off uint64, b []byte) string { return m.words(off, b) }
			return w
		}
	}
	w.Lock = func(off uint64, b []byte) string { return queue(y, off, b) }
	w.Token = token
	return w
}

// Replicated says that the memory of the locks is replicated: tokens begin with a term (docs/replication.md).
func (w *Words) Replicated() { w.Token = termToken }

// number is a token that has no fields.
func number(t lock.Token) string { return fmt.Sprint(uint64(t)) }

// Fields of DecLock's tokens: see cql.Token.
const (
	tokenSeqBits   = 10
	tokenIndexBits = 44
)

// token takes one of DecLock's tokens apart.
func token(t lock.Token) string {
	v := uint64(t)
	text := fmt.Sprintf("(index %d, seq %d)", v>>tokenSeqBits&(1<<tokenIndexBits-1)-1, v&(1<<tokenSeqBits-1))
	if g := v >> (tokenSeqBits + tokenIndexBits); g != 0 {
		text = fmt.Sprintf("(generation %d, %s", g, text[1:])
	}
	return text
}

// Fields of tokens of locks that are replicated: see cql.TermToken.
const (
	termSeqBits   = 8
	termIndexBits = 40
)

// termToken takes the token of a lock apart that is replicated.
func termToken(t lock.Token) string {
	v := uint64(t)
	return fmt.Sprintf("(term %d, index %d, seq %d)", v>>(termSeqBits+termIndexBits), v>>termSeqBits&(1<<termIndexBits-1)-1, v&(1<<termSeqBits-1))
}

// queue takes DecLock's header and queue apart.
func queue(y cql.Layout, off uint64, b []byte) string {
	var parts []string
	alone := len(b) == 8
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		v := binary.LittleEndian.Uint64(b)
		switch {
		case off == 0:
			parts = append(parts, y.FormatHeader(cql.Header(v)))
		case v != 0:
			e := cql.Entry(v)
			parts = append(parts, fmt.Sprintf("entry[%d]={%v,%v,v%d,t%d}", off/8-1, e.Mode(), e.Client(), e.Version(), e.Stamp()))
		case alone:
			parts = append(parts, fmt.Sprintf("entry[%d]=0", off/8-1))
		}
	}
	if len(parts) == 0 {
		return "no entries"
	}
	return strings.Join(parts, " ")
}

// baselines are the words of the baseline locks. A second word is that of tokens, but in ShiftLock.
var baselines = []struct {
	prefix string
	words  func(off uint64, b []byte) string
}{
	{"cas", withToken(casWord)},
	{"sherman", withToken(casWord)},
	{"dslr", withToken(func(v uint64) string {
		nX, nS, maxX, maxS := dslr.Counters(v)
		return fmt.Sprintf("nX=%d nS=%d maxX=%d maxS=%d", nX, nS, maxX, maxS)
	})},
	{"drtm", withToken(func(v uint64) string {
		switch writer, end := drtm.Decode(v); {
		case writer != 0:
			return fmt.Sprintf("writer of %v", writer)
		case end != 0:
			return fmt.Sprintf("leased until %d us", end/fabric.Microsecond)
		}
		return "free"
	})},
	{"mcs", withToken(func(v uint64) string {
		if v == 0 {
			return "tail=none"
		}
		return fmt.Sprintf("tail=%v", mcs.Tail(v))
	})},
	{"qplock", qpLockWords},
	{"ncosed", withToken(func(v uint64) string {
		if tail, readers := ncosed.Decode(v); tail != 0 {
			return fmt.Sprintf("tail=%v readers=%d", tail, readers)
		}
		return fmt.Sprintf("tail=none readers=%d", v)
	})},
	{"rmarw", rmarwWords},
	{"shift", shiftWords},
}

// qpLockWords takes the words of an asymmetric lock apart.
func qpLockWords(off uint64, b []byte) string {
	var parts []string
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		name, v := []string{"remote", "local", "victim", "token"}[off/8%4], binary.LittleEndian.Uint64(b)
		if off < 16 && v != 0 {
			parts = append(parts, fmt.Sprintf("%s=%v", name, fabric.ClientID(v)))
		} else {
			parts = append(parts, fmt.Sprintf("%s=%d", name, v))
		}
	}
	return strings.Join(parts, " ")
}

// rmarwWords takes the words of an RMA-RW lock apart.
func rmarwWords(off uint64, b []byte) string {
	var parts []string
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		v := binary.LittleEndian.Uint64(b)
		tail, write, arrive, depart := rmarw.Decode(v, v)
		switch {
		case off == 8:
			parts = append(parts, fmt.Sprintf("write=%t arrive=%d depart=%d", write, arrive, depart))
		case off != 0:
			parts = append(parts, fmt.Sprintf("token=%d", v))
		case tail == 0:
			parts = append(parts, "tail=none")
		default:
			parts = append(parts, fmt.Sprintf("tail=%v", tail))
		}
	}
	return strings.Join(parts, " ")
}

// shiftWords takes ShiftLock's two words apart.
func shiftWords(off uint64, b []byte) string {
	var parts []string
	for ; len(b) >= 8; off, b = off+8, b[8:] {
		v := binary.LittleEndian.Uint64(b)
		if off != 0 {
			parts = append(parts, fmt.Sprintf("RelCnt=%d", v))
			continue
		}
		epoch, readers, tail, _ := shift.Decode(v, 0)
		last := "none"
		if tail != 0 {
			last = tail.String()
		}
		parts = append(parts, fmt.Sprintf("epoch=%t RdrCnt=%d TailPtr=%s", epoch, readers, last))
	}
	return strings.Join(parts, " ")
}

func casWord(v uint64) string {
	writer, readers := cas.Owner(v)
	if writer == 0 {
		return fmt.Sprintf("writer=none readers=%d", readers)
	}
	return fmt.Sprintf("writer=%v readers=%d", writer, readers)
}

// withToken takes apart a lock of one word, and one for tokens.
func withToken(first func(uint64) string) func(off uint64, b []byte) string {
	return func(off uint64, b []byte) string {
		var parts []string
		for ; len(b) >= 8; off, b = off+8, b[8:] {
			switch v := binary.LittleEndian.Uint64(b); off {
			case 0:
				parts = append(parts, first(v))
			case 8:
				parts = append(parts, fmt.Sprintf("token=%d", v))
			default:
				parts = append(parts, fmt.Sprintf("%#x", v))
			}
		}
		return strings.Join(parts, " ")
	}
}

// The first kinds of messages of baseline locks: see package lab/locks/internal/baseline.
const (
	mcsMessages   = fabric.MsgLock + 0x10
	shiftMessages = fabric.MsgLock + 0x20
	dslrMessages  = fabric.MsgLock + 0x30
	rmarwMessages = fabric.MsgLock + 0x40

	ncosedMessages = fabric.MsgLock + 0x50
	serverMessages = fabric.MsgLock + 0x60
	fissMessages   = fabric.MsgLock + 0x70
	qpLockMessages = fabric.MsgLock + 0x90

	netLockMessages = fabric.MsgLock + 0xa0
	fissMore        = fabric.MsgLock + 0xb0
)

// kinds are the names of the kinds of messages, from the first of each range on: docs/protocol.md has those of DecLock.
var kinds = map[fabric.MsgKind][]string{
	qpLockMessages: {"Successor", "Handover", "Abandoned"},
	fabric.MsgView: {"View"},
	fabric.MsgCQL:  {"Grant", "GrantRange", "Reset", "ResetAck", "AskReset", "Abort", "Quiesced", "Report", "Members", "Probe", "Answer"},
	fabric.MsgHier: {"Wake", "Sync", "Unreachable", "Fence"},
	fabric.MsgLock: {"Wake"},
	mcsMessages:    {"Successor", "Handover", "Abandoned"},
	shiftMessages:  {"Successor", "Handover", "ModeChanged", "Abandoned", "Recover"},
	dslrMessages:   {"Abandoned", "ResetCounters"},
	rmarwMessages:  {"Successor", "Handover", "ModeChanged", "Abandoned"},
	ncosedMessages: {"Reader", "Writer", "Granted", "Releases", "Abandoned", "Released", "Await", "Ask"},
	serverMessages: {"Acquire", "Cancel", "Release", "Granted", "Refused"},
	fissMessages: {"Acquire", "Release", "Free", "Transfer", "Bounce", "Granted", "Busy", "Outside", "Again", "Ask", "Leave", "Freed", "Refused", "Move",
		"Waiters", "Moved", "Grant", "Queued", "Held", "Released", "Bar",
		"Begin", "Restore", "Open", "Round", "Done", "Taken", "Pause", "Report", "Rebuild", "Rebuilt", "Resume"},
	fissMore:        {"Ack", "Wake", "Look"},
	netLockMessages: {"Acquire", "Release", "Push", "Next", "Last", "Granted", "Busy", "Outside", "Released", "Keep", "Refill", "Wake"},
}

// name returns the name of a kind of messages.
func (w *Words) name(k fabric.MsgKind) string {
	if term := k >> termShift; term > 0 {
		return fmt.Sprintf("%s, term %d", w.name(k&(1<<termShift-1)), term)
	}
	for first, names := range kinds {
		if k >= first && k < first+fabric.MsgKind(len(names)) {
			return names[k-first]
		}
	}
	return fmt.Sprintf("message %#x", uint32(k))
}

// termShift is where the term of a lock begins in the kind of a message about it.
const termShift = 16

// Message takes a message apart.
func (w *Words) Message(m *fabric.Message) string {
	if term := cql.MessageTerm(m); term > 0 {
		plain := *m
		plain.Kind = cql.MessageKind(m)
		return fmt.Sprintf("%s in term %d", w.Message(&plain), term)
	}
	b := &m.Body
	at := w.NameOf(fabric.Addr(b[0]))
	switch name := w.name(m.Kind); name {
	case "Grant":
		return grant(at, b)
	case "Report":
		return fmt.Sprintf("Report{%s index %d, of place %d}", at, b[1], b[2])
	case "Members":
		return fmt.Sprintf("Members{%s index %d: %s}", at, b[1], members(b[2:], 1+inGrant, perWord*len(b[2:])))
	case "Probe", "Answer":
		return fmt.Sprintf("%s{%s index %d}", name, at, b[1])
	case "GrantRange":
		return fmt.Sprintf("GrantRange{%s readers with index %d to %d}", at, b[1], int64(b[2])-1)
	case "Reset":
		return fmt.Sprintf("Reset{%s header %#x, indices below %d%s}", at, b[1], b[2], detour(b[6]))
	case "ResetAck":
		return fmt.Sprintf("ResetAck{%s header %#x%s}", at, b[1], detour(b[6]))
	case "AskReset":
		return fmt.Sprintf("AskReset{%s index %d, %v}", at, b[1], cql.Reason(b[2]))
	case "Abort":
		return fmt.Sprintf("Abort{%s index %d}", at, b[1])
	case "View", "Sync":
		return name
	case "Unreachable":
		return fmt.Sprintf("Unreachable{%v}", fabric.MemID(b[0]))
	case "Fence":
		return fmt.Sprintf("Fence{number %d, time %d}", b[0], b[1])
	}
	return w.baseline(m, at)
}

// baseline takes a message of a baseline lock apart.
func (w *Words) baseline(m *fabric.Message, at string) string {
	name, b := w.name(m.Kind), &m.Body
	if m.Kind >= mcsMessages && m.Kind < dslrMessages { // the second word is the client whose ticket it is about
		name = fmt.Sprintf("%s{%s of %v", name, at, fabric.ClientID(b[1]))
		const epoch = 1 << 63
		switch m.Kind {
		case mcsMessages + 1:
			return fmt.Sprintf("%s token=%d}", name, b[2])
		case shiftMessages + 1:
			return fmt.Sprintf("%s era=%d RelCnt=%d, in memory %d, writers in a row %d, epoch=%t}", name, b[2], b[3], b[4], b[5]&^epoch, b[5]&epoch != 0)
		case shiftMessages + 2:
			return fmt.Sprintf("%s era=%d until RelCnt=%d, epoch=%t}", name, b[2], b[3], b[4]&epoch != 0)
		}
		return fmt.Sprintf("%s%s}", name, rest(b[2:]))
	}
	return fmt.Sprintf("%s{%s%s}", name, at, rest(b[1:]))
}

func stamp(before string, s cql.Stamp) string {
	if !s.Known() {
		return ""
	}
	return fmt.Sprint(before, s.Micros())
}

// rest returns the words up to the last that is not 0.
func rest(words []uint64) string {
	for len(words) > 0 && words[len(words)-1] == 0 {
		words = words[:len(words)-1]
	}
	var b strings.Builder
	for _, v := range words {
		fmt.Fprintf(&b, " %#x", v)
	}
	return b.String()
}
