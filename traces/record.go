package traces

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
)

// Errors of reading and writing, for errors.Is.
var (
	// ErrFormat: a line is not a record of the seven columns. The error is a *LineError.
	ErrFormat = errors.New("traces: malformed record")
	// ErrTruncated: a compressed trace ends in the middle. What was whole has been delivered.
	ErrTruncated = errors.New("traces: compressed trace is cut")
	// ErrCompression: the file is compressed in a way that is not supported, or its compressed data is damaged.
	ErrCompression = errors.New("traces: bad compression")
)

// Errors of presets and generation, for errors.Is.
var (
	// ErrNoPreset: there is no preset of that name.
	ErrNoPreset = errors.New("traces: no such preset")
	// ErrIncomplete: the preset lacks a statistic that generation needs.
	ErrIncomplete = errors.New("traces: preset is incomplete")
	// ErrConfig: a generator cannot be made from this configuration.
	ErrConfig = errors.New("traces: bad generator configuration")
)

// Op is the operation of a request.
type Op uint8

// The operations of the traces.
const (
	OpNone Op = iota
	OpGet
	OpGets
	OpSet
	OpAdd
	OpReplace
	OpCAS
	OpAppend
	OpPrepend
	OpDelete
	OpIncr
	OpDecr
	NumOps // one more than the last: the length of a table by Op
)

var opNames = [NumOps]string{"none", "get", "gets", "set", "add", "replace", "cas",
	"append", "prepend", "delete", "incr", "decr"}

func (o Op) String() string {
	if o < NumOps {
		return opNames[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// ParseOp returns the operation with the name, or OpNone.
func ParseOp(name []byte) Op {
	for op, known := range opNames {
		if string(name) == known { // the compiler makes no string of it
			return Op(op)
		}
	}
	return OpNone
}

// IsRead reports whether the operation reads a value: get and gets.
func (o Op) IsRead() bool { return o == OpGet || o == OpGets }

// Stores reports whether the operation writes a whole value: set, add, replace and cas.
func (o Op) Stores() bool { return o >= OpSet && o <= OpCAS }

// Extends reports whether the operation adds a piece to a value: append and prepend.
func (o Op) Extends() bool { return o == OpAppend || o == OpPrepend }

// Counts reports whether the operation changes a number: incr and decr.
func (o Op) Counts() bool { return o == OpIncr || o == OpDecr }

// A Record is one request.
type Record struct {
	Time uint32 // seconds; traces start at 0
	// Key is valid until the next record of the source that filled it.
	Key []byte
	// KeySize is the size of the key before it was made anonymous; as a rule but not always len(Key).
	KeySize uint32
	// ValueSize is the size of the value that was read or written. 0 where
	// there was none; on a read that means a miss.
	ValueSize uint32
	Client    uint64
	Op        Op
	TTL       uint32 // seconds; 0 for what is not a write
}

// IsMiss reports whether the record is a read that found nothing.
func (r *Record) IsMiss() bool { return r.Op.IsRead() && r.ValueSize == 0 }

func (r *Record) String() string { return string(AppendRecord(nil, r)) }

// A Source is a stream of records. A [Reader] and a generator's [Stream] are.
// One goroutine uses it at a time.
type Source interface {
	// Next puts the next record into rec, or returns false at the end or
	// after an error. rec.Key belongs to the source and is valid until the next call.
	Next(rec *Record) bool
	// Err returns the error that ended the stream; nil at its end.
	Err() error
}

// All ranges over the records of a source. The record is valid for one turn of
// the loop. Ask the source's Err when the loop is done.
func All(s Source) iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		var rec Record
		for s.Next(&rec) {
			if !yield(&rec) {
				return
			}
		}
	}
}

// CounterPrefix begins the key of a generated counter: an object that incr and
// decr work on, whose value is a decimal number. In a file nothing but the key
// could tell a replayer to write numbers there.
const CounterPrefix = "#:"

// IsCounterKey reports whether the key is that of a generated counter.
func IsCounterKey(key []byte) bool {
	return len(key) >= len(CounterPrefix) && key[0] == CounterPrefix[0] && key[1] == CounterPrefix[1]
}

// HashKey is a 64-bit hash of a key, the same in every process and version: it deals
// keys to clients, and values that verify themselves carry it. It does not
// resist an adversary.
func HashKey(key []byte) uint64 {
	const m = 0x9e3779b97f4a7c15
	h := mix(uint64(len(key)), m)
	for len(key) >= 8 {
		h = mix(h^binary.LittleEndian.Uint64(key), m)
		key = key[8:]
	}
	var tail uint64
	for i, b := range key {
		tail |= uint64(b) << (8 * i)
	}
	return mix(h^tail, 0xbf58476d1ce4e5b9)
}

// mix is the folded 64x64->128 bit product, with both operands salted so that
// zeros do not stay zero.
func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x2d358dccaa6c78a5, b^0x8bb84b93962eacc9)
	return hi ^ lo
}
