package oracle

import (
	"fmt"
	"maps"
	"slices"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// Exclusion: of two holders of a lock at one time, neither is exclusive, and one at most holds it for update. No reader holds beside that one that has
// asked since it was granted.
type Exclusion struct {
	neutral
	holders map[fabric.Addr][]Event
	late    map[fabric.Addr][]fabric.ClientID // readers that have asked while another held for update
}

// NewExclusion returns the judge.
func NewExclusion() *Exclusion {
	return &Exclusion{neutral: neutral{"exclusion"}, holders: map[fabric.Addr][]Event{}, late: map[fabric.Addr][]fabric.ClientID{}}
}

// excludes reports whether two modes exclude each other.
func excludes(a, b lock.Mode) bool {
	return a == lock.Exclusive || b == lock.Exclusive || a == lock.Update && b == lock.Update
}

func forUpdate(h Event) bool { return h.Mode == lock.Update }

// Event implements Judge.
func (j *Exclusion) Event(e *Event) string {
	list := j.holders[e.Lock]
	i := slices.IndexFunc(list, func(h Event) bool { return h.Client == e.Client })
	switch e.Kind {
	case Requested:
		if e.Mode == lock.Shared && slices.ContainsFunc(list, forUpdate) {
			j.late[e.Lock] = append(j.late[e.Lock], e.Client)
		}
	case Refused:
		j.tookOff(e)
	case Granted:
		return j.granted(e, list)
	case Upgraded:
		if i < 0 {
			return fmt.Sprintf("[%v] without holding", e)
		}
		list[i].Mode = lock.Exclusive
		if len(list) > 1 {
			return fmt.Sprintf("[%v] while [%v]", e, &list[(i+1)%len(list)])
		}
	case Releasing:
		if i < 0 {
			return fmt.Sprintf("[%v] without holding", e)
		}
		j.holders[e.Lock] = slices.Delete(list, i, i+1)
		j.expect(e.Lock)
	case Fenced:
		for l, list := range j.holders {
			j.holders[l] = slices.DeleteFunc(list, func(h Event) bool { return h.Client.CN() == e.Client.CN() })
			j.expect(l)
		}
	case Restarted:
		maps.DeleteFunc(j.holders, func(l fabric.Addr, _ []Event) bool { return l.MN() == e.Lock.MN() })
		maps.DeleteFunc(j.late, func(l fabric.Addr, _ []fabric.ClientID) bool { return l.MN() == e.Lock.MN() })
	}
	return ""
}

// granted judges a grant beside the holders that there are.
func (j *Exclusion) granted(e *Event, list []Event) string {
	late := j.tookOff(e)
	j.holders[e.Lock] = append(list, *e)
	for i := range list {
		switch {
		case excludes(list[i].Mode, e.Mode):
			return fmt.Sprintf("[%v] while [%v]", e, &list[i])
		case late && forUpdate(list[i]):
			return fmt.Sprintf("[%v] while [%v], which it has asked after", e, &list[i])
		}
	}
	return ""
}

// tookOff takes a reader off those that have asked while another held for update, and reports whether it was one.
func (j *Exclusion) tookOff(e *Event) bool {
	list := j.late[e.Lock]
	i := slices.Index(list, e.Client)
	if i < 0 {
		return false
	}
	j.late[e.Lock] = slices.Delete(list, i, i+1)
	return true
}

// expect lets readers in when the holder for update has gone.
func (j *Exclusion) expect(l fabric.Addr) {
	if len(j.late[l]) > 0 && !slices.ContainsFunc(j.holders[l], forUpdate) {
		delete(j.late, l)
	}
}

// Tokens: each exclusive grant of a lock has a greater fencing token than
// all grants before it, and a shared one none smaller than any exclusive one before it. A grant for update has a greater one than those for update or exclusive
// before it: it counts as exclusive once it is upgraded, and what readers beside it have found by then is before it or after it.
type Tokens struct {
	neutral
	locks map[fabric.Addr]tokens
}

// tokens are the greatest of a lock: of exclusive grants, of those for update or exclusive, of all.
type tokens struct{ exclusive, update, any lock.Token }

// NewTokens returns the judge.
func NewTokens() *Tokens { return &Tokens{neutral: neutral{"tokens"}, locks: map[fabric.Addr]tokens{}} }

// Event implements Judge.
func (j *Tokens) Event(e *Event) string {
	if e.Kind != Granted && e.Kind != Upgraded {
		return ""
	}
	was := j.locks[e.Lock]
	now := tokens{was.exclusive, was.update, max(was.any, e.Token)}
	if e.Mode != lock.Shared {
		now.update = max(was.update, e.Token)
	}
	if e.Mode == lock.Exclusive {
		now.exclusive = max(was.exclusive, e.Token)
	}
	j.locks[e.Lock] = now
	switch {
	case e.Kind == Upgraded:
	case e.Mode == lock.Exclusive && e.Token <= was.any:
		return fmt.Sprintf("[%v]: the token is not above %#x", e, uint64(was.any))
	case e.Mode == lock.Update && e.Token <= was.update:
		return fmt.Sprintf("[%v]: the token is not above %#x", e, uint64(was.update))
	case e.Mode == lock.Shared && e.Token < was.exclusive:
		return fmt.Sprintf("[%v]: the token is below that of the writer before, %#x", e, uint64(was.exclusive))
	}
	return ""
}

// Cells: every holder reads what the last exclusive holder wrote, whole.
//
// A release of which the outcome is not known (it failed, or its node died) may have written or
// not, or half. A cell that was never written holds 0.
type Cells struct {
	neutral
	cells map[fabric.Addr]*cell
}

// A cell is the data under one lock. The last of its writes is what a holder must
// find, and unless something has crashed, nothing else.
type cell struct {
	base   uint64  // acknowledged: it, or something newer, is in memory
	writes []write // later ones, not acknowledged yet, in order
	doubt  bool    // memory may have base, any of writes, or a mixture
	seen   []write // what holders that have not released yet found
	count  int     // of writes so far
}

type write struct {
	client fabric.ClientID
	value  uint64
	order  int // of a write: its number; of what a holder found: how many had been written by then
}

// last is the newest value.
func (c *cell) last() uint64 {
	if n := len(c.writes); n > 0 {
		return c.writes[n-1].value
	}
	return c.base
}

// may reports whether memory may hold a value.
func (c *cell) may(value uint64) bool {
	return value == c.base || slices.ContainsFunc(c.writes, func(w write) bool { return w.value == value })
}

// settle makes a value the base, whether it was written or found by a holder that has released without an error: it is in memory,
// and what was written before and is not, never will be. (What a holder found is no more than that before
// its release: a node may have kept the value, and not be able to write it.)
func (c *cell) settle(w write) {
	if !c.may(w.value) {
		return
	}
	c.base = w.value
	c.writes = slices.DeleteFunc(c.writes, func(x write) bool { return x.order <= w.order })
	c.doubt = c.doubt && len(c.writes) > 0
}

// NewCells returns the judge.
func NewCells() *Cells { return &Cells{neutral: neutral{"data"}, cells: map[fabric.Addr]*cell{}} }

func (j *Cells) cell(a fabric.Addr) *cell {
	c := j.cells[a]
	if c == nil {
		c = &cell{}
		j.cells[a] = c
	}
	return c
}

// Event implements Judge.
func (j *Cells) Event(e *Event) string {
	switch e.Kind {
	case Granted:
		return j.read(e)
	case Releasing:
		if e.Writes {
			c := j.cell(e.Lock)
			c.count++
			c.writes = append(c.writes, write{e.Client, e.Value, c.count})
			if e.Err != nil { // it is not acknowledged
				c.doubt, c.writes[len(c.writes)-1].client = true, 0
			}
		}
	case Released:
		j.released(e)
	case Killed, Fenced:
		for _, c := range j.cells {
			of := func(w write) bool { return w.client.CN() == e.Client.CN() }
			c.seen = slices.DeleteFunc(c.seen, of)
			for i := range c.writes {
				if of(c.writes[i]) { // no release acknowledges it: another node may get the number
					c.doubt, c.writes[i].client = true, 0
				}
			}
		}
	case Restarted:
		for l, c := range j.cells {
			if l.MN() == e.Lock.MN() {
				c.doubt = c.doubt || len(c.writes) > 0
				c.seen = nil
			}
		}
	case Lost:
		maps.DeleteFunc(j.cells, func(l fabric.Addr, _ *cell) bool { return l.MN() == e.Lock.MN() })
	}
	return ""
}

// released: what a holder has written, or seen, is in memory when its release returns without
// error. (Others may have written more since.)
func (j *Cells) released(e *Event) {
	c := j.cell(e.Lock)
	mine := func(w write) bool {
		return w.client == e.Client || w.client == 0 && e.Err == nil && e.Writes && w.value == e.Value // it was in doubt
	}
	if e.Err != nil {
		for i := range c.writes {
			if mine(c.writes[i]) { // no later release acknowledges it
				c.doubt, c.writes[i].client = true, 0
			}
		}
	} else if i := slices.IndexFunc(c.writes, mine); i >= 0 {
		c.settle(c.writes[i])
	} else if i := slices.IndexFunc(c.seen, mine); i >= 0 {
		c.settle(c.seen[i])
	}
	c.seen = slices.DeleteFunc(c.seen, mine)
}

func (j *Cells) read(e *Event) string {
	c := j.cell(e.Lock)
	switch {
	case e.Torn && !c.doubt:
		return fmt.Sprintf("[%v]: half written data", e)
	case e.Torn:
		return ""
	case !c.doubt && e.Value != c.last():
		return fmt.Sprintf("[%v]: the last writer wrote %d", e, c.last())
	case c.doubt && !c.may(e.Value):
		return fmt.Sprintf("[%v]: not what anybody wrote since %d", e, c.base)
	}
	c.seen = append(c.seen, write{e.Client, e.Value, c.count})
	return ""
}

// LostGrants: at the end no client waits, for a grant or to be upgraded, except on crashed nodes.
type LostGrants struct {
	neutral
	waiting, upgrading requests
}

// NewLostGrants returns the judge.
func NewLostGrants() *LostGrants { return &LostGrants{neutral: neutral{"lost grant"}} }

// Event implements Judge.
func (j *LostGrants) Event(e *Event) string {
	switch e.Kind {
	case Upgrading:
		j.upgrading = append(j.upgrading, request{Event: *e})
	case Upgraded, Kept, Releasing:
		j.upgrading = slices.DeleteFunc(j.upgrading, func(r request) bool { return r.Client == e.Client && r.Lock == e.Lock })
	case Killed, Fenced:
		j.upgrading.follow(e)
	}
	if _, ended := j.waiting.follow(e); !ended && (e.Kind == Granted || e.Kind == Refused) {
		return fmt.Sprintf("[%v] without a request", e)
	}
	return ""
}

// End implements Judge.
func (j *LostGrants) End() (list []string) {
	for i := range j.waiting {
		list = append(list, fmt.Sprintf("[%v] and waits for ever", &j.waiting[i].Event))
	}
	for i := range j.upgrading {
		list = append(list, fmt.Sprintf("[%v] and waits for ever", &j.upgrading[i].Event))
	}
	return list
}
