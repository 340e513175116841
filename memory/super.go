package memory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/declock/declock/fabric"
)

// The superblock. Format: do not change; a new layout gets a new LayoutVersion.
//
//	offset  bytes
//	0x000    8    magic "DECLOCK1"
//	0x008    4    layout version                                \
//	0x00c    4    CRC32C of 0x000-0x00b and 0x010-0x03f          |
//	0x010    8    size of the region in bytes                    | identity:
//	0x018   16    uuid: random, made when formatted              | never changes
//	0x028    1    capacity log2 of the queue of CQL locks        |
//	0x029    1    version bits of CQL queue entries              |
//	0x02a    1    version 5: flags, bit 0 is trains; else zero   |
//	0x02b    1    version 5: replicas, 2 or 3; else zero         |
//	0x02c    4    generation: which memory of the memory node, from 0  |
//	0x030   16    zero                                          /
//	0x040    8    state: a claim word
//	0x080   64    reserved
//	0x0c0    8    timesync counter
//	0x100    8    change: which pages get which owner (pages.go)
//	0x140         reserved
//
// Words that are written by clients lie on a 64-byte line each. Integers are
// little-endian.
const (
	Magic         = "DECLOCK1"
	LayoutVersion = 4 // 1: without generations; fencing tokens were others. 2: without pages. 3: without trains
	// plainVersion is that of memory like this, but programs that know of no trains (docs/trains.md) may use it, too: its locks are not passed on in
	// trains.
	plainVersion = 3
	// replicatedVersion is that of memory of which there are copies (mirror.go): programs that do not know it would change one of them only.
	replicatedVersion = 5

	offVersion    = 0x008
	offCRC        = 0x00c
	offSize       = 0x010
	offUUID       = 0x018
	offCapacity   = 0x028
	offVerBits    = 0x029
	offFlags      = 0x02a
	offFactor     = 0x02b
	offGeneration = 0x02c
	identityLen   = 0x040

	flagTrains = 1 << 0
	maxFactor  = 3

	offState = 0x040

	// TimesyncOffset and ChangeOffset are where the shared words lie.
	TimesyncOffset = 0x0c0
	ChangeOffset   = 0x100

	superSize = 0x1000
	// DirectoryOffset is where the root directory begins.
	DirectoryOffset = superSize
	// headSize is how much is looked at to tell whether memory is a region: the superblock and the first root entries.
	headSize = DirectoryOffset + fewEntries*entrySize
	// Lowest is an offset below which no region gives out memory.
	Lowest = headSize
	// minSize is the smallest region.
	minSize = 24 << 10
)

// MaxCapacityLog2 bounds Params.CapacityLog2: there are at most 255 compute nodes.
const MaxCapacityLog2 = 8

// Errors of formatting and opening, for errors.Is.
var (
	// ErrNotFormatted: the memory is all zero where the superblock should be.
	ErrNotFormatted = errors.New("memory: memory node is not formatted")
	// ErrForeign: the memory holds something that is not a region.
	ErrForeign = errors.New("memory: memory holds something else")
	// ErrVersion: a region of another layout version.
	ErrVersion = errors.New("memory: other layout version")
	// ErrParams: a region that was formatted with other parameters.
	ErrParams = errors.New("memory: formatted with other parameters")
	// ErrHalfFormatted: a memory node began to format and has not finished.
	ErrHalfFormatted = errors.New("memory: formatting was begun and not finished")
	// ErrCorrupt: a region whose bytes make no sense.
	ErrCorrupt = errors.New("memory: corrupt region")
)

// DefaultWaitNs is how long Create waits for another compute node
// that creates the same, without a deadline of the caller.
const DefaultWaitNs = 5 * fabric.Second

// Params says how a region is formatted.
type Params struct {
	Size         uint64 // bytes: the length of the memory node's memory, a multiple of 64
	CapacityLog2 uint8  // the queue of CQL locks has 2^CapacityLog2 entries: at least the number of compute nodes
	LeastLog2    uint8  // memory that is formatted already may have less, but not less than 2^LeastLog2; 0: it has as many
	VersionBits  uint8  // width of the version in CQL queue entries
	// Generation tells this memory from those that the memory node has lost: it is greater than theirs. 0 is the first.
	Generation uint32
	// Plain memory is of version 3, which earlier releases have formatted: locks are not passed on in trains.
	Plain bool
	// Factor is how many replicas there are to be of the memory: 2 or 3. 0: it is not replicated.
	Factor uint8
}

func (p *Params) validate() error {
	switch {
	case p.Factor == 1 || p.Factor > maxFactor:
		return fmt.Errorf("memory: %d replicas: want 2 to %d, or 0 for none", p.Factor, maxFactor)
	case p.Size%64 != 0 || p.Size < minSize || p.Size > fabric.MaxOffset:
		return fmt.Errorf("memory: size of %d bytes: want a multiple of 64, at least %d", p.Size, minSize)
	case p.CapacityLog2 > MaxCapacityLog2:
		return fmt.Errorf("memory: capacity log2 %d, at most %d", p.CapacityLog2, MaxCapacityLog2)
	case p.VersionBits > 32:
		return fmt.Errorf("memory: %d version bits, at most 32", p.VersionBits)
	}
	return nil
}

// UUID names one formatting of a region.
type UUID [2]uint64

func (u UUID) String() string { return fmt.Sprintf("%016x-%016x", u[1], u[0]) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (p *Params) version() uint32 {
	switch {
	case p.Factor > 0:
		return replicatedVersion
	case p.Plain:
		return plainVersion
	}
	return LayoutVersion
}

// encodeIdentity writes the first identityLen bytes of a superblock to b.
func encodeIdentity(b []byte, p *Params, u UUID) {
	clear(b[:identityLen])
	copy(b, Magic)
	binary.LittleEndian.PutUint32(b[offVersion:], p.version())
	binary.LittleEndian.PutUint64(b[offSize:], p.Size)
	binary.LittleEndian.PutUint64(b[offUUID:], u[0])
	binary.LittleEndian.PutUint64(b[offUUID+8:], u[1])
	b[offCapacity] = p.CapacityLog2
	b[offVerBits] = p.VersionBits
	if b[offFactor] = p.Factor; p.Factor > 0 && !p.Plain {
		b[offFlags] = flagTrains
	}
	binary.LittleEndian.PutUint32(b[offGeneration:], p.Generation)
	binary.LittleEndian.PutUint32(b[offCRC:], identityCRC(b))
}

func identityCRC(b []byte) uint32 {
	c := crc32.Update(0, castagnoli, b[:offCRC])
	return crc32.Update(c, castagnoli, b[offCRC+4:identityLen])
}

// decodeIdentity validates the identity in b.
func decodeIdentity(b []byte) (Params, UUID, error) {
	if !bytes.Equal(b[:len(Magic)], []byte(Magic)) {
		return Params{}, UUID{}, fmt.Errorf("%w: magic %q, want %q", ErrForeign, b[:len(Magic)], Magic)
	}
	v := binary.LittleEndian.Uint32(b[offVersion:])
	if v < plainVersion || v > replicatedVersion {
		return Params{}, UUID{}, fmt.Errorf("%w: %d, this program knows %d to %d: the memory was formatted by another release, begin with new memory, or use that release",
			ErrVersion, v, plainVersion, replicatedVersion)
	}
	if got, want := binary.LittleEndian.Uint32(b[offCRC:]), identityCRC(b); got != want {
		return Params{}, UUID{}, fmt.Errorf("%w: superblock checksum %#x, want %#x", ErrCorrupt, got, want)
	}
	p := Params{
		Size:         binary.LittleEndian.Uint64(b[offSize:]),
		CapacityLog2: b[offCapacity],
		VersionBits:  b[offVerBits],
		Generation:   binary.LittleEndian.Uint32(b[offGeneration:]),
		Plain:        v == plainVersion,
	}
	if v == replicatedVersion {
		p.Factor, p.Plain = b[offFactor], b[offFlags]&flagTrains == 0
	}
	u := UUID{binary.LittleEndian.Uint64(b[offUUID:]), binary.LittleEndian.Uint64(b[offUUID+8:])}
	if err := p.validate(); err != nil || v == replicatedVersion && p.Factor == 0 {
		return Params{}, UUID{}, fmt.Errorf("%w: %d replicas: %v", ErrCorrupt, p.Factor, err)
	}
	return p, u, nil
}

// A Region is a formatted memory node. It never changes, and may be shared by
// all clients of a process; each call works over the caller's Port.
type Region struct {
	mn     fabric.MemID
	params Params
	plan   plan
	uuid   UUID
}

// Memory returns the memory node.
func (r *Region) Memory() fabric.MemID { return r.mn }

// UUID returns the name of this formatting.
func (r *Region) UUID() UUID { return r.uuid }

// Size returns the length of the region in bytes.
func (r *Region) Size() uint64 { return r.params.Size }

// CapacityLog2 returns the parameter of the region's CQL locks.
func (r *Region) CapacityLog2() uint8 { return r.params.CapacityLog2 }

// VersionBits returns the parameter of the region's CQL locks.
func (r *Region) VersionBits() uint8 { return r.params.VersionBits }

// Generation returns which memory of the memory node it is, from 0: see Params.
func (r *Region) Generation() uint32 { return r.params.Generation }

// Version returns the layout version of the region.
func (r *Region) Version() uint32 { return r.params.version() }

// Plain reports whether programs that know of no trains may use the region: see Params.
func (r *Region) Plain() bool { return r.params.Plain }

// Replicated reports whether there are copies of the region, on memory nodes that only the fabric knows. What changes the region writes to them, too: see Backups.
func (r *Region) Replicated() bool { return r.params.Factor > 0 }

// Factor returns how many replicas there are to be of the region; 0: it is not replicated.
func (r *Region) Factor() int { return int(r.params.Factor) }

// At returns the address of an offset in the region: of this memory, and of no other that the memory node has had.
func (r *Region) At(offset uint64) fabric.Addr {
	return fabric.At(r.mn, offset).In(fabric.Generation(r.params.Generation))
}

// Format is FormatOwn over a Port: for simulations and tests, in which no other formats the memory meanwhile.
func Format(port fabric.Port, mn fabric.MemID, p Params) error {
	if err := p.validate(); err != nil {
		return err
	}
	buf := port.Alloc(headSize)
	defer port.Free(buf)
	st, err := readSuper(port, mn, buf)
	if err != nil {
		return err
	}
	if done, err := begun(mn, st, buf, &p); done || err != nil {
		return err
	}
	state, mine := fabric.At(mn, offState), st.claim(port.ID().CN(), 0)
	ops := [2]fabric.Op{fabric.CAS(state, uint64(st), uint64(mine))}
	if err := port.Do(ops[:1]); err != nil {
		return fmt.Errorf("memory: %v: %w", mn, err)
	}
	if !ops[0].Swapped() {
		return fmt.Errorf("memory: %v: %w: another formats it", mn, ErrHalfFormatted)
	}
	encodeIdentity(buf, &p, UUID{port.Rand(), port.Rand()})
	if err := formatBackups(port, mn, &p, buf[:identityLen], mine.publish()); err != nil {
		return err
	}
	ops[0] = fabric.Write(fabric.At(mn, 0), buf[:identityLen])
	ops[1] = fabric.CAS(state, uint64(mine), uint64(mine.publish()))
	if err := port.Do(ops[:]); err != nil {
		return fmt.Errorf("memory: %v: %w", mn, err)
	}
	if !ops[1].Swapped() {
		return fmt.Errorf("memory: %v: %w: another formats it", mn, ErrHalfFormatted)
	}
	return nil
}

// readSuper reads the state, and then the superblock and the root directory
// to buf: what a published state promises is there when it is read. Formatting may begin between the two: then the
// state is read as free, and the rest is not zero. The second time it is not free any more, unless the memory is something else.
func readSuper(port fabric.Port, mn fabric.MemID, buf []byte) (st claimWord, err error) {
	for range 2 {
		ops := [2]fabric.Op{fabric.Load(fabric.At(mn, offState)), fabric.Read(fabric.At(mn, 0), buf)}
		if err := port.Do(ops[:]); err != nil {
			return 0, fmt.Errorf("memory: %v: %w", mn, err)
		}
		if st = claimWord(ops[0].Old); st != 0 || allZero(buf) {
			break
		}
	}
	return st, nil
}

// foreign says what is wrong with memory that cannot be formatted: another
// layout version may have put its state elsewhere.
func foreign(buf []byte) error {
	if _, _, err := decodeIdentity(buf); err != nil {
		return err
	}
	return ErrForeign
}

func checkFormatted(mn fabric.MemID, buf []byte, p *Params) error {
	have, _, err := decodeIdentity(buf)
	if err != nil {
		return fmt.Errorf("memory: %v: %w", mn, err)
	}
	room := have.CapacityLog2 == p.CapacityLog2 || p.LeastLog2 > 0 && have.CapacityLog2 >= p.LeastLog2
	if have.Factor != p.Factor {
		return fmt.Errorf("memory: %v: %w: %d replicas, want %d", mn, ErrParams, have.Factor, p.Factor)
	}
	if have.Size != p.Size || !room || have.VersionBits != p.VersionBits {
		return fmt.Errorf("memory: %v: %w: size %d, c %d, %d version bits; want %d, %d, %d", mn, ErrParams,
			have.Size, have.CapacityLog2, have.VersionBits, p.Size, p.CapacityLog2, p.VersionBits)
	}
	return nil
}

// Open returns the region of mn.
func Open(port fabric.Port, mn fabric.MemID) (*Region, error) {
	buf := port.Alloc(headSize)
	defer port.Free(buf)
	st, err := readSuper(port, mn, buf)
	if err != nil {
		return nil, err
	}
	switch {
	case st.state() == claimClaimed && !st.corrupt():
		return nil, fmt.Errorf("memory: %v: %w by %v", mn, ErrHalfFormatted, st.owner())
	case allZero(buf):
		return nil, fmt.Errorf("memory: %v: %w", mn, ErrNotFormatted)
	}
	p, u, err := decodeIdentity(buf)
	if err != nil {
		return nil, fmt.Errorf("memory: %v: %w", mn, err)
	}
	if st.state() != claimPublished || st.corrupt() {
		return nil, fmt.Errorf("memory: %v: %w: state %v", mn, ErrCorrupt, st)
	}
	return &Region{mn: mn, params: p, plan: planFor(p.Size), uuid: u}, nil
}

// Reach is Open for clients that go on without a memory node that is down: that is fabric.ErrNodeDown, also for the first that finds it out, since
// what Open reads can be read again.
func Reach(port fabric.Port, mn fabric.MemID) (*Region, error) {
	r, err := Open(port, mn)
	if errors.Is(err, fabric.ErrUnknownOutcome) && !errors.Is(err, fabric.ErrInterrupted) {
		r, err = Open(port, mn)
	}
	return r, err
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
