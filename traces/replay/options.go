package replay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/declock/declock/objstore"
)

// Errors of a replay, for errors.Is.
var (
	// ErrOptions: the options contradict each other.
	ErrOptions = errors.New("replay: bad options")
	// ErrTooMany: a client has met as many errors and verification failures as Options.MaxErrors allows.
	ErrTooMany = errors.New("replay: too many errors")
	// ErrMerge: two results cannot be added.
	ErrMerge = errors.New("replay: results do not go together")
)

// TTLMode says what becomes of the TTLs of a trace.
type TTLMode uint8

const (
	// TTLTrace stores objects with the trace's TTLs. A cache that is an
	// objstore.Clocked expires them by trace time; another by its own clock, which is
	// right at Speed 1 and else too slow by the factor of the replay.
	TTLTrace TTLMode = iota
	// TTLNone stores objects that never expire.
	TTLNone
)

// DefaultMaxValue is the object store's default.
const DefaultMaxValue = 1 << 20

// Options of a replay. The zero value replays a trace's operations as fast as
// possible, with its TTLs, unverified, whatever the errors.
type Options struct {
	// Verify writes values that can be checked, and checks every value that is read: see Verification in the package's comment.
	Verify bool
	// Exclusive promises that no other client works on its keys (the trace is dealt ByKey). Verify then
	// also knows what numbers must be.
	Exclusive bool
	// FillOnMiss follows a get that misses with a set of the key, as users of a look-aside cache do; not where the trace says
	// that its get missed too (value size 0), for there the trace does it itself. The sets are the row "fill".
	FillOnMiss bool
	TTL        TTLMode
	// TimeBase is added to trace time for a Clocked cache; 0 is 1, since a Clocked takes 0 as "no fixed time".
	// A second replay against the same store needs a later one.
	TimeBase uint32
	// MaxValue caps value sizes; 0 is DefaultMaxValue. Result.Capped counts.
	MaxValue int
	// Speed 0 is as fast as possible; x is trace time times x. The records of a second are due at its beginning.
	Speed float64
	// TraceStart is the time of the trace's first record, for Speed.
	TraceStart uint32
	// MaxErrors ends the replay at a client's n-th error or verification failure; 0 is never, 1 is at the first.
	MaxErrors uint64
	// Kinds of errors that are counted each by itself (Result.Kinds), the more telling first: an error may be of several.
	Kinds []error
	// RunID tells the values of this run from those that an earlier one left in the cache.
	RunID uint8
	// FirstClient is the id of Run's first client: with several processes every client has its own id.
	FirstClient int
	// Progress, if not nil, is updated every 256 operations of each client.
	Progress *Progress
	// Stop, if not nil, is called at a client's MaxErrors-th error: it ends the context that the clients have. nil: Run has one of its own.
	Stop context.CancelFunc
}

// withDefaults checks the options and fills in what is zero.
func (o Options) withDefaults() (Options, error) {
	switch {
	case o.Exclusive && !o.Verify:
		return o, fmt.Errorf("%w: Exclusive means nothing without Verify", ErrOptions)
	case o.Speed < 0 || o.Speed != o.Speed:
		return o, fmt.Errorf("%w: Speed %g: it must be 0 (as fast as possible) or above", ErrOptions, o.Speed)
	case o.MaxValue < 0 || (o.Verify && o.MaxValue > 0 && o.MaxValue < MinBlock):
		return o, fmt.Errorf("%w: MaxValue %d: a value that verifies itself has at least %d bytes", ErrOptions, o.MaxValue, MinBlock)
	case o.TTL > TTLNone:
		return o, fmt.Errorf("%w: TTLMode(%d)", ErrOptions, o.TTL)
	}
	if o.MaxValue == 0 {
		o.MaxValue = DefaultMaxValue
	}
	if o.TimeBase == 0 {
		o.TimeBase = 1
	}
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	if o.Stop == nil {
		o.Stop = func() {}
	}
	return o, nil
}

var wallStart = time.Now()

// wallOrigin makes the monotonic times of processes comparable.
var wallOrigin = wallStart.UnixNano()

// wallNow is wall time at the start of the process plus monotonic time since then.
func wallNow() int64 { return wallOrigin + int64(time.Since(wallStart)) }

// Progress can be read while a replay runs.
type Progress struct {
	Ops, Reads, Hits, Errors, VerifyFailures atomic.Uint64
	Warmed                                   atomic.Uint64
}

// outcome of an operation that is not a failure of the cache.
type outcome uint8

const (
	hit       outcome = iota // found, or took effect
	miss                     // there was no object
	exists                   // add found one, cas a changed one
	notNumber                // incr or decr of something else
	tooLarge                 // the cache takes no value of that size
	failed
	numOutcomes
)

func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return hit
	case errors.Is(err, objstore.ErrNotFound):
		return miss
	case errors.Is(err, objstore.ErrExists):
		return exists
	case errors.Is(err, objstore.ErrNotNumber):
		return notNumber
	case errors.Is(err, objstore.ErrValueSize):
		return tooLarge
	}
	return failed
}
