package daemon

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// happened are errors whose text says what happened, without where and why: the more telling first.
var happened = []error{
	cn.ErrMemoryLost, fabric.ErrFenced, member.ErrRefused, member.ErrUnreachable, member.ErrFull, member.ErrInUse,
	tcp.ErrAuth, tcp.ErrVersion, tcp.ErrProtocol, tcp.ErrLost, // of verbs too: they are the same
	fabric.ErrTooFewCopies, fabric.ErrNodeDown, fabric.ErrStaleEpoch, fabric.ErrUnknownOutcome, fabric.ErrTooManyClients,
	lock.ErrOverdue, lock.ErrLost, lock.ErrCorrupt, lock.ErrExhausted, objstore.ErrCorrupt, memory.ErrCorrupt,
}

// Report returns a function that logs errors of work for which no caller waits. The message says what happened, and is the same whenever
// that happens; the attribute error says on what and why.
func Report(log *slog.Logger) func(error) {
	return func(err error) {
		log.Warn(whatHappened(err), "error", err.Error(), "cause", exit.Of(err).String())
	}
}

// whatHappened returns an error's message for a log.
func whatHappened(err error) string {
	for _, h := range happened {
		if errors.Is(err, h) {
			_, text, _ := strings.Cut(h.Error(), ": ") // without the package
			return text
		}
	}
	return err.Error()
}
