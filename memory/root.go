package memory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/declock/declock/fabric"
)

// Kind is what a root entry names.
type Kind uint8

// Kinds of root entries.
const (
	KindNone Kind = iota
	KindMemory
	KindLocks
	KindStore
	KindTree
	numKinds
)

func (k Kind) String() string {
	if k < numKinds {
		return [...]string{"none", "memory", "locks", "store", "tree"}[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// An entry of the root directory. Format: do not change.
//
//	offset  bytes
//	  0       8   state: a claim word
//	  8       1   kind
//	  9       1   length of the name
//	 10       2   zero
//	 12       4   CRC32C of bytes 8-11 and 16-127 and the generation of the state
//	 16       8   address of the memory
//	 24       8   length of the memory in bytes
//	 32      40   name
//	 72      56   info: 7 words of the owner's
const (
	entrySize = 128
	// MaxName is the largest length of a name in bytes.
	MaxName = 40
	// InfoWords is the number of words of Entry.Info.
	InfoWords = 7

	entKind    = 8
	entNameLen = 9
	entCRC     = 12
	entAddr    = 16
	entLen     = 24
	entName    = 32
	entInfo    = entName + MaxName
)

const _ = uint(entrySize-(entInfo+8*InfoWords)) + uint(entInfo+8*InfoWords-entrySize)

// Errors of the root directory, for errors.Is.
var (
	// ErrNotFound: no published entry has the name.
	ErrNotFound = errors.New("memory: no such entry")
	// ErrKind: the entry with the name is of another kind.
	ErrKind = errors.New("memory: entry is of another kind")
	// ErrHalfCreated: a compute node began to create the entry and has not finished.
	ErrHalfCreated = errors.New("memory: creation of the entry was begun and not finished")
	// ErrDirectoryFull: no entry of the root directory is free.
	ErrDirectoryFull = errors.New("memory: root directory is full")
	// ErrName: a name must have 1 to MaxName bytes.
	ErrName = errors.New("memory: name length out of range")
)

// Info is the owner's own words in a root entry.
type Info [InfoWords]uint64

// An Entry is a published entry of the root directory.
type Entry struct {
	Name    string
	Kind    Kind
	Addr    fabric.Addr // of the memory
	Length  uint64      // of the memory, bytes
	Info    Info
	Creator fabric.CNID

	slot int    // in the root directory
	gen  uint32 // of its state
	held uint32 // of a retired entry: the compute node that holds it (claimWord.held)
}

// A Spec says what to create.
type Spec struct {
	Name string
	Kind Kind
	// Size and Align are of the memory that is allocated for the entry; Size 0 is none.
	Size, Align uint64
	Info        Info
	// Reuse, if set, is asked for each retired entry of the same kind and size: true takes that in place of new memory. Its memory stays what it is, also for clients that
	// still use it. Init is not called then.
	Reuse func(e *Entry) (bool, error)
	// Init, if set, is called by the creator with the new memory before anyone
	// can see the entry. It may change e.Info.
	Init func(e *Entry) error

	// Deadline bounds the waiting for another creator; 0 is DefaultWaitNs from now.
	Deadline fabric.Time
	// DeadNow, if set, returns which compute nodes are dead and fenced now. Whatever they left half created in the root directory is freed.
	DeadNow func() fabric.CNSet
	// Creating, if set, is this compute node's. Whatever it left half created in the root directory is freed.
	Creating *Creating
	// Retry, if set, is a Port with which the creator frees its claim when it fails. It executes chains also if the memory node has restarted,
	// but not in other memory than that of their addresses.
	Retry fabric.Port
}

// A directory is a copy of the root directory.
type directory struct {
	r    *Region
	port fabric.Port
	buf  []byte
	spec *Spec // of Create
}

func (d *directory) addr(i int) fabric.Addr {
	return d.r.At(DirectoryOffset + uint64(i)*entrySize)
}

func (d *directory) state(i int) claimWord {
	return claimWord(binary.LittleEndian.Uint64(d.buf[i*entrySize:]))
}

func (r *Region) directory(port fabric.Port) directory {
	return directory{r: r, port: port, buf: port.Alloc(r.plan.entries * entrySize)}
}

func (d *directory) free() { d.port.Free(d.buf) }

func (d *directory) read() error {
	ops := [1]fabric.Op{fabric.Read(d.addr(0), d.buf)}
	if err := d.port.Do(ops[:]); err != nil {
		return fmt.Errorf("memory: root directory of %v: %w", d.r.mn, err)
	}
	return nil
}

// rereads bounds how often a published entry whose checksum is wrong is read
// again. It may be torn: it was published or replaced while it was read.
const rereads = 8

// entry decodes the published entry i. It is read again if its checksum is
// wrong. ok is false if it is no longer published then.
func (d *directory) entry(i int) (e Entry, ok bool, err error) {
	b := d.buf[i*entrySize:][:entrySize]
	for try := 0; ; try++ {
		st := d.state(i)
		if st.state() != claimPublished {
			return Entry{}, false, nil
		}
		if e, err = decodeEntry(b); err == nil {
			e.slot, e.Addr = i, e.Addr.In(fabric.Generation(d.r.Generation()))
			return e, true, nil
		}
		if try == rereads {
			return Entry{}, false, fmt.Errorf("%w: root entry at %v", err, d.addr(i))
		}
		ops := [1]fabric.Op{fabric.Read(d.addr(i), b)}
		if err := d.port.Do(ops[:]); err != nil {
			return Entry{}, false, fmt.Errorf("memory: root entry at %v: %w", d.addr(i), err)
		}
	}
}

func entryCRC(b []byte, gen uint32) uint32 {
	var g [4]byte
	binary.LittleEndian.PutUint32(g[:], gen)
	c := crc32.Update(0, castagnoli, b[8:entCRC])
	c = crc32.Update(c, castagnoli, b[entCRC+4:entrySize])
	return crc32.Update(c, castagnoli, g[:])
}

// encodeEntry writes e to b without the state, for a claim's generation.
func encodeEntry(b []byte, e *Entry, gen uint32) {
	clear(b[8:entrySize])
	b[entKind] = byte(e.Kind)
	b[entNameLen] = byte(len(e.Name))
	binary.LittleEndian.PutUint64(b[entAddr:], uint64(e.Addr.In(0)))
	binary.LittleEndian.PutUint64(b[entLen:], e.Length)
	copy(b[entName:entName+MaxName], e.Name)
	for i, w := range e.Info {
		binary.LittleEndian.PutUint64(b[entInfo+8*i:], w)
	}
	binary.LittleEndian.PutUint32(b[entCRC:], entryCRC(b, gen))
}

func decodeEntry(b []byte) (Entry, error) {
	st := claimWord(binary.LittleEndian.Uint64(b))
	if got, want := binary.LittleEndian.Uint32(b[entCRC:]), entryCRC(b, st.gen()); got != want {
		return Entry{}, fmt.Errorf("%w: checksum %#x, want %#x", ErrCorrupt, got, want)
	}
	n := int(b[entNameLen])
	if n == 0 || n > MaxName || Kind(b[entKind]) == KindNone {
		return Entry{}, fmt.Errorf("%w: kind %d, name length %d", ErrCorrupt, b[entKind], n)
	}
	e := Entry{
		Name:    string(b[entName : entName+n]),
		Kind:    Kind(b[entKind]),
		Addr:    fabric.Addr(binary.LittleEndian.Uint64(b[entAddr:])),
		Length:  binary.LittleEndian.Uint64(b[entLen:]),
		Creator: st.owner(),
		gen:     st.gen(),
	}
	for i := range e.Info {
		e.Info[i] = binary.LittleEndian.Uint64(b[entInfo+8*i:])
	}
	return e, nil
}

func nameHash(name string) uint32 { return crc32.Checksum([]byte(name), castagnoli) }

// none and such are what search found about a name besides a published entry.
const none = -1

// search looks a name up in a fresh copy of the directory, leaving out the
// slot skip. pub is the slot of its published entry, claim the slot of a
// claim with its hash, vacant the first free slot; none if there is none.
func (d *directory) search(name string, skip int) (e Entry, pub, claim, vacant int, err error) {
	pub, claim, vacant = none, none, none
	if err = d.read(); err != nil {
		return
	}
	hash := nameHash(name)
	for i := range d.r.plan.entries {
		st := d.state(i)
		switch {
		case i == skip:
		case st.corrupt():
			err = fmt.Errorf("%w: root entry at %v: state %#x", ErrCorrupt, d.addr(i), uint64(st))
			return
		case st.state() == claimFree:
			if vacant == none {
				vacant = i
			}
		case st.state() == claimDropping, st.state() == claimClaimed && d.abandoned(st):
			if err = d.vacate(i, st, &vacant); err != nil {
				return
			}
		case st.state() == claimReused && d.abandoned(st):
			if _, err = d.cas(i, st, d.withdrawn(i, st)); err != nil {
				return
			}
			binary.LittleEndian.PutUint64(d.buf[i*entrySize:], uint64(d.withdrawn(i, st)))
		case st.state() == claimKept, st.hash() != hash:
		case st.state() == claimClaimed, st.state() == claimReused:
			claim = i
		default:
			f, ok, ferr := d.entry(i)
			if ferr != nil {
				err = ferr
				return
			}
			if ok && f.Name == name {
				e, pub = f, i
				return
			}
		}
	}
	return
}

// vacate frees a slot in which no client goes on, with its memory. It is the vacant one, if there is none yet.
func (d *directory) vacate(i int, st claimWord, vacant *int) error {
	if err := d.clear(i, st); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(d.buf[i*entrySize:], uint64(st.free()))
	if *vacant == none {
		*vacant = i
	}
	return nil
}

// Create creates an entry, or opens the one that is there. Of any number of
// callers with the same name exactly one creates (created is true for it, and
// its Init ran); the others wait until it has published and get its entry.
//
// Two claimants of a name may meet in different slots if an entry is removed
// between their looks at the directory. So a client that has claimed looks again, and
// withdraws if it sees another: of two claimants at least one sees the other,
// since each claims first and looks then.
func (r *Region) Create(port fabric.Port, s Spec) (e Entry, created bool, err error) {
	if len(s.Name) == 0 || len(s.Name) > MaxName {
		return Entry{}, false, fmt.Errorf("%w: %q", ErrName, s.Name)
	}
	if s.Kind == KindNone {
		return Entry{}, false, fmt.Errorf("%w: %q: none", ErrKind, s.Name)
	}
	w := newWaiter(port, s.Deadline)
	d := r.directory(port)
	d.spec = &s
	defer d.free()
	for {
		e, pub, claim, vacant, err := d.search(s.Name, none)
		switch {
		case err != nil:
			return Entry{}, false, err
		case pub != none:
			return e, false, checkKind(&e, s.Kind)
		case claim != none:
			if err := w.wait(); err != nil {
				return Entry{}, false, fmt.Errorf("%w: %q by %v: %w", ErrHalfCreated, s.Name, d.state(claim).owner(), err)
			}
			continue
		}
		created := false
		slot, e, err := d.reusable()
		switch {
		case err != nil:
		case slot != none:
			e, created, err = d.reuse(slot, e)
		case vacant == none:
			err = fmt.Errorf("%w: %v", ErrDirectoryFull, r.mn)
		default:
			e, created, err = d.create(vacant)
		}
		if created || err != nil {
			return e, created, err
		}
		if err := w.wait(); err != nil {
			return Entry{}, false, fmt.Errorf("memory: create %q: %w", s.Name, err)
		}
	}
}

// create tries to claim the free slot i, and makes the entry then. It returns false if another was faster.
func (d *directory) create(i int) (Entry, bool, error) {
	s := d.spec
	hash := nameHash(s.Name)
	s.Creating.begin(d.r.mn, hash)
	defer s.Creating.end(d.r.mn, hash)
	mine, err := d.claim(i, s)
	if err != nil || mine == 0 {
		return Entry{}, false, err
	}
	e, err := d.make(i, mine, s)
	return e, err == nil, err
}

func checkKind(e *Entry, k Kind) error {
	if e.Kind != k {
		return fmt.Errorf("%w: %q is %v, want %v", ErrKind, e.Name, e.Kind, k)
	}
	return nil
}

func (d *directory) cas(i int, old, new claimWord) (bool, error) {
	ops := [1]fabric.Op{fabric.CAS(d.addr(i), uint64(old), uint64(new))}
	if err := d.port.Do(ops[:]); err != nil {
		return false, fmt.Errorf("memory: root entry at %v: %w", d.addr(i), err)
	}
	if !ops[0].Swapped() {
		return false, nil
	}
	return true, d.level(i)
}

func (d *directory) load(i int) (claimWord, error) {
	ops := [1]fabric.Op{fabric.Load(d.addr(i))}
	err := d.port.Do(ops[:])
	return claimWord(ops[0].Old), err
}

// level makes the state of an entry at the backups what it is at the primary. An entry is published at the backups first: there it stays, while its claim is at the primary.
func (d *directory) level(i int) error {
	return d.r.level(d.port, d.addr(i), 1, func(there, here uint64) bool {
		w := claimWord(here)
		return (w.state() == claimClaimed || w.state() == claimReused) && claimWord(there) == w.publish()
	})
}

// claim tries to claim the free slot i for a name, and returns the claim, or
// 0 if another was faster or is after the same name in another slot.
func (d *directory) claim(i int, s *Spec) (claimWord, error) {
	old := d.state(i)
	mine := old.claim(d.port.ID().CN(), nameHash(s.Name))
	ok, err := d.cas(i, old, mine)
	if err != nil {
		return 0, d.giveUp(i, mine, err)
	}
	if !ok {
		return 0, nil
	}
	_, pub, claim, _, err := d.search(s.Name, i)
	if err == nil && pub == none && claim == none {
		return mine, nil
	}
	if err == nil {
		_, err = d.cas(i, mine, mine.free())
	}
	if err != nil {
		err = d.giveUp(i, mine, err)
	}
	return 0, err
}

// make allocates and initialises what slot i was claimed for, and publishes it.
func (d *directory) make(i int, mine claimWord, s *Spec) (Entry, error) {
	e := Entry{Name: s.Name, Kind: s.Kind, Length: s.Size, Info: s.Info, Creator: mine.owner(), slot: i, gen: mine.gen()}
	var err error
	if s.Size > 0 {
		e.Addr, err = d.memory(i, mine, s)
	}
	if err == nil && s.Init != nil {
		err = s.Init(&e)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("memory: create %q: %w", s.Name, d.giveUp(i, mine, err))
	}
	return e, d.publish(i, mine, &e)
}

// publish publishes the entry that slot i was claimed for. If that fails, it gives the claim up; if the entry was published all the same, it stays.
func (d *directory) publish(i int, mine claimWord, e *Entry) error {
	b := d.buf[i*entrySize:][:entrySize]
	encodeEntry(b, e, mine.gen())
	ops := [2]fabric.Op{
		fabric.Write(d.addr(i).Add(8), b[8:]),
		fabric.CAS(d.addr(i), uint64(mine), uint64(mine.publish())),
	}
	err := d.publishCopies(i, mine, ops) // what a client can find is at the backups
	if err == nil {
		err = d.port.Do(ops[:])
	}
	if err != nil {
		return fmt.Errorf("memory: create %q: %w", e.Name, d.giveUp(i, mine, err))
	}
	if !ops[1].Swapped() {
		return fmt.Errorf("%w: %q was taken over while it was made", ErrHalfCreated, e.Name)
	}
	return nil
}

// publishCopies publishes the entry of slot i at the backups. There a client that stands still may have put the state of a claim that was withdrawn before, or taken back.
func (d *directory) publishCopies(i int, mine claimWord, ops [2]fabric.Op) error {
	b, err := d.r.Backups(d.port)
	if err != nil {
		return err
	}
	for k := b.group.N - 1; k >= 0; k-- {
		for ops[1].Cmp = uint64(mine); ; ops[1].Cmp = ops[1].Old {
			if err := b.do(k, ops[:]); err != nil {
				return err
			}
			if b.group.Backups[k].Number == 0 || ops[1].Swapped() || ops[1].Old == uint64(mine.publish()) {
				break
			}
			if now, err := d.load(i); err != nil || now != mine {
				return errors.Join(ErrHalfCreated, err)
			}
		}
	}
	return nil
}

// memory takes the memory of the entry that slot i was claimed for: zeros.
func (d *directory) memory(i int, mine claimWord, s *Spec) (fabric.Addr, error) {
	x, err := d.r.take(d.port, taking{owner: i + 1, size: s.Size, align: s.Align, slot: i, claim: mine})
	if err == nil && x.Used {
		_, err = d.r.zero(d.port, x.Off, (s.Size+unit-1)&^(unit-1))
	}
	return d.r.At(x.Off), err
}

// Lookup returns the entry with a name. ErrHalfCreated: a client is creating it.
func (r *Region) Lookup(port fabric.Port, name string, kind Kind) (Entry, error) {
	d := r.directory(port)
	defer d.free()
	e, pub, claim, _, err := d.search(name, none)
	switch {
	case err != nil:
		return Entry{}, err
	case pub != none:
		return e, checkKind(&e, kind)
	case claim != none:
		return Entry{}, fmt.Errorf("%w: %q by %v", ErrHalfCreated, name, d.state(claim).owner())
	}
	return Entry{}, fmt.Errorf("%w: %q on %v", ErrNotFound, name, r.mn)
}

// RemoveIf removes an entry that is the wanted one: else, or if another has come in its place, nothing is done, and it is as if there
// were none. Its memory is not given back, and stays what it is: compute nodes that do not know yet that the entry is gone may use it.
func (r *Region) RemoveIf(port fabric.Port, name string, kind Kind, wanted func(*Entry) bool) error {
	d := r.directory(port)
	defer d.free()
	e, pub, _, _, err := d.search(name, none)
	if err != nil {
		return err
	}
	if pub == none {
		return fmt.Errorf("%w: %q on %v", ErrNotFound, name, r.mn)
	}
	if err := checkKind(&e, kind); err != nil {
		return err
	}
	if !wanted(&e) {
		return fmt.Errorf("%w: %q on %v is another", ErrNotFound, name, r.mn)
	}
	st := d.state(pub)
	ok, err := d.cas(pub, st, makeClaim(claimKept, port.ID().CN(), st.gen()+1, 0))
	if err == nil && !ok {
		err = fmt.Errorf("%w: %q on %v: removed by another", ErrNotFound, name, r.mn)
	}
	return err
}

// List returns all published entries.
func (r *Region) List(port fabric.Port) ([]Entry, error) {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return nil, err
	}
	var list []Entry
	for i := range d.r.plan.entries {
		e, ok, err := d.entry(i)
		if err != nil {
			return nil, err
		}
		if ok {
			list = append(list, e)
		}
	}
	return list, nil
}

// Used returns how many bytes of the region are taken, with everything.
func (r *Region) Used(port fabric.Port) (uint64, error) {
	p, err := r.Pages(port)
	if err != nil {
		return 0, err
	}
	return r.params.Size - p.Free(), nil
}
