package exit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/config"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/fabric/verbs"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// An Error is an error whose code was decided where it arose. It also carries the
// codes of other processes.
type Error struct {
	Code Code
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// With gives an error a code; nil stays nil.
func With(c Code, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: c, Err: err}
}

// Errorf makes an error with a code.
func Errorf(c Code, format string, args ...any) error {
	return &Error{Code: c, Err: fmt.Errorf(format, args...)}
}

// Trace gives an error of reading a trace its code: what is not malformed cannot be read.
func Trace(err error) error {
	if Of(err) == BadTrace {
		return err
	}
	return With(NoTrace, err)
}

// codes of sentinels, the more telling first: an error may wrap several. That a node was lost
// explains too many errors; other causes of theirs do not say more.
var codes = []struct {
	err  error
	code Code
}{
	{cn.ErrMemoryLost, NodeLost},
	{fabric.ErrNodeDown, NodeLost},
	{fabric.ErrTooFewCopies, NodeLost},
	{fabric.ErrFenced, NodeLost},
	{fabric.ErrStaleEpoch, NodeLost},
	{fabric.ErrUnknownOutcome, NodeLost},
	{replay.ErrTooMany, TooManyErrs},
	{declock.ErrAddress, BadAddress},
	{shm.ErrName, BadAddress},
	{declock.ErrPolicy, UnknownName},
	{traces.ErrNoPreset, UnknownName},
	{traces.ErrIncomplete, UnknownName},
	{traces.ErrFormat, BadTrace},
	{traces.ErrTruncated, BadTrace},
	{traces.ErrCompression, BadTrace},
	{config.ErrConfig, Usage},
	{traces.ErrConfig, Usage},
	{replay.ErrOptions, Usage},
	{shm.ErrNoCluster, NoCluster},
	{cn.ErrNoMemory, NoCluster},
	{cn.ErrTooManyNodes, Full},
	{cn.ErrTooManySessions, Full},
	{secure.ErrFiles, Usage},
	{member.ErrFull, Full},
	{member.ErrInUse, InUse},
	{member.ErrReplica, InUse},
	{member.ErrUnknown, NotFound},
	{member.ErrRefused, Denied},
	{member.ErrUnreachable, NoCluster},
	{member.ErrLeftOut, Unavailable},
	{etcd.ErrOptions, Usage},
	{etcd.ErrFormat, Mismatch},
	{tcp.ErrOptions, Usage}, // and of verbs: it has the same errors of options, authentication, versions, protocol and connections
	{tcp.ErrNoMemory, NoSpace},
	{tcp.ErrFormat, Mismatch},
	{tcp.ErrInUse, InUse},
	{tcp.ErrTruncated, NodeLost},
	{tcp.ErrSuperseded, InUse},
	{tcp.ErrAuth, Denied},
	{tcp.ErrVersion, Mismatch},
	{tcp.ErrProtocol, Mismatch},
	{tcp.ErrLost, NoCluster},
	{verbs.ErrUnavailable, Unavailable},
	{verbs.ErrNoDevice, Unavailable},
	{verbs.ErrMemlock, NoSpace},
	{verbs.ErrNoMemory, NoSpace},
	{verbs.ErrNoHuge, NoHuge},
	{shm.ErrInUse, InUse},
	{shm.ErrNoSpace, NoSpace},
	{shm.ErrNoHuge, NoHuge},
	{shm.ErrFull, Full},
	{shm.ErrForeign, Denied},
	{shm.ErrFormat, Mismatch},
	{shm.ErrTruncated, NodeLost},
	{shm.ErrBusy, Busy},
	{objstore.ErrUnanswered, Busy},
	{btree.ErrUnanswered, Busy},
	{shm.ErrOptions, Usage},
	{memory.ErrVersion, Mismatch},
	{memory.ErrParams, Mismatch},
	{memory.ErrParts, NodeLost},
	{memory.ErrForeign, Mismatch},
	{memory.ErrNotFormatted, Mismatch},
	{memory.ErrHalfFormatted, Mismatch},
	{objstore.ErrGeometry, Mismatch},
	{objstore.ErrKeySize, TooLarge},
	{objstore.ErrValueSize, TooLarge},
	{objstore.ErrConfig, Usage},
	{objstore.ErrNotNumber, Usage},
	{declock.ErrTTL, Usage},
	{objstore.ErrNotFound, NotFound},
	{btree.ErrGeometry, Mismatch},
	{btree.ErrKeySize, TooLarge},
	{btree.ErrValueSize, TooLarge},
	{btree.ErrConfig, Usage},
	{btree.ErrNotFound, NotFound},
	{btree.ErrLevel, NotFound},
	{btree.ErrNoSpace, NoSpace},
	{btree.ErrCorrupt, Corrupt},
	{memory.ErrNotFound, NotFound},
	{memory.ErrKind, NotFound},
	{memory.ErrName, Usage},
	{memory.ErrDirectoryFull, Full},
	{memory.ErrNoSpace, NoSpace},
	{objstore.ErrNoSpace, NoSpace},
	{memory.ErrCorrupt, Corrupt},
	{objstore.ErrCorrupt, Corrupt},
	{lock.ErrCorrupt, Corrupt},
	{fabric.ErrOutOfBounds, Usage},
	{fabric.ErrMisaligned, Usage},
	{fabric.ErrBadKey, Denied},
	{syscall.EADDRINUSE, InUse},
	{syscall.ENOSPC, NoSpace},
	{syscall.EDQUOT, NoSpace},
	{syscall.ENOMEM, NoSpace},
	{fs.ErrPermission, Denied},
	{context.Canceled, Interrupted},
}

// Of returns the exit code of an error.
func Of(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return Other
}

// Message returns the text of an error for people, with what to do about it
// where that is known.
func Message(err error) string {
	text := strings.TrimSpace(err.Error())
	text = strings.TrimPrefix(text, "declock: ") // the program's name comes before it
	for _, h := range hints {
		if errors.Is(err, h.err) {
			return text + "\n  " + h.hint
		}
	}
	return text
}

// hints say what to do, where the errors of the packages cannot know it.
var hints = []struct {
	err  error
	hint string
}{
	{shm.ErrNoCluster, "\"declock status\" lists the clusters of this machine; declock-mn starts a memory node alone."},
	{cn.ErrNoMemory, "Start one with declock-mn."},
	{cn.ErrTooManyNodes, "Stop one, or start the memory nodes anew with a larger --max-cn."},
	{member.ErrUnreachable, "Is etcd up at these endpoints, and does the network let us reach it? Does it want https (--etcd-ca)?"},
	{member.ErrInUse, "\"declock status --cluster ADDRESS\" shows it; take another number with --mem. The number of a node that crashed is free after some seconds."},
	{member.ErrReplica, "\"declock status\" shows where copies are. What a number had whose copies are all lost is given up by \"declock mn abandon\"."},
	{tcp.ErrAuth, "All nodes need certificates of the same CA, which say what they may be: see docs/operations.md."},
	{verbs.ErrMemlock, "Registered memory is locked: raise the limit with \"ulimit -l unlimited\", or LimitMEMLOCK=infinity in a systemd unit."},
	{verbs.ErrAuth, "All nodes need the same secret, or certificates of the same CA, which say what they may be: see docs/operations.md."},
	{verbs.ErrLost, "Is the memory node up, and does the network let us reach its control service?"},
	{shm.ErrInUse, "\"declock status\" shows which process uses it; take another name or number, or stop that process."},
	{shm.ErrNoSpace, "Ask for less with --size, free some memory, or take another place with --dir."},
	{memory.ErrNoSpace, "\"declock inspect roots\" shows what takes it: \"declock drop\" gives memory back, a flush does not. Or give the memory node more with --size."},
	{objstore.ErrNoSpace, "Give the memory node more with --size."},
	{shm.ErrFormat, "\"declock clean NAME\" removes what a crashed cluster left; or take another name."},
	{memory.ErrParams, "Start the memory node with the parameters that its memory has, or remove that with \"declock clean NAME\"."},
	{fabric.ErrTooFewCopies, "\"declock status\" shows which copies are in sync: start a memory node, or start it with a smaller --min-in-sync."},
	{fabric.ErrNodeDown, "\"declock status\" shows what is down: start it again. If all copies of a number are lost, \"declock mn abandon\" lets it begin anew, empty."},
	{memory.ErrParts, "Is a memory node down? \"declock status\" shows the nodes."},
	{syscall.EADDRINUSE, "Another process has that port, as a daemon with the same settings: take another, or with HOST:0 any."},
	{shm.ErrForeign, "A cluster is its user's own: see docs/operations.md."},
	{shm.ErrNoHuge, "Use --huge try to go on without."},
	{objstore.ErrCorrupt, "\"declock check\" tells what else is wrong."},
}
