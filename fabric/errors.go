package fabric

import (
	"errors"
	"fmt"
)

// Errors of operations, for errors.Is. Whatever else a backend has to say is
// wrapped around one of these.
var (
	// Refused before anything was posted: a bug or bad input of the caller.

	ErrBadChain    = errors.New("fabric: bad chain")
	ErrBadBuffer   = errors.New("fabric: buffer does not belong to this port")
	ErrMisaligned  = errors.New("fabric: misaligned address")
	ErrUnsupported = errors.New("fabric: operation not supported by this fabric")

	// Refused by the target: nothing was executed from this operation on.

	ErrOutOfBounds = errors.New("fabric: address out of bounds")
	ErrBadKey      = errors.New("fabric: memory key refused")
	ErrNodeDown    = errors.New("fabric: node is down")
	// ErrFenced: the cluster has declared this compute node dead. It must not
	// go on: its locks have been given to others.
	ErrFenced = errors.New("fabric: this compute node has been fenced")
	// ErrStaleEpoch: the memory node has restarted since this Port attached. See Port.Reattach.
	ErrStaleEpoch = errors.New("fabric: memory node has a new epoch")

	// ErrUnknownOutcome: the connection broke after the chain was posted and
	// before its completion: the operations from Index on may or may not have
	// taken place. Never re-issue an atomic after it.
	//
	// They may still take place later, but not after anything that the same compute node posts to that memory node once the error
	// has been returned, by whichever Port: such a chain is executed behind them, or is refused (ErrNodeDown). So they are over
	// when one of those has been executed; when all have acknowledged that the compute node was declared dead; or when the memory node has a new epoch.
	// A client that leaves to others what such an operation may change waits for one of these first, unless it does so by a chain
	// to that memory node.
	ErrUnknownOutcome = errors.New("fabric: outcome of the operation is unknown")

	// ErrTooFewCopies: fewer copies of a memory-node number are in sync than a change of its data is to have (Replicas.MinInSync).
	ErrTooFewCopies = errors.New("fabric: too few copies in sync")

	// ErrResources: this machine lacks what is needed to reach the node
	// (descriptors, memory). Nothing was sent.
	ErrResources = errors.New("fabric: out of local resources")

	// ErrTooManyClients: all client indices of the compute node are in use.
	ErrTooManyClients = errors.New("fabric: too many clients on the compute node")

	// Errors of waiting.

	ErrDeadline = errors.New("fabric: deadline exceeded")
	// ErrInterrupted: see Port.Interrupt. In a ChainError without ErrUnknownOutcome it says that the operation, and those behind it,
	// have changed nothing.
	ErrInterrupted = errors.New("fabric: wait interrupted")
	ErrClosed      = errors.New("fabric: closed")
)

// Refused reports whether err says for certain that the operation which failed, and those behind it in its chain, were
// not executed. What they were to change is as it was.
func Refused(err error) bool {
	if errors.Is(err, ErrUnknownOutcome) {
		return false
	}
	for _, e := range [...]error{ErrBadChain, ErrBadBuffer, ErrMisaligned, ErrUnsupported, ErrOutOfBounds, ErrBadKey, ErrNodeDown, ErrFenced, ErrStaleEpoch, ErrTooFewCopies, ErrResources} {
		if errors.Is(err, e) {
			return true
		}
	}
	// Of an operation: a wait that was interrupted says nothing of operations.
	var ce *ChainError
	return errors.As(err, &ce) && errors.Is(ce.Err, ErrInterrupted)
}

// Executed returns how many operations of a chain of n were executed for certain, with valid results, by what Do or Wait
// returned for it. The others were not, if Refused(err); else their outcome is unknown.
func Executed(err error, n int) int {
	if err == nil {
		return n
	}
	var ce *ChainError
	if errors.As(err, &ce) && !ce.Unposted {
		return ce.Index
	}
	return 0
}

// A ChainError says which operation of a chain failed. Operations before
// Index were executed and their results are valid; those after it were not
// executed (or are as unknown as it is, if Err is ErrUnknownOutcome).
// If Unposted, the chain was refused before any of it was posted, and none was executed: see Executed.
type ChainError struct {
	Index    int
	Op       Op
	Err      error
	Unposted bool
}

func (e *ChainError) Error() string {
	return fmt.Sprintf("operation %d (%v): %v", e.Index, e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *ChainError) Unwrap() error { return e.Err }
