package memory

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// A claimWord decides which compute node makes something, and reports whether it is made. It
// only ever changes by CAS. Format: do not change.
//
//	 63    60 59      52 51          32 31            0
//	+--------+----------+--------------+---------------+
//	| state  |    CN    |  generation  |   name hash   |
//	+--------+----------+--------------+---------------+
//
// state: 0 free, 1 claimed by CN, 2 published by CN, 3 removed, and its memory is being given back, 4 removed, and its memory
// is not given back, 5 removed, and CN is about to publish its memory under another name. Generation grows whenever
// the word becomes free or changes hands, so that a claimant that was taken
// over cannot publish; a claim of state 5 that is withdrawn goes back to the one before. No published word comes back. The name hash lets others see what is being made before
// its name is written; in state 4 it says which compute node holds the memory (claimWord.held). Zero is free.
type claimWord uint64

const (
	claimHashBits  = 32
	claimGenBits   = 20
	claimCNBits    = 8
	claimStateBits = 4

	claimGenShift   = claimHashBits
	claimCNShift    = claimGenShift + claimGenBits
	claimStateShift = claimCNShift + claimCNBits
	claimGenMask    = 1<<claimGenBits - 1
)

// The fields fill the word.
const _ = uint(claimStateShift+claimStateBits-64) + uint(64-claimStateShift-claimStateBits)

type claimState uint8

const (
	claimFree claimState = iota
	claimClaimed
	claimPublished
	claimDropping
	claimKept
	claimReused
	numClaimStates
)

func (s claimState) String() string {
	if s < numClaimStates {
		return [...]string{"free", "claimed", "published", "dropping", "kept", "reused"}[s]
	}
	return fmt.Sprintf("claimState(%d)", uint8(s))
}

func makeClaim(s claimState, cn fabric.CNID, gen, hash uint32) claimWord {
	return claimWord(s)<<claimStateShift | claimWord(cn)<<claimCNShift |
		claimWord(gen&claimGenMask)<<claimGenShift | claimWord(hash)
}

func (w claimWord) state() claimState  { return claimState(w >> claimStateShift) }
func (w claimWord) owner() fabric.CNID { return fabric.CNID(w >> claimCNShift) }
func (w claimWord) gen() uint32        { return uint32(w>>claimGenShift) & claimGenMask }
func (w claimWord) hash() uint32       { return uint32(w) }
func (w claimWord) corrupt() bool      { return w.state() >= numClaimStates }

// says reports whether an entry of this state says what it was published with.
func (w claimWord) says() bool { return w.state() == claimPublished || w.state() == claimKept }

// claim returns the word of cn's claim in place of w.
func (w claimWord) claim(cn fabric.CNID, hash uint32) claimWord {
	return makeClaim(claimClaimed, cn, w.gen()+1, hash)
}

// publish returns the word that publishes what was claimed with w.
func (w claimWord) publish() claimWord {
	return makeClaim(claimPublished, w.owner(), w.gen(), w.hash())
}

// kept returns the word of what has been published with w, when it is retired.
func (w claimWord) kept() claimWord { return makeClaim(claimKept, w.owner(), w.gen(), 0) }

// held returns the word of what has been retired with w, while a compute node keeps its memory from being given back; 0: nobody does any more. The low bits of what is the name's hash else are a number
// that grows, so that no word comes back.
func (w claimWord) held(cn fabric.CNID) claimWord {
	n := w.hash()
	if cn != 0 {
		n++
	}
	return makeClaim(claimKept, w.owner(), w.gen(), uint32(cn)<<holderShift|n&(1<<holderShift-1))
}

// holderShift is where the name's hash has the compute node that holds retired memory.
const holderShift = claimHashBits - claimCNBits

// holderOf returns the compute node that holds what has been retired, as the name's hash says; 0: nobody.
func holderOf(hash uint32) fabric.CNID { return fabric.CNID(hash >> holderShift) }

// dropping returns the word of what has been retired with w, while its memory is given back.
func (w claimWord) dropping() claimWord { return makeClaim(claimDropping, w.owner(), w.gen(), 0) }

// withdrawn returns the word of what was to be used again with w, and stays retired.
func (w claimWord) withdrawn() claimWord { return makeClaim(claimKept, w.owner(), w.gen()-1, 0) }

// free returns the word that frees w.
func (w claimWord) free() claimWord { return makeClaim(claimFree, 0, w.gen()+1, 0) }

func (w claimWord) String() string {
	return fmt.Sprintf("%v %v gen %d hash %#x", w.state(), w.owner(), w.gen(), w.hash())
}

// A waiter polls with growing pauses until a deadline.
type waiter struct {
	port     fabric.Port
	deadline fabric.Time
	pause    fabric.Time
}

const (
	minPauseNs = 2 * fabric.Microsecond
	maxPauseNs = fabric.Millisecond
)

func newWaiter(port fabric.Port, deadline fabric.Time) waiter {
	if deadline == 0 {
		deadline = port.Now() + DefaultWaitNs
	}
	return waiter{port: port, deadline: deadline, pause: minPauseNs}
}

// wait pauses: about twice as long each time, by chance, so that two that get
// in each other's way part.
func (w *waiter) wait() error {
	now := w.port.Now()
	if now >= w.deadline {
		return fabric.ErrDeadline
	}
	until := now + w.pause/2 + fabric.Time(w.port.Rand()%uint64(w.pause))
	w.pause = min(2*w.pause, maxPauseNs)
	return w.port.Pause(min(until, w.deadline))
}
