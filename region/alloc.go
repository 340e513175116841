package region

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// ErrNoSpace: the region's heap has no room for the request.
var ErrNoSpace = errors.New("region: no space left on memory node")

// ErrRemoved: the root entry that memory was to be taken for is not there any more, or is another's.
var ErrRemoved = errors.New("region: root entry has been removed")

// A piece is taken from the heap in three steps: brk moves by CAS, and names the root entry that the piece is for; the
// piece is put into that entry's list of extents; the two words that say so are settled. Whoever wants a piece and
// finds another's half taken does the rest of it first, which any number may do at once. So a
// compute node that dies between two steps loses nothing, and nobody has to know that it has died.
//
// brk, from the most significant bit:
//
//	 63         56 55       48 47                                  0
//	+-------------+-----------+-------------------------------------+
//	|  taken for  |    tag    |        end of what is taken         |
//	+-------------+-----------+-------------------------------------+
//
// Taken for: 0 is nothing that is under way, n the list of the root entry n-1, forNobody memory that
// its taker puts where it belongs. tag is the list's own, for the extent. settled is where the piece under way begins, or brk's end when that is in its list. An end
// is never there twice, so that each of these words is good for one step.
type brkWord uint64

const (
	settledOffset = 0x140
	tagShift      = 48
	forShift      = 56
	forNobody     = 0xff
	unit          = 64 // pieces begin and end at multiples of it
)

func makeBrk(end uint64, taker, tag uint8) brkWord {
	return brkWord(taker)<<forShift | brkWord(tag)<<tagShift | brkWord(end)
}

func (w brkWord) end() uint64  { return uint64(w & (1<<tagShift - 1)) }
func (w brkWord) tag() uint8   { return uint8(w >> tagShift) }
func (w brkWord) taker() uint8 { return uint8(w >> forShift) }

// An extent begins with a header. Format: do not change.
//
//	offset  bytes
//	  0       8   magic
//	  8       8   offset of the next older extent, 0 is the end
//	 16       8   bytes, with this header
//	 24       8   bytes of this extent and of all that are older
//	 32       8   tag: what its taker wants to know of it
//	 40      24   zero
const (
	ExtentMagic  = 0x44434c4b45585432 // "DCLKEXT2"
	ExtentHeader = 64
	// StoreExtents and TreeExtents are where, in the memory of a root entry of KindStore or KindTree, the offset of its newest
	// extent is. Other kinds have none.
	StoreExtents = 0x080
	TreeExtents  = 0x040

	extNext    = 8
	extSize    = 16
	extTotal   = 24
	extTag     = 32
	extWritten = 40
)

// extentHead returns where the offset of an entry's newest extent is; 0: it has none.
func (e *Entry) extentHead() fabric.Addr {
	switch e.Kind {
	case KindStore:
		return e.Addr.Add(StoreExtents)
	case KindTree:
		return e.Addr.Add(TreeExtents)
	}
	return 0
}

// An Extent is the header of one.
type Extent struct {
	Next, Size, Total uint64
	Tag               uint8
}

// DecodeExtent decodes the header in b, at least ExtentHeader bytes, of the extent at an offset of a region that ends at limit.
func DecodeExtent(b []byte, at, limit uint64) (Extent, error) {
	x := Extent{
		Next: binary.LittleEndian.Uint64(b[extNext:]), Size: binary.LittleEndian.Uint64(b[extSize:]),
		Total: binary.LittleEndian.Uint64(b[extTotal:]), Tag: b[extTag],
	}
	if m := binary.LittleEndian.Uint64(b); m != ExtentMagic || x.Size < ExtentHeader || x.Size > limit-at || x.Total < x.Size {
		return Extent{}, fmt.Errorf("%w: no extent at %#x: magic %#x, %d bytes", ErrCorrupt, at, m, x.Size)
	}
	return x, nil
}

// Alloc takes size bytes, aligned to align (a power of two; 0 is 64), from the
// region's heap. They are zero if the memory was zero when it was formatted.
// Nothing is ever taken back: who allocates reuses. If it fails with
// fabric.ErrUnknownOutcome, or its caller dies before it has put them anywhere, the bytes are lost.
//
// brk moves by CAS and never passes the end of the region, so a request that
// does not fit takes nothing from smaller ones that do.
func (r *Region) Alloc(port fabric.Port, size, align uint64) (fabric.Addr, error) {
	if align == 0 {
		align = unit
	}
	if size == 0 || align&(align-1) != 0 || align > r.params.Size {
		return 0, fmt.Errorf("region: bad allocation: %d bytes aligned to %d", size, align)
	}
	t := r.take(port)
	defer t.free()
	for {
		old, err := t.idle()
		if err != nil {
			return 0, err
		}
		begin := (old.end() + align - 1) &^ (align - 1)
		if size > r.params.Size || begin > r.params.Size-size {
			return 0, fmt.Errorf("%w: %v: want %d bytes, %d are left", ErrNoSpace, r.mn, size, r.params.Size-old.end())
		}
		end := min((begin+size+unit-1)&^(unit-1), r.params.Size)
		// Someone else's CAS succeeded whenever this one fails.
		if ok, err := t.move(old, makeBrk(end, forNobody, 0)); ok || err != nil {
			return r.At(begin), err
		}
	}
}

// Growth says what to take for a list of extents.
type Growth struct {
	Size  uint64 // of the extent with its header, a multiple of 64
	Limit uint64 // of all extents of the list, in bytes; 0 is none
	End   uint64 // the extent ends at this offset at most; 0 is the end of the region
	Tag   uint8  // goes into the extent's header
}

// Grow takes an extent for a root entry of a store or tree, and puts it into the entry's list. What is behind its header is
// zero if the memory was zero when it was formatted. Whatever happens to the caller, the extent is in the list or not taken.
func (r *Region) Grow(port fabric.Port, e *Entry, g Growth) (fabric.Addr, error) {
	if g.Size < ExtentHeader || g.Size%unit != 0 || e.extentHead() == 0 || e.Addr.MN() != r.mn {
		return 0, fmt.Errorf("region: bad extent: %d bytes for %q, %v", g.Size, e.Name, e.Kind)
	}
	if g.End == 0 {
		g.End = r.params.Size
	}
	t := r.take(port)
	defer t.free()
	for {
		old, err := t.idle()
		if err != nil {
			return 0, err
		}
		if err := t.published(e); err != nil {
			return 0, err
		}
		begin := old.end()
		if g.End = min(g.End, r.params.Size); g.Size > g.End || begin > g.End-g.Size {
			return 0, fmt.Errorf("%w: %v: want %d bytes, %d are left", ErrNoSpace, r.mn, g.Size, r.params.Size-begin)
		}
		if g.Limit != 0 {
			_, total, err := t.newest(e)
			if err != nil {
				return 0, err
			}
			if total+g.Size > g.Limit {
				return 0, fmt.Errorf("%w: %d bytes taken, limit of %d", ErrNoSpace, total, g.Limit)
			}
		}
		// If brk stands where it stood, nobody has taken anything since: the limit holds.
		ok, err := t.move(old, makeBrk(begin+g.Size, uint8(e.slot+1), g.Tag))
		if errors.Is(err, ErrCorrupt) {
			if gone := t.published(e); gone != nil {
				err = gone // meanwhile
			}
		}
		if ok || err != nil {
			return r.At(begin), err
		}
	}
}

// Settle does the rest of what a compute node may have left half taken.
func (r *Region) Settle(port fabric.Port) error {
	t := r.take(port)
	defer t.free()
	_, err := t.idle()
	return err
}

// Used returns how many bytes of the region are taken, with everything.
func (r *Region) Used(port fabric.Port) (uint64, error) {
	ops := [1]fabric.Op{fabric.Load(r.At(BrkOffset))}
	if err := port.Do(ops[:]); err != nil {
		return 0, fmt.Errorf("region: %v: %w", r.mn, err)
	}
	return brkWord(ops[0].Old).end(), nil
}

// A taking is a client that takes from the heap, or helps.
type taking struct {
	r    *Region
	port fabric.Port
	buf  []byte
}

func (r *Region) take(port fabric.Port) taking { return taking{r, port, port.Alloc(entrySize)} }

func (t *taking) free() { t.port.Free(t.buf) }

func (t *taking) at(offset uint64) fabric.Addr { return t.r.At(offset) }

func (t *taking) do(ops ...fabric.Op) ([]fabric.Op, error) {
	if err := t.port.Do(ops); err != nil {
		return nil, fmt.Errorf("region: alloc on %v: %w", t.r.mn, err)
	}
	return ops, nil
}

// idle returns brk when nothing is under way: it does the rest of what is.
func (t *taking) idle() (brkWord, error) {
	for {
		// If brk is the same before and after, settled is of it. (In chains of their own: READs of one chain have no order everywhere.)
		var got [3]uint64
		for i, at := range [3]uint64{BrkOffset, settledOffset, BrkOffset} {
			ops, err := t.do(fabric.Load(t.at(at)))
			if err != nil {
				return 0, err
			}
			got[i] = ops[0].Old
		}
		w, settled := brkWord(got[0]), got[1]
		switch end := w.end(); {
		case end < HeapOffset || end > t.r.params.Size || settled > end || settled != 0 && settled < HeapOffset || w.taker() > MaxEntries && w.taker() != forNobody:
			if got[2] == uint64(w) {
				return 0, fmt.Errorf("%w: brk at %v is %#x, settled %#x", ErrCorrupt, t.at(BrkOffset), uint64(w), settled)
			}
		case got[2] != uint64(w):
		case w.taker() == 0 && settled == end:
			return w, nil
		case w.taker() == 0: // as it was formatted
			if _, err := t.do(fabric.CAS(t.at(settledOffset), settled, end)); err != nil {
				return 0, err
			}
		default:
			// A list that is not sound is the trouble of its own takers.
			if err := t.settle(w, settled); err != nil && !errors.Is(err, ErrCorrupt) {
				return 0, err
			}
		}
	}
}

// published tells whether an entry is the one in its slot.
func (t *taking) published(e *Entry) error {
	if _, err := t.do(fabric.Read(t.at(DirectoryOffset+uint64(e.slot)*entrySize), t.buf)); err != nil {
		return err
	}
	st := claimWord(binary.LittleEndian.Uint64(t.buf))
	if at := fabric.Addr(binary.LittleEndian.Uint64(t.buf[entAddr:])); st.state() != claimPublished || at != e.Addr.In(0) {
		return fmt.Errorf("%w: %q on %v", ErrRemoved, e.Name, t.r.mn)
	}
	return nil
}

// move moves brk, and sees to what that was for. It returns false if somebody else was faster.
func (t *taking) move(old, w brkWord) (bool, error) {
	ops, err := t.do(fabric.CAS(t.at(BrkOffset), uint64(old), uint64(w)))
	if err != nil || !ops[0].Swapped() {
		return false, err
	}
	return true, t.settle(w, old.end())
}

// settle does the rest of a piece that ends at the end of w, given settled. ErrCorrupt: there is no sound list that it could be put into,
// and all else is done.
func (t *taking) settle(w brkWord, settled uint64) error {
	var unlinked error
	if end := w.end(); settled != end {
		if w.taker() != forNobody {
			unlinked = t.link(int(w.taker())-1, w.tag(), settled, end)
			if unlinked != nil && !errors.Is(unlinked, ErrCorrupt) {
				return unlinked
			}
		}
		ops, err := t.do(fabric.CAS(t.at(settledOffset), settled, end))
		if err != nil {
			return err
		}
		if !ops[0].Swapped() && ops[0].Old != end {
			return unlinked // others have done all of it, and more
		}
	}
	if _, err := t.do(fabric.CAS(t.at(BrkOffset), uint64(w), uint64(makeBrk(w.end(), 0, 0)))); err != nil {
		return err
	}
	return unlinked
}

// link puts the extent from begin to end into the list of the entry in a slot. An entry that is not there, or whose list is not
// sound, gets none (ErrCorrupt): that must not keep others from the heap.
func (t *taking) link(slot int, tag uint8, begin, end uint64) error {
	if _, err := t.do(fabric.Read(t.at(DirectoryOffset+uint64(slot)*entrySize), t.buf)); err != nil {
		return err
	}
	e, err := decodeEntry(t.buf)
	if st := claimWord(binary.LittleEndian.Uint64(t.buf)); err != nil || st.state() != claimPublished || e.extentHead() == 0 || e.Addr.MN() != t.r.mn {
		return fmt.Errorf("%w: root entry %d has no list for the extent at %#x: %v", ErrCorrupt, slot, begin, err)
	}
	for range linkTries {
		head, total, err := t.newest(&e)
		switch {
		case err != nil:
			return err
		case head == begin:
			return nil
		}
		// While the piece is not settled, no other comes into the list: the head was that before it.
		ops, err := t.do(fabric.Load(t.at(settledOffset)))
		if err != nil || ops[0].Old != begin {
			return err
		}
		clear(t.buf[:extWritten])
		binary.LittleEndian.PutUint64(t.buf, ExtentMagic)
		binary.LittleEndian.PutUint64(t.buf[extNext:], head)
		binary.LittleEndian.PutUint64(t.buf[extSize:], end-begin)
		binary.LittleEndian.PutUint64(t.buf[extTotal:], total+end-begin)
		t.buf[extTag] = tag
		// Who comes late writes what is there already.
		if _, err := t.do(fabric.Write(t.at(begin), t.buf[:extWritten]), fabric.CAS(e.extentHead(), head, begin)); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: the list of %q takes no extent", ErrCorrupt, e.Name)
}

// linkTries bounds the tries to put an extent into a list. A CAS that fails means that another's has succeeded, so two are enough.
const linkTries = 3

// newest returns the offset of an entry's newest extent, 0 if it has none, and what all its extents have.
func (t *taking) newest(e *Entry) (head, total uint64, err error) {
	ops, err := t.do(fabric.Load(e.extentHead()))
	if err != nil || ops[0].Old == 0 {
		return 0, 0, err
	}
	head = ops[0].Old
	if head%unit != 0 || head < HeapOffset || head > t.r.params.Size-ExtentHeader {
		return 0, 0, fmt.Errorf("%w: newest extent of %q is at %#x", ErrCorrupt, e.Name, head)
	}
	b := t.buf[:ExtentHeader]
	if _, err := t.do(fabric.Read(t.at(head), b)); err != nil {
		return 0, 0, err
	}
	x, err := DecodeExtent(b, head, t.r.params.Size)
	return head, x.Total, err
}
