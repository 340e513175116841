package memory

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrNoSpace: the region has no room for the request.
var ErrNoSpace = errors.New("memory: no space left on memory node")

// ErrRemoved: the root entry that memory was to be taken for is not there any more, or is another's.
var ErrRemoved = errors.New("memory: root entry has been removed")

// ErrRun: a run of pages was changed meanwhile: divided, moved or given back.
var ErrRun = errors.New("memory: run of pages was changed meanwhile")

// The memory of a region is divided into pages, of a size that follows from that of the region. Pages are given out in runs: a root
// entry owns runs of pages, and a table has a word for each page that says whose it is. So memory can be given back, and taken for
// anything else.
//
// All changes of owners go through one word, the change word. It says which pages get which owner, and whether that has been
// done; a new change begins by a CAS of a word whose change is done. A client that finds a change that is not done does the rest of it, which any number may
// do at once. Hence:
//
//   - A change is done whole or not at all, whatever happens to the compute node that began it.
//   - A copy of the table that was read after the change word is exact if a CAS of that same word succeeds: the word has a number that grows
//     with each change. So limits and reserves hold also among compute nodes that take at once.
//
// The change word, from the most significant bit:
//
//	 63 62        40 39      28 27      14 13       0
//	+--+------------+----------+----------+----------+
//	|! |   number   |  owner   |  pages   |  first   |
//	+--+------------+----------+----------+----------+
//
// ! says that it is not done yet. Owner 0 is none: the pages are free then.
type changeWord uint64

const (
	seqBits   = 23
	pageBits  = 14 // of the number of a page
	ownerBits = 12

	changeBusy     = 1 << 63
	changeSeqShift = 40
	changeOwner    = 28
	changeLen      = 14

	maxPages = 1<<pageBits - 1
	seqMask  = 1<<seqBits - 1

	ownerFree = 0
	// ownerNobody owns memory of no root entry (Region.Alloc): it is never given back.
	ownerNobody = 1<<ownerBits - 1
)

// The fields fill the word.
const _ = uint(changeSeqShift+seqBits+1-64) + uint(64-changeSeqShift-seqBits-1)

func (w changeWord) busy() bool  { return w&changeBusy != 0 }
func (w changeWord) seq() uint64 { return uint64(w>>changeSeqShift) & seqMask }
func (w changeWord) owner() int  { return int(w >> changeOwner & ownerNobody) }
func (w changeWord) pages() int  { return int(w >> changeLen & maxPages) }
func (w changeWord) first() int  { return int(w & maxPages) }

// next returns the word of a change after w. No change has the number 0, which is that of pages that no change has touched.
func (w changeWord) next(owner, first, n int) changeWord {
	seq := (w.seq() + 1) & seqMask
	return changeBusy | changeWord(max(seq, 1))<<changeSeqShift | changeWord(owner)<<changeOwner | changeWord(n)<<changeLen | changeWord(first)
}

func (w changeWord) done() changeWord { return w &^ changeBusy }

// A pageWord says whose a page is. The first page of a run has the length of the run and its tag; the others have 0 there.
//
//	 63         41 40  36 35      24  23 22 21         8 7       0
//	+-------------+------+----------+---+--+------------+---------+
//	|   number    |  0   |  owner   | 0 |u |   pages    |   tag   |
//	+-------------+------+----------+---+--+------------+---------+
//
// number is that of the change that wrote the word, so no word comes back. u: the page has been used before its present owner had it, and is
// not zero. The tag is the owner's: it changes it by CAS; it begins as 0.
type pageWord uint64

const (
	pageUsed  = 1 << 22
	pageLen   = 8
	pageOwner = 24
	pageSeq   = 41
	tagMask   = 1<<pageLen - 1
)

const _ = uint(pageSeq+seqBits-64) + uint(64-pageSeq-seqBits)

func (w pageWord) seq() uint64 { return uint64(w >> pageSeq) }
func (w pageWord) owner() int  { return int(w >> pageOwner & ownerNobody) }
func (w pageWord) pages() int  { return int(w >> pageLen & maxPages) }
func (w pageWord) tag() uint8  { return uint8(w) }
func (w pageWord) used() bool  { return w&pageUsed != 0 }

// after returns the i-th page's word when a change is done, given the one before.
func (w pageWord) after(c changeWord, i int) pageWord {
	x := pageWord(c.seq())<<pageSeq | pageWord(c.owner())<<pageOwner | w&pageUsed
	if w.owner() != ownerFree {
		x |= pageUsed
	}
	if i == 0 && c.owner() != ownerFree {
		x |= pageWord(c.pages()) << pageLen
	}
	return x
}

// plan says where things are in a region of a size. Format: do not change.
type plan struct {
	entries   int    // of the root directory
	pageShift uint   // log2 of a page
	pages     int    // in all, those of the region's own data included
	table     uint64 // offset of the page table: 8 bytes for each page
	free      uint64 // offset of the free bits: one for each 64 bytes of the region
	heap      int    // the first page that can be given out
}

const (
	fewEntries  = 96
	manyEntries = 1024
	manyAbove   = 16 << 20 // bytes of the smallest region with manyEntries
	minPage     = 10       // log2 of the smallest page
	fewPages    = 2048     // as long as pages are below goodPage
	goodPage    = 16
	unit        = 64
)

func planFor(size uint64) plan {
	l := plan{entries: fewEntries, pageShift: minPage}
	if size >= manyAbove {
		l.entries = manyEntries
	}
	for l.pageShift < goodPage && size>>l.pageShift > fewPages || size>>l.pageShift > maxPages {
		l.pageShift++
	}
	l.pages = int(size >> l.pageShift)
	l.table = DirectoryOffset + uint64(l.entries)*entrySize
	l.free = l.table + 8*uint64(l.pages)
	end := l.free + (size+unit*8-1)/(unit*8)
	l.heap = int((end + l.pageSize() - 1) >> l.pageShift)
	return l
}

func (l *plan) pageSize() uint64 { return 1 << l.pageShift }

// PageSize returns the bytes of a page: memory is given out in multiples of it.
func (r *Region) PageSize() uint64 { return r.plan.pageSize() }

// HeapOffset returns where the memory that is given out begins.
func (r *Region) HeapOffset() uint64 { return uint64(r.plan.heap) << r.plan.pageShift }

// FreeBits returns the address of the word with the free bit of the 64 bytes at an offset, and which bit it is. The bits are
// for owners of pages; only the owner of the page looks at them.
func (r *Region) FreeBits(off64 uint64) (fabric.Addr, uint) {
	return r.At(r.plan.free + off64/64*8), uint(off64 % 64)
}

// A Run is some pages side by side that belong together.
type Run struct {
	Off, Size uint64 // bytes
	Tag       uint8
	Used      bool // some of it was used before: it is not zero
	page      int
	word      pageWord // of the first page
}

// Head returns the address of the word that says whose the run is and which tag it has.
func (r *Region) Head(x *Run) fabric.Addr { return r.At(r.plan.table + 8*uint64(x.page)) }

// Is reports whether a word that was read at Head says that the run is what it was.
func (x *Run) Is(word uint64) bool { return pageWord(word) == x.word }

// Retag returns the CAS that gives a run another tag, and the run with it.
func (r *Region) Retag(x Run, tag uint8) (fabric.Op, Run) {
	y := x
	y.Tag, y.word = tag, x.word&^tagMask|pageWord(tag)
	return fabric.CAS(r.Head(&x), uint64(x.word), uint64(y.word)), y
}

// Pages is a copy of the page table.
type Pages struct {
	r      *Region
	change changeWord
	words  []pageWord
}

// Stamp returns the number of the last change of owners: as long as it is the same, so are all owners.
func (p *Pages) Stamp() uint64 { return uint64(p.change) }

// Stamp is the address of the word that reports whether owners have changed: see Pages.Stamp.
func (r *Region) Stamp() fabric.Addr { return r.At(ChangeOffset) }

// Runs calls f for each run of an entry, in the order of their offsets, but for that of its own memory.
func (p *Pages) Runs(e *Entry, f func(x Run)) {
	for i := p.r.plan.heap; i < len(p.words); {
		x, mine := p.run(i)
		if mine == e.slot+1 && x.Off != e.Addr.Offset() {
			f(x)
		}
		i += max(1, int(x.Size>>p.r.plan.pageShift))
	}
}

// run returns the run that begins with a page, and its owner.
func (p *Pages) run(i int) (Run, int) {
	w := p.words[i]
	n := max(w.pages(), 1)
	x := Run{Off: uint64(i) << p.r.plan.pageShift, Size: uint64(n) << p.r.plan.pageShift, Tag: w.tag(), page: i, word: w}
	for j := i; j < i+n && j < len(p.words); j++ {
		x.Used = x.Used || p.words[j].used()
	}
	return x, w.owner()
}

// owned returns how many pages an owner has.
func (p *Pages) owned(owner int) int {
	n := 0
	for _, w := range p.words[p.r.plan.heap:] {
		if w.owner() == owner {
			n++
		}
	}
	return n
}

// Owner returns the owner of the page at an offset: true for the entry's, and whether it is free.
func (p *Pages) Owner(off uint64, e *Entry) (mine, free bool) {
	i := int(off >> p.r.plan.pageShift)
	if i < p.r.plan.heap || i >= len(p.words) {
		return false, false
	}
	o := p.words[i].owner()
	return o == e.slot+1, o == ownerFree
}

// Owned returns how many bytes an entry has, with those of its own memory.
func (p *Pages) Owned(e *Entry) uint64 { return uint64(p.owned(e.slot+1)) << p.r.plan.pageShift }

// Free returns how many bytes are free.
func (p *Pages) Free() uint64 { return uint64(p.owned(ownerFree)) << p.r.plan.pageShift }

// last returns the first of the last n free pages side by side before end; -1: there are none.
func (p *Pages) last(n, end int) int {
	have := 0
	for i := min(len(p.words), end) - 1; i >= p.r.plan.heap; i-- {
		if p.words[i].owner() != ownerFree {
			have = 0
		} else if have++; have == n {
			return i
		}
	}
	return -1
}

// find returns the first of n free pages side by side that begin at a multiple of align, before end; -1: there are none.
func (p *Pages) find(n, align, end int) int {
	have := 0
	for i := p.r.plan.heap; i < min(len(p.words), end); i++ {
		switch {
		case p.words[i].owner() != ownerFree:
			have = 0
			continue
		case have == 0 && i%align != 0:
			continue
		}
		if have++; have == n {
			return i - n + 1
		}
	}
	return -1
}

// Pages reads the page table, after doing the rest of a change that is not done.
func (r *Region) Pages(port fabric.Port) (*Pages, error) {
	c := changer{r, port}
	return c.sound()
}

// reserveShare is which part of a region stores and trees leave to what is made later: so many bytes, and at the end of the region, so that they are side by side (Growth.Keep).
const reserveShare = 64

// Reserve returns how many bytes stores and trees leave for root entries that are made later, so that a full one keeps no client from making another.
func (r *Region) Reserve() uint64 { return r.params.Size / reserveShare }

// A changer changes owners of pages, or helps.
type changer struct {
	r    *Region
	port fabric.Port
}

func (c *changer) do(ops ...fabric.Op) ([]fabric.Op, error) {
	if err := c.port.Do(ops); err != nil {
		return nil, fmt.Errorf("memory: pages of %v: %w", c.r.mn, err)
	}
	return ops, nil
}

func (c *changer) load() (changeWord, error) {
	ops, err := c.do(fabric.Load(c.r.Stamp()))
	if err != nil {
		return 0, err
	}
	return changeWord(ops[0].Old), nil
}

// idle returns the change word when its change is done: it does the rest of what is not.
func (c *changer) idle() (changeWord, error) {
	for {
		w, err := c.load()
		if err != nil {
			return 0, err
		}
		if n := w.pages(); n > 0 && (w.first() < c.r.plan.heap || w.first()+n > c.r.plan.pages) {
			return 0, fmt.Errorf("%w: change word at %v is %#x", ErrCorrupt, c.r.Stamp(), uint64(w))
		}
		if !w.busy() {
			return w, nil
		}
		if err := c.settle(w); err != nil {
			return 0, err
		}
	}
}

// read reads the page table when the change word is w.
func (c *changer) read(w changeWord) (*Pages, error) {
	l := &c.r.plan
	buf := c.port.Alloc(8 * l.pages)
	defer c.port.Free(buf)
	if _, err := c.do(fabric.Read(c.r.At(l.table), buf)); err != nil {
		return nil, err
	}
	p := &Pages{r: c.r, change: w, words: make([]pageWord, l.pages)}
	for i := range p.words {
		p.words[i] = pageWord(binary.LittleEndian.Uint64(buf[8*i:]))
	}
	return p, nil
}

// sound reads the page table, and validates its runs: a length that is wrong would have others' pages given away.
func (c *changer) sound() (*Pages, error) {
	for {
		w, err := c.idle()
		if err != nil {
			return nil, err
		}
		p, err := c.read(w)
		if err != nil {
			return nil, err
		}
		bad := p.unsound()
		if bad < 0 {
			return p, nil
		}
		// A change that began meanwhile may be half done in the copy.
		now, err := c.load()
		if err != nil {
			return nil, err
		}
		if now == w {
			return nil, fmt.Errorf("%w: page table at %v: word of page %d is %#x", ErrCorrupt, c.r.At(c.r.plan.table), bad, uint64(p.words[bad]))
		}
	}
}

// followNs is how old a copy of the table may be that follows a change: the number, which says that there was no other, does not come again within that
// time. A change takes five operations, each after the one before.
const followNs = fabric.Second

// follow makes a copy of the table what it is after a change that is done, if that is the only one since. Clients that take at once would else read the whole
// table again whenever one of them has: that takes longer than a change, and the more of them there are the longer.
func (p *Pages) follow(w changeWord) bool {
	if w.seq() != p.change.next(0, 0, 0).seq() {
		return false
	}
	for i := range w.pages() {
		// Some of the change may be in the copy: it was read meanwhile. Each change gives its pages another owner.
		if x := &p.words[w.first()+i]; x.seq() != w.seq() || x.owner() != w.owner() {
			*x = x.after(w, i)
		}
	}
	p.change = w
	return true
}

// unsound returns the first page that has an owner and does not begin a run of pages of that owner within the table; -1: there is none.
func (p *Pages) unsound() int {
	for i := p.r.plan.heap; i < len(p.words); {
		w := p.words[i]
		if w.owner() == ownerFree {
			i++
			continue
		}
		end := i + w.pages()
		if end == i || end > len(p.words) {
			return i
		}
		for j := i + 1; j < end; j++ {
			if p.words[j].owner() != w.owner() || p.words[j].pages() != 0 {
				return i
			}
		}
		i = end
	}
	return -1
}

// begin begins a change after the word that a copy of the table is of, and does it. It returns false if the table has changed since. An error beside true
// says that the change is begun and not done: it takes effect all the same, for the next client does the rest.
func (c *changer) begin(p *Pages, owner, first, n int) (bool, error) {
	w, epoch := p.change.next(owner, first, n), c.epoch()
	ops, err := c.do(fabric.CAS(c.r.Stamp(), uint64(p.change), uint64(w)))
	if err != nil || !ops[0].Swapped() {
		return false, err
	}
	if err := c.settle(w); err != nil || !c.r.Replicated() {
		return true, err
	}
	// If the primary ended before the backups had the change, there is nothing of it, and another may have made the very same: it is begun anew. If there is, the pages
	// are leaked.
	return epoch != 0 && epoch == c.epoch(), nil
}

// settle does the rest of a change. If it returns nil, and the change is not done, the memory node is replaced meanwhile by one that may lack some of it.
func (c *changer) settle(w changeWord) error {
	l := &c.r.plan
	n, epoch := w.pages(), c.epoch()
	first := c.r.At(l.table + 8*uint64(w.first()))
	buf := c.port.Alloc(8 * max(n, 1))
	defer c.port.Free(buf)
	if err := c.raise(w); err != nil {
		return err
	}
	for missing := n > 0; missing; {
		if _, err := c.do(fabric.Read(first, buf[:8*n])); err != nil {
			return err
		}
		// What has been read is from before the change was done, if it is not done now: only then the words may be replaced.
		now, err := c.load()
		if err != nil || now != w {
			return err
		}
		if missing, err = c.replace(w, first, buf[:8*n]); err != nil {
			return err
		}
	}
	if n > 0 {
		if err := c.r.Level(c.port, first, n); err != nil {
			return err
		}
	}
	if c.r.Replicated() {
		return c.finish(w, epoch)
	}
	_, err := c.do(fabric.CAS(c.r.Stamp(), uint64(w), uint64(w.done())))
	return err
}

// replace replaces the words of a change's pages that are not yet what they are to be, and reports whether there were any. The number alone does not
// tell: it wraps, and a page may have been left alone since the change that had it last. But each change gives its pages another owner.
func (c *changer) replace(w changeWord, first fabric.Addr, words []byte) (missing bool, err error) {
	var ops [fabric.MaxChain]fabric.Op
	k := 0
	for i := range len(words) / 8 {
		old := pageWord(binary.LittleEndian.Uint64(words[8*i:]))
		if old.seq() != w.seq() || old.owner() != w.owner() {
			ops[k] = fabric.CAS(first.Add(8*uint64(i)), uint64(old), uint64(old.after(w, i)))
			k++
		}
		if k == len(ops) || k > 0 && 8*(i+1) == len(words) {
			if _, err := c.do(ops[:k]...); err != nil {
				return false, err
			}
			missing, k = true, 0
		}
	}
	return missing, nil
}

// Alloc takes size bytes, aligned to align (a power of two; 0 is 64), for no root entry. They are zero.
// Nothing of it is ever taken back.
func (r *Region) Alloc(port fabric.Port, size, align uint64) (fabric.Addr, error) {
	x, err := r.take(port, taking{owner: ownerNobody, size: size, align: align})
	return r.At(x.Off), err
}

// Growth says what to take for a root entry.
type Growth struct {
	Size    uint64 // bytes: it is rounded up to pages
	Limit   uint64 // of all runs of the entry, in bytes, without the entry's own memory; 0 is none
	Reserve uint64 // bytes that must be left to others
	Keep    uint64 // so many at the end of the region are left to others, but for the first runs of the entry
	End     uint64 // the run ends at this offset at most; 0 is the end of the region
	High    bool   // it is to lie as far behind as there is room: it will stay long
}

// Grow takes a run for a root entry, with tag 0. Whatever happens to the caller, the run is the entry's or not taken. A run that comes with an error
// is taken: the caller has it when the memory node works again, after the next call of Pages.
func (r *Region) Grow(port fabric.Port, e *Entry, g Growth) (Run, error) {
	if g.Size == 0 || e.Addr.MN() != r.mn {
		return Run{}, fmt.Errorf("memory: bad growth: %d bytes for %q", g.Size, e.Name)
	}
	return r.take(port, taking{owner: e.slot + 1, size: g.Size, limit: g.Limit, reserve: g.Reserve, keep: g.Keep, end: g.End, high: g.High, entry: e})
}

// A taking is a request for pages.
type taking struct {
	owner          int
	size, align    uint64
	limit, reserve uint64
	keep, end      uint64
	high           bool
	entry          *Entry    // whose it is, if it is published; it must still be there
	slot           int       // else, if claim is not 0: whose slot
	claim          claimWord // that must still be there
}

func (r *Region) take(port fabric.Port, t taking) (Run, error) {
	l := &r.plan
	page := l.pageSize()
	if t.align == 0 {
		t.align = unit
	}
	if t.size == 0 || t.align&(t.align-1) != 0 || t.align > r.params.Size {
		return Run{}, fmt.Errorf("memory: bad allocation: %d bytes aligned to %d", t.size, t.align)
	}
	n := r.params.Size
	if t.size <= r.params.Size {
		n = (t.size + page - 1) / page
	}
	c := changer{r, port}
	var p *Pages
	var exact fabric.Time // when the copy was exact
	for {
		now := port.Now()
		w, err := c.idle()
		if err != nil {
			return Run{}, err
		}
		if p == nil || port.Now()-exact > followNs || !p.follow(w) {
			if p, err = c.read(w); err != nil {
				return Run{}, err
			}
		}
		exact = now
		if err := c.allowed(&t); err != nil {
			return Run{}, err
		}
		free, end := p.owned(ownerFree), l.pages
		if t.end != 0 {
			end = int(min(t.end>>l.pageShift, uint64(end)))
		}
		reserve := t.reserve
		early := t.entry != nil && (uint64(p.owned(t.owner))+n)*page <= t.entry.Length+page+reserve/16
		if early {
			reserve = 0 // the first runs of a small store or tree: it is useless without any
		}
		if n*page+reserve > uint64(free)*page {
			return Run{}, fmt.Errorf("%w: %v: want %d bytes, %d are left, %d of them for others", ErrNoSpace, r.mn, t.size, uint64(free)*page, reserve)
		}
		if t.limit != 0 {
			own := (t.entry.Length + page - 1) / page
			if have := uint64(p.owned(t.owner)) - own; (have+n)*page > t.limit {
				return Run{}, fmt.Errorf("%w: %d bytes taken, limit of %d", ErrNoSpace, have*page, t.limit)
			}
		}
		first := p.place(&t, int(n), min(end, l.pages-int(t.keep/page)))
		if first < 0 && early {
			first = p.place(&t, int(n), end)
		}
		if first < 0 {
			return Run{}, fmt.Errorf("%w: %v: want %d bytes side by side, %d are left, %d of them in one piece", ErrNoSpace, r.mn, t.size, uint64(free)*page, uint64(p.longest())*page)
		}
		ok, err := c.begin(p, t.owner, first, int(n))
		if ok {
			return p.taken(first, int(n), t.owner), err
		}
		if err != nil {
			return Run{}, err
		}
	}
}

// place returns the first of n free pages for what is to be taken, before end; -1: there are none.
func (p *Pages) place(t *taking, n, end int) int {
	if t.high {
		return p.last(n, end)
	}
	return p.find(n, max(1, int(t.align>>p.r.plan.pageShift)), end)
}

// longest returns how many free pages there are side by side, at most.
func (p *Pages) longest() (most int) {
	have := 0
	for _, w := range p.words[p.r.plan.heap:] {
		if have++; w.owner() != ownerFree {
			have = 0
		}
		most = max(most, have)
	}
	return most
}

// taken returns the run that a change after p has made.
func (p *Pages) taken(first, n, owner int) Run {
	x := Run{Off: uint64(first) << p.r.plan.pageShift, Size: uint64(n) << p.r.plan.pageShift, page: first}
	x.word = p.words[first].after(p.change.next(owner, first, n), 0)
	for i := first; i < first+n; i++ {
		x.Used = x.Used || p.words[i].used()
	}
	return x
}

// allowed reports whether the entry that pages are taken for is there. It is asked after the change word was read: a client that removes an entry changes
// that word between the removal and the moment when the entry's slot is used again (clear).
func (c *changer) allowed(t *taking) error {
	switch {
	case t.entry != nil:
		e := t.entry
		ops, err := c.do(fabric.Load(c.r.StateOf(e)))
		if err != nil {
			return err
		}
		st := claimWord(ops[0].Old)
		if st.state() != claimPublished || st.gen() != e.gen {
			return fmt.Errorf("%w: %q on %v", ErrRemoved, e.Name, c.r.mn)
		}
	case t.claim != 0:
		ops, err := c.do(fabric.Load(c.r.At(DirectoryOffset + uint64(t.slot)*entrySize)))
		if err != nil {
			return err
		}
		if claimWord(ops[0].Old) != t.claim {
			return fmt.Errorf("%w: taken over while it was made", ErrHalfCreated)
		}
	}
	return nil
}

// Shrink gives a run of an entry back, which is not used any more. ErrRun: it was changed meanwhile. If an error says for certain that the operation that
// failed was not executed (fabric.Refused), the run is the caller's still.
func (r *Region) Shrink(port fabric.Port, e *Entry, x Run) error {
	c := changer{r, port}
	for again := false; ; again = r.Replicated() {
		w, err := c.idle()
		if err != nil {
			return err
		}
		ops, err := c.do(fabric.Load(r.Head(&x)))
		if err != nil {
			return err
		}
		if pageWord(ops[0].Old) != x.word && again {
			return nil // the first attempt has survived a promotion
		}
		if pageWord(ops[0].Old) != x.word {
			return fmt.Errorf("%w: at %#x of %q", ErrRun, x.Off, e.Name)
		}
		ok, err := c.begin(&Pages{r: r, change: w}, ownerFree, x.page, x.word.pages())
		if ok {
			return nil // it has begun: the next client does what is not done of it
		}
		if err != nil {
			return err
		}
	}
}

// clear gives all pages of a slot of the root directory back, and frees the slot, as long as its state is st. Any number may do
// that at once.
func (d *directory) clear(i int, st claimWord) error {
	c := changer{d.r, d.port}
	if err := d.level(i); err != nil { // what follows from the state of the entry is not to be undone by a promotion that undoes the state
		return err
	}
	for {
		p, err := c.sound()
		if err != nil {
			return err
		}
		// The table is from before this: if the state is st, and the change word is as it was when the change begins, then the run is of what st is of.
		ops, err := c.do(fabric.Load(d.addr(i)))
		if err != nil || claimWord(ops[0].Old) != st {
			return err
		}
		owner, first, n := ownerFree, 0, 0
		for j := d.r.plan.heap; j < len(p.words); j++ {
			if p.words[j].owner() == i+1 && p.words[j].pages() > 0 {
				first, n = j, p.words[j].pages()
				break
			}
		}
		// Without a run it is a change of nothing: a client that has looked at the state before, to take pages, cannot.
		ok, err := c.begin(p, owner, first, n)
		if err != nil {
			return err
		}
		if ok && n == 0 {
			_, err := d.cas(i, st, st.free())
			return err
		}
	}
}

// ClearBits makes the free bits of a run 0 that was just taken: what was there before may have left some.
func (r *Region) ClearBits(port fabric.Port, x *Run) error {
	from, to := x.Off/unit, (x.Off+x.Size)/unit
	for from < to {
		a, bit := r.FreeBits(from)
		if bit == 0 && to-from >= 64 {
			n := (to - from) / 64 * 8
			if _, err := r.zero(port, a.Offset(), n); err != nil {
				return err
			}
			from += n * 8
			continue
		}
		next := min((from/64+1)*64, to)
		mask := uint64(1<<(next-from)-1) << bit // others' bits are beside them
		ops := [1]fabric.Op{fabric.Load(a)}
		for {
			if err := port.Do(ops[:]); err != nil {
				return fmt.Errorf("memory: free bits at %v: %w", a, err)
			}
			old := ops[0].Old
			if ops[0].Kind == fabric.OpCAS && ops[0].Swapped() || old&mask == 0 {
				break
			}
			ops[0] = fabric.CAS(a, old, old&^mask)
		}
		from = next
	}
	return nil
}

// zero writes zeros to some of a region's memory, and returns the backups that have them.
func (r *Region) zero(port fabric.Port, off, size uint64) (backups Backups, err error) {
	b := port.Alloc(int(min(size, zeroBytes)))
	defer port.Free(b)
	clear(b)
	if backups, err = r.Backups(port); err != nil {
		return backups, err
	}
	for size > 0 {
		n := min(size, uint64(len(b)))
		if err := backups.mirrorZero(r.At(off), b[:n]); err != nil {
			return backups, err
		}
		ops := [1]fabric.Op{fabric.Write(r.At(off), b[:n])}
		if err := port.Do(ops[:]); err != nil {
			return backups, fmt.Errorf("memory: zeros at %#x of %v: %w", off, r.mn, err)
		}
		off, size = off+n, size-n
	}
	return backups, nil
}

const zeroBytes = 64 << 10

// Zero makes the memory of a run zero. A backup that has been added, and of which this compute node does not know yet, may have something else there that others, which know of it, have written: what is
// copied to it is to be zero where nobody writes to backups (Zeroer). ZeroNew comes when the run says what it is.
func (r *Region) Zero(port fabric.Port, x *Run) (Backups, error) { return r.zero(port, x.Off, x.Size) }

// ZeroNew makes the memory of a run, which is zero and not in use yet, zero at backups that have come since Zero: those that copy what the run is may have looked before it said so.
func (r *Region) ZeroNew(port fabric.Port, x *Run, zeroed Backups) error {
	for {
		now, err := r.Backups(port)
		if err == nil && !zeroed.Covers(&now) {
			if zeroed, err = r.Zero(port, x); err == nil {
				continue
			}
		}
		return err
	}
}

// UsedBefore reports whether any of some memory was something else before its present owner had it: then it was not zero.
func (p *Pages) UsedBefore(off, size uint64) bool {
	for i := off >> p.r.plan.pageShift; i<<p.r.plan.pageShift < off+size && i < uint64(len(p.words)); i++ {
		if p.words[i].used() {
			return true
		}
	}
	return false
}
