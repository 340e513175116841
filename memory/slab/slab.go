package slab

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/memory/reclaim"
)

// ErrCorrupt: the free bits or lines do not hold what they should.
var ErrCorrupt = errors.New("slab: corrupt remote memory")

const (
	unit = 64 // blocks begin at multiples of it, and their sizes are
	// Batch is how many blocks are given back, or taken, at once.
	Batch = 8
	// LineSize is the size of the line that each class has in the memory of the store or tree.
	LineSize = 64

	lineHints = LineSize/8 - 1
	// OffBits is how many bits of an item are its offset in units of 64 bytes. What is above them is the owner's.
	OffBits = 38
	offMask = 1<<OffBits - 1

	windowUnits = 2048 // of a run whose free bits are looked at together
	windowBytes = windowUnits/8 + 8
	scanned     = fabric.MaxChain / 2 // windows in a chain
	scanChains  = 4                   // chains in which Take looks for blocks where none were hinted at
)

// Config says what a Heap is for.
type Config struct {
	Region *memory.Region
	Entry  *memory.Entry
	Part   int // which of the store's or tree's memory nodes it is
	// Lines is where the lines of the classes are, one more than there are classes.
	Lines   fabric.Addr
	Classes int
	// Size returns the bytes of the blocks of a class, a multiple of 64.
	Size func(class uint8) uint64
	// Fixed, if set, reports whether runs of a class must stay what they are.
	Fixed func(class uint8) bool
	// Zero, if set, reports whether blocks of a class must be zero when they are had for the first time.
	Zero func(class uint8) bool
	// Items, if set, is called for blocks that come from the memory node: it may put something above their offsets.
	Items func(w *Worker, class uint8, items []uint64)
	// Free, if set, gives blocks back in place of Give.
	Free func(w *Worker, class uint8, items []uint64) error
	// Bound returns how many free blocks of a class a compute node keeps.
	Bound func(class uint8) int
	// Evicts: a client that finds no free block takes one that is in use, and is not refused.
	Evicts bool
	// Limit, Reserve and End: see memory.Growth.
	Limit, Reserve, End uint64
}

// A Heap is the memory of a store or tree on one memory node, as a compute node has it. Any goroutine may use it.
type Heap struct {
	cfg   Config
	lists []list
	table atomic.Pointer[table]

	noRoom  noRoom                   // in the region
	refused []atomic.Pointer[stamps] // nothing could be collected for a class when the stamps were these
	scans   []fullScan               // of each class
	cursor  atomic.Uint64

	growing   Turn          // to take a run
	collected atomic.Uint64 // where the last lot ended that was collected
	postponed postponed

	// Reclaimed is what crashed nodes had leaked, and this compute node has found.
	Reclaimed struct{ Blocks, Bytes atomic.Uint64 }

	recalled atomic.Uint64 // the second word of the last line when the lists were given back
	asked    atomic.Int64  // when this compute node asked others for that
}

// New returns a Heap that has nothing yet.
func New(cfg Config) *Heap {
	return &Heap{cfg: cfg, lists: make([]list, cfg.Classes), refused: make([]atomic.Pointer[stamps], cfg.Classes), scans: make([]fullScan, cfg.Classes)}
}

// A Worker is what one client works with. One goroutine uses it at a time.
type Worker struct {
	Port   fabric.Port
	Do     func(ops []fabric.Op) error
	Member *reclaim.Member // it must know of every block that passes through the Worker's hands

	ops  [fabric.MaxChain]fabric.Op
	bits []byte // of windows
	line []byte
	last []byte // the line behind the last class

	// Runs is how many runs the Worker has taken.
	Runs uint64

	batch     [Batch]uint64 // blocks that leave a list
	collected bool          // it has just made room
	before    uint64        // bytes of the region that were free before
	kept      bool          // some of the room is in what is kept for others
}

// Open gets the Worker buffers, and Close frees them.
func (w *Worker) Open(port fabric.Port, m *reclaim.Member, do func(ops []fabric.Op) error) {
	w.Port, w.Member, w.Do = port, m, do
	w.bits, w.line, w.last = port.Alloc(scanned*windowBytes), port.Alloc(LineSize), port.Alloc(LineSize)
}

// Path returns the Worker's Port, of which the chains are executed by Do: in the present epoch of the memory node.
func (w *Worker) Path() fabric.Port { return pathPort{w.Port, w} }

type pathPort struct {
	fabric.Port
	w *Worker
}

func (p pathPort) Do(ops []fabric.Op) error { return p.w.Do(ops) }

// Under implements fabric.Under.
func (p pathPort) Under() fabric.Port { return p.Port }

// Close frees the buffers.
func (w *Worker) Close() {
	if w.bits != nil {
		w.Port.Free(w.bits)
		w.Port.Free(w.line)
		w.Port.Free(w.last)
		w.bits, w.line, w.last = nil, nil, nil
	}
}

// givenAt returns how many blocks had become free at the Worker's last Take.
func (h *Heap) givenAt(w *Worker) uint64 { return binary.LittleEndian.Uint64(w.last) }

func (h *Heap) fixed(class uint8) bool { return h.cfg.Fixed != nil && h.cfg.Fixed(class) }

// Off64 returns the offset of an item, in units of 64 bytes.
func Off64(item uint64) uint64 { return item & offMask }

// lineAt returns the address of a class's line. Format: do not change.
//
//	offset  bytes
//	  0       8   about how many blocks are free on the memory node: a guess
//	  8      56   offsets / 64 of some that became free lately: guesses
//
// The line behind the last class has in its first word how many blocks have become free, with all that ever did; its second word grows when a compute node
// wants all compute nodes to give back what they have in their lists; its third was not 0, in releases before, when the store or tree had been dropped.
func (h *Heap) lineAt(class int) fabric.Addr { return h.cfg.Lines.Add(LineSize * uint64(class)) }

func (h *Heap) touch(w *Worker, item uint64) { w.Member.Touch(h.cfg.Part, Off64(item)) }
func (h *Heap) lose(w *Worker, item uint64)  { w.Member.Lose(h.cfg.Part, Off64(item)) }

// A table is what a compute node knows of its store's or tree's runs. It may be old: a client that takes a block of a run looks at the run's word
// afterwards, when the run cannot change any more.
type table struct {
	stamp   uint64
	windows [][]window // of each class
}

// A window is some of a run of which the free bits are looked at together.
type window struct {
	run      memory.Run
	from, to uint64 // in units of 64 bytes
}

func (h *Heap) tableOf(w *Worker, stamp uint64, anew bool) (*table, error) {
	if t := h.table.Load(); t != nil && t.stamp == stamp && !anew {
		return t, nil
	}
	p, err := h.cfg.Region.Pages(w.Path())
	if err != nil {
		return nil, err
	}
	t := &table{stamp: p.Stamp(), windows: make([][]window, h.cfg.Classes)}
	p.Runs(h.cfg.Entry, func(x memory.Run) {
		if x.Tag == 0 || int(x.Tag) > h.cfg.Classes {
			return
		}
		from, to := x.Off/unit, (x.Off+x.Size)/unit
		for ; from < to; from += windowUnits {
			t.windows[x.Tag-1] = append(t.windows[x.Tag-1], window{x, from, min(from+windowUnits, to)})
		}
	})
	h.table.Store(t)
	return t, nil
}

// Get returns a free block of a class: from the list of this compute node, or else by Take.
func (h *Heap) Get(w *Worker, class uint8) (item, stamp uint64, err error) {
	if item, ok := h.Pop(class); ok {
		return item, 0, nil
	}
	return h.Take(w, class)
}

// Take takes free blocks of a class from the memory node: it returns one, and keeps the others in the list. 0: it has found none.
// stamp is that of the region, for Grow.
func (h *Heap) Take(w *Worker, class uint8) (item, stamp uint64, err error) {
	w.ops[0] = fabric.Read(h.lineAt(int(class)), w.line)
	w.ops[1] = fabric.Load(h.cfg.Region.Stamp())
	w.ops[2] = fabric.Read(h.lineAt(h.cfg.Classes), w.last)
	if err := w.Do(w.ops[:3]); err != nil {
		return 0, 0, fmt.Errorf("slab: line of class %d: %w", class, err)
	}
	stamp = w.ops[1].Old
	if recall := binary.LittleEndian.Uint64(w.last[8:]); recall != h.recalled.Load() {
		if err := h.giveIdle(w, recall, int(class)); err != nil {
			return 0, 0, err
		}
	}
	// The line may be too low as well: Grow looks at the bits before it refuses.
	if int64(binary.LittleEndian.Uint64(w.line)) <= 0 {
		return 0, stamp, nil
	}
	item, err = h.search(w, class, stamp, scanChains)
	return item, stamp, err
}

// search looks for free blocks of a class: first where the line that has been read hints at, then in so many chains elsewhere.
func (h *Heap) search(w *Worker, class uint8, stamp uint64, chains int) (uint64, error) {
	t, err := h.tableOf(w, stamp, false)
	if err != nil {
		return 0, err
	}
	list := t.windows[class]
	var hinted [lineHints]window
	n := 0
	for i := range lineHints {
		if off := binary.LittleEndian.Uint64(w.line[8*(i+1):]); off != 0 {
			if x, ok := find(list, off); ok {
				hinted[n] = x
				n++
			}
		}
	}
	if item, err := h.takeFrom(w, class, hinted[:n]); item != 0 || err != nil {
		return item, err
	}
	if n == 0 { // runs may have got their class since the table was read
		if t, err = h.tableOf(w, stamp, true); err != nil {
			return 0, err
		}
		list = t.windows[class]
	}
	for ; chains > 0 && len(list) > 0; chains-- {
		k := min(scanned, len(list))
		at := int(h.cursor.Add(uint64(k)) % uint64(len(list)))
		var some [scanned]window
		for i := range k {
			some[i] = list[(at+i)%len(list)]
		}
		if item, err := h.takeFrom(w, class, some[:k]); item != 0 || err != nil {
			return item, err
		}
		if (chains-1)*scanned >= len(list)+scanned && chains*scanned > 2*len(list) {
			chains = (len(list)+scanned-1)/scanned + 1
		}
	}
	return 0, nil
}

// find returns the window that has an offset.
func find(list []window, off64 uint64) (window, bool) {
	i, _ := slices.BinarySearchFunc(list, off64, func(x window, off64 uint64) int { return cmp.Compare(x.to, off64+1) })
	if i < len(list) && list[i].from <= off64 {
		return list[i], true
	}
	return window{}, false
}

// words returns the address of the first word of the free bits of a range, in how many words it is, and the first and last words' masks.
func (h *Heap) words(from, to uint64) (a fabric.Addr, n int, first, last uint64) {
	a, _ = h.cfg.Region.FreeBits(from)
	n = int((to+63)/64 - from/64)
	first, last = ^uint64(0)<<(from%64), ^uint64(0)
	if to%64 != 0 {
		last = 1<<(to%64) - 1
	}
	if n == 1 {
		first &= last
		last = first
	}
	return a, n, first, last
}

// masked returns the i-th word of a range's free bits, without those beside it.
func masked(b []byte, i, n int, first, last uint64) uint64 {
	v := binary.LittleEndian.Uint64(b[8*i:])
	if i == 0 {
		v &= first
	}
	if i == n-1 {
		v &= last
	}
	return v
}

// takeFrom looks at windows of a class, and takes blocks of the first that has some.
func (h *Heap) takeFrom(w *Worker, class uint8, list []window) (uint64, error) {
	if len(list) == 0 {
		return 0, nil
	}
	if err := h.readWindows(w, list); err != nil {
		return 0, err
	}
	var same [scanned]bool
	for i := range list {
		same[i] = list[i].run.Is(w.ops[2*i+1].Old)
	}
	for i := range list {
		if !same[i] {
			continue // it has become another's, or of another class
		}
		if item, err := h.takeWindow(w, class, &list[i], w.bits[i*windowBytes:]); item != 0 || err != nil {
			return item, err
		}
	}
	return 0, nil
}

// readWindows reads the free bits of windows, and the words of their runs.
func (h *Heap) readWindows(w *Worker, list []window) error {
	for i := range list {
		a, n, _, _ := h.words(list[i].from, list[i].to)
		w.ops[2*i] = fabric.Read(a, w.bits[i*windowBytes:][:8*n])
		w.ops[2*i+1] = fabric.Load(h.cfg.Region.Head(&list[i].run))
	}
	if err := w.Do(w.ops[:2*len(list)]); err != nil {
		return fmt.Errorf("slab: free bits: %w", err)
	}
	return nil
}

// takeWindow takes up to a batch of blocks of a window, of which b are the free bits.
func (h *Heap) takeWindow(w *Worker, class uint8, x *window, b []byte) (uint64, error) {
	a, n, first, last := h.words(x.from, x.to)
	want := min(Batch, max(1, h.cfg.Bound(class)/2))
	var got [Batch]uint64
	k, ops := 0, 0
	for i := 0; i < n && k < want; i++ {
		v := masked(b, i, n, first, last)
		var take uint64
		for ; v != 0 && k < want; k++ {
			bit := v & -v
			take, v = take|bit, v&^bit
			got[k] = (x.from/64+uint64(i))*64 + uint64(bits.TrailingZeros64(bit))
		}
		if take != 0 {
			old := binary.LittleEndian.Uint64(b[8*i:])
			w.ops[ops] = fabric.CAS(a.Add(8*uint64(i)), old, old&^take)
			ops++
		}
	}
	if k == 0 {
		return 0, nil
	}
	// As long as one of its blocks is in hand, a run stays what it is.
	w.ops[ops] = fabric.Load(h.cfg.Region.Head(&x.run))
	w.ops[ops+1] = fabric.FAA(h.lineAt(int(class)), -uint64(k))
	if err := w.Do(w.ops[:ops+2]); err != nil {
		if fabric.Executed(err, ops+2) > 0 || !fabric.Refused(err) {
			for _, off := range got[:k] {
				h.lose(w, off)
			}
		}
		return 0, fmt.Errorf("slab: free bits at %v: %w", a, err)
	}
	m := 0
	for _, off := range got[:k] {
		for i := range ops {
			if word, _ := h.cfg.Region.FreeBits(off); w.ops[i].Addr == word && w.ops[i].Swapped() {
				h.touch(w, off)
				got[m] = off
				m++
			}
		}
	}
	same := x.run.Is(w.ops[ops].Old)
	if m < k || !same {
		if err := h.undo(w, class, got[:m], k-m, same); err != nil && same {
			_, kerr := h.keep(w, class, &x.run, got[:m], 0)
			return 0, errors.Join(err, kerr)
		} else if err != nil || !same {
			return 0, err
		}
	}
	return h.keep(w, class, &x.run, got[:m], min(m, 1))
}

// undo corrects the count of a class of which fewer blocks were taken; if the run was not what it should have been, it puts those back.
func (h *Heap) undo(w *Worker, class uint8, got []uint64, fewer int, same bool) error {
	k := 0
	if !same {
		fewer += len(got)
		k = h.setBits(w, got)
	}
	w.ops[k] = fabric.FAA(h.lineAt(int(class)), uint64(fewer))
	return h.posted(w, class, got, k, k+1, !same)
}

// keep puts the blocks that were taken into the list, but for the first n, one or none, which it returns.
func (h *Heap) keep(w *Worker, class uint8, run *memory.Run, got []uint64, n int) (uint64, error) {
	if len(got) == 0 {
		return 0, nil
	}
	for _, off := range got {
		if !inRun(run, h.cfg.Size(class), off) {
			return 0, fmt.Errorf("%w: %#x is free, and is no block of class %d", ErrCorrupt, off*unit, class)
		}
	}
	if h.cfg.Items != nil {
		h.cfg.Items(w, class, got)
	}
	h.Keep(w, class, got[n:])
	if n == 0 {
		return 0, nil
	}
	return got[0], nil
}

// setBits puts operations that set the free bits of blocks into w.ops, and returns how many: one for each word.
func (h *Heap) setBits(w *Worker, items []uint64) int {
	k := 0
next:
	for _, item := range items {
		a, bit := h.cfg.Region.FreeBits(Off64(item))
		for i := range k {
			if w.ops[i].Addr == a {
				w.ops[i].Arg |= 1 << bit
				continue next
			}
		}
		w.ops[k] = fabric.FAA(a, 1<<bit) // the bit is 0 as long as a client has the block
		k++
	}
	return k
}

// posted executes n operations, of which the first k are of setBits. What certainly was not given back stays in the list; what may have been,
// no client gets as long as this compute node lives.
func (h *Heap) posted(w *Worker, class uint8, items []uint64, k, n int, keep bool) error {
	err := w.Do(w.ops[:n])
	if err == nil {
		return nil
	}
	done, unknown := fabric.Executed(err, n), !fabric.Refused(err)
	for _, item := range items {
		a, _ := h.cfg.Region.FreeBits(Off64(item))
		given := false
		for i := range min(done, k) {
			given = given || w.ops[i].Addr == a
		}
		switch {
		case given || k == 0:
		case unknown || keep: // it is not of this class
			h.lose(w, item)
		default:
			h.Keep(w, class, []uint64{item})
		}
	}
	return fmt.Errorf("slab: free bits: %w", err)
}

// Give gives up to a batch of blocks back to the memory node. If it fails, they stay this compute node's.
func (h *Heap) Give(w *Worker, class uint8, items []uint64) error {
	if len(items) == 0 {
		return nil
	}
	for _, item := range items {
		h.touch(w, item)
	}
	k := h.setBits(w, items)
	line := h.lineAt(int(class))
	w.ops[k] = fabric.FAA(line, uint64(len(items)))
	w.ops[k+1] = fabric.Store(line.Add(8*(1+w.Port.Rand()%lineHints)), Off64(items[0]))
	w.ops[k+2] = fabric.FAA(h.lineAt(h.cfg.Classes), uint64(len(items)))
	return h.posted(w, class, items, k, k+3, false)
}

// RunSize returns the bytes of the runs of blocks of a size: whole pages of which little is left over.
func (h *Heap) RunSize(class uint8) uint64 {
	size, page := h.cfg.Size(class), h.cfg.Region.PageSize()
	first := (size + page - 1) / page
	best := first
	for k := first; k < first+8; k++ {
		rest := k * page % size
		if rest*8 <= k*page {
			return k * page
		}
		if rest*best < best*page%size*k {
			best = k
		}
	}
	return best * page
}

// Grow takes a run for blocks of a class, and returns the first; the others come into the list. stamp is of the last Take. While another
// client of this compute node takes a run, it waits: a block of that will do as well. All changes of owners go through one word, so of those that want
// pages at once one gets them, and all others try again: the clients of a compute node, which share what one of them takes, go there one by one.
func (h *Heap) Grow(w *Worker, class uint8, stamp uint64) (item uint64, err error) {
	waited := false
	listed := func() bool { item, _ = h.Pop(class); return item != 0 }
	mine, err := h.growing.Take(w.Port, growPatience, func() bool {
		found := waited && listed() // before it waits, Take has just found none
		waited = true
		return found || h.full(class, stamp)
	})
	switch {
	case err != nil:
		err = fmt.Errorf("slab: %w", err)
	case item == 0 && !(mine && waited && listed()):
		item, err = h.newRun(w, class, stamp)
	}
	if mine {
		h.growing.End()
	}
	w.collected = false
	if errors.Is(err, memory.ErrNoSpace) {
		if item, lerr := h.scanAll(w, class, stamp); item != 0 || lerr != nil {
			return item, lerr
		}
	}
	return item, err
}

// growPatience is for others of the compute node that take runs: then a client takes one beside them.
var growPatience = Patience{All: 100 * fabric.Millisecond, First: 2 * fabric.Microsecond, Last: 32 * fabric.Microsecond}

// newRun takes a run, and divides it.
func (h *Heap) newRun(w *Worker, class uint8, stamp uint64) (uint64, error) {
	x, err := h.resume(w, h.RunSize(class))
	if err == nil && x.Size == 0 {
		x, err = h.grow(w, class, stamp)
	}
	if err != nil {
		return 0, fmt.Errorf("slab: %w", err)
	}
	return h.split(w, class, x)
}

// A noRoom is what a region had no room for at the last attempt: so many bytes when its stamp was that, in one word, since the size is of that stamp alone.
type noRoom struct{ last atomic.Pointer[refusal] }

type refusal struct{ stamp, size uint64 }

// note notes that there was no room.
func (n *noRoom) note(stamp, size uint64) {
	for {
		last := n.last.Load()
		if last != nil && last.stamp == stamp && last.size <= size || n.last.CompareAndSwap(last, &refusal{stamp, size}) {
			return
		}
	}
}

// has reports whether there was no room for so many bytes at a stamp.
func (n *noRoom) has(stamp, size uint64) bool {
	last := n.last.Load()
	return last != nil && stamp == last.stamp && size >= last.size
}

// full reports whether the region had no room for a run of a class at the last attempt, and has not changed since.
func (h *Heap) full(class uint8, stamp uint64) bool {
	return stamp != 0 && h.noRoom.has(stamp, h.RunSize(class))
}

// grow takes a run of the region, unless that is full.
func (h *Heap) grow(w *Worker, class uint8, stamp uint64) (memory.Run, error) {
	size, reserve, keep := h.RunSize(class), h.cfg.Reserve, h.cfg.Reserve
	if w.collected {
		// Another entry may have used some of the reserve: what this one gave back it may have again.
		reserve = min(reserve, w.before)
		if w.kept {
			keep = 0
		}
	}
	if h.full(class, stamp) {
		return memory.Run{}, memory.ErrNoSpace
	}
	x, err := h.cfg.Region.Grow(w.Path(), h.cfg.Entry, memory.Growth{Size: size, Limit: h.cfg.Limit, Reserve: reserve, Keep: keep, End: h.cfg.End, High: h.fixed(class)})
	if err != nil && x.Size > 0 {
		h.postpone(w, x, x.Size, err)
		return memory.Run{}, err
	}
	if errors.Is(err, memory.ErrNoSpace) && stamp != 0 {
		h.noRoom.note(stamp, size)
	}
	return x, err
}

// split divides a run that was taken into blocks of a class.
func (h *Heap) split(w *Worker, class uint8, x memory.Run) (_ uint64, err error) {
	r := h.cfg.Region
	block := h.cfg.Size(class)
	first, step, count := x.Off/unit, block/unit, x.Size/block
	h.touch(w, first) // the run, which is one block until it has its class
	zero := x.Used && h.cfg.Zero != nil && h.cfg.Zero(class)
	var zeroed memory.Backups
	if x.Used {
		err = r.ClearBits(w.Path(), &x)
		if err == nil && zero {
			zeroed, err = r.Zero(w.Path(), &x)
		}
	}
	if err == nil {
		// Until it has its class, the run is one block, and the compute node's that has taken it.
		w.ops[0], _ = r.Retag(x, class+1)
		if err = w.Do(w.ops[:1]); err == nil && !w.ops[0].Swapped() {
			return 0, fmt.Errorf("%w: run at %#x is another's", ErrCorrupt, x.Off)
		}
		if err == nil {
			err = h.mirrorTag(w, &x)
		}
		if err == nil && zero {
			if err = r.ZeroNew(w.Path(), &x, zeroed); err != nil {
				err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err) // it has its class
			}
		}
	}
	if err != nil {
		h.postpone(w, x, block, err)
		return 0, fmt.Errorf("slab: run at %#x: %w", x.Off, err)
	}
	h.keepRun(w, class, span{next: first + step, end: first + count*step, step: step})
	w.Runs++
	return first, nil
}

// mirrorTag gives a run its class at the backups: before anything is in its blocks, or a compute node that finds them there would take them for one block.
func (h *Heap) mirrorTag(w *Worker, x *memory.Run) error {
	err := h.cfg.Region.Level(w.Path(), h.cfg.Region.Head(x), 1)
	if err != nil {
		err = fmt.Errorf("%w: %w", fabric.ErrUnknownOutcome, err) // it has its class
	}
	return err
}

// Mark marks what is free on the memory node, and corrects how many blocks the lines say are free: a compute node that crashed may have
// changed the one and not the other.
func (h *Heap) Mark(w *Worker, m *reclaim.Map) error {
	free, before := make([]uint64, h.cfg.Classes), make([]uint64, h.cfg.Classes)
	for class := range before {
		w.ops[0] = fabric.Load(h.lineAt(class))
		if err := w.Do(w.ops[:1]); err != nil {
			return fmt.Errorf("slab: line of class %d: %w", class, err)
		}
		before[class] = w.ops[0].Old
	}
	err := h.EachFree(w, m, func(class uint8, off uint64) {
		m.Mark(h.cfg.Part, off, off+1)
		free[class]++
	})
	if err != nil {
		return err
	}
	for class, n := range free {
		if err := h.correct(w, class, before[class], n); err != nil {
			return err
		}
	}
	return nil
}

// correct gives a line the number of blocks that were counted, if it is still what it was before: others may have given and taken meanwhile.
func (h *Heap) correct(w *Worker, class int, before, n uint64) error {
	if n == before {
		return nil
	}
	w.ops[0] = fabric.CAS(h.lineAt(class), before, n)
	if err := w.Do(w.ops[:1]); err != nil {
		return fmt.Errorf("slab: line of class %d: %w", class, err)
	}
	return nil
}

// EachFree calls f for each block that is free on the memory node, of the runs that Carve has found.
func (h *Heap) EachFree(w *Worker, m *reclaim.Map, f func(class uint8, off64 uint64)) error {
	return m.EachRun(h.cfg.Part, func(class uint8, from, to uint64) error {
		return h.free(w, from, to, func(off uint64) { f(class, off) })
	})
}

// EachLocal calls f for each block in the lists of this compute node.
func (h *Heap) EachLocal(f func(class uint8, off64 uint64)) {
	for class := range uint8(h.cfg.Classes) {
		h.Each(class, func(from, to uint64) {
			for ; from < to; from += h.cfg.Size(class) / unit {
				f(class, from)
			}
		})
	}
}

func (h *Heap) free(w *Worker, from, to uint64, f func(off64 uint64)) error {
	for ; from < to; from += windowUnits {
		end := min(from+windowUnits, to)
		a, n, first, last := h.words(from, end)
		w.ops[0] = fabric.Read(a, w.bits[:8*n])
		if err := w.Do(w.ops[:1]); err != nil {
			return fmt.Errorf("slab: free bits at %v: %w", a, err)
		}
		for i := range n {
			for v := masked(w.bits, i, n, first, last); v != 0; v &= v - 1 {
				f((from/64+uint64(i))*64 + uint64(bits.TrailingZeros64(v)))
			}
		}
	}
	return nil
}

// AddRuns adds the runs of the heap to what a round looks at.
func (h *Heap) AddRuns(w *Worker, m *reclaim.Map) error {
	p, err := h.cfg.Region.Pages(w.Path())
	if err != nil {
		return err
	}
	var cerr error
	p.Runs(h.cfg.Entry, func(x memory.Run) {
		step, class := uint64(0), x.Tag-1
		if x.Tag == 0 {
			step, class = x.Size, reclaim.WholeRun
		} else if int(class) < h.cfg.Classes {
			step = h.cfg.Size(class)
		}
		if step == 0 {
			cerr = fmt.Errorf("%w: run at %#x has tag %d", ErrCorrupt, x.Off, x.Tag)
			return
		}
		m.Add(h.cfg.Part, x.Off/unit, x.Size/unit, step/unit, class)
	})
	return cerr
}

// Release gives blocks back that a round has found leaked.
func (h *Heap) Release(w *Worker, list []reclaim.Block) error {
	for len(list) > 0 {
		p := list[0]
		if p.Class == reclaim.WholeRun {
			if err := h.releaseRun(w, p.Off64); err != nil {
				return err
			}
			list = list[1:]
			continue
		}
		var batch [Batch]uint64
		n := 0
		for n < Batch && n < len(list) && list[n].Class == p.Class {
			batch[n] = list[n].Off64
			n++
		}
		if err := h.giveBack(w, p.Class, batch[:n]); err != nil {
			return err
		}
		h.Reclaimed.Blocks.Add(uint64(n))
		h.Reclaimed.Bytes.Add(uint64(n) * h.cfg.Size(p.Class))
		list = list[n:]
	}
	return nil
}

// giveBack gives blocks back that are in no list: see Config.Free.
func (h *Heap) giveBack(w *Worker, class uint8, items []uint64) error {
	if h.cfg.Free != nil {
		return h.cfg.Free(w, class, items)
	}
	return h.Give(w, class, items)
}

// releaseRun gives a run back that has not got its class from the client that took it.
func (h *Heap) releaseRun(w *Worker, off64 uint64) error {
	p, err := h.cfg.Region.Pages(w.Path())
	if err != nil {
		return err
	}
	p.Runs(h.cfg.Entry, func(x memory.Run) {
		if x.Off == off64*unit && x.Tag == 0 && err == nil {
			err = h.cfg.Region.Shrink(w.Path(), h.cfg.Entry, x)
		}
	})
	return err
}
