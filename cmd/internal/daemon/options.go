package daemon

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/web"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/metrics"
)

// Options are how a daemon runs, whatever it is.
type Options struct {
	Log   *slog.Logger
	HTTP  string // host:port; empty: none
	Pprof bool
	// Certificates are the files of certificates that it uses.
	Certificates []string
}

// tryAgain is how long to wait before the next try to enter a cluster that is not there yet.
const tryAgain = 500 * time.Millisecond

// forever has await call until it succeeds, or ctx ends.
const forever time.Duration = -1

// await calls enter, again and again for so long as the cluster is not there yet, and logs each new reason.
func (o *Options) await(ctx context.Context, wait time.Duration, enter func() error) error {
	limit, level, what := time.Now().Add(wait), slog.LevelInfo, "waiting for the cluster"
	if wait == forever { // it was a member
		level, what = slog.LevelWarn, "cannot join again yet"
	}
	for logged := ""; ; {
		err := enter()
		code := exit.Of(err)
		absent := code == exit.NoCluster || code == exit.NodeLost || errors.Is(err, memory.ErrNotFormatted) || errors.Is(err, memory.ErrHalfFormatted)
		if err == nil || ctx.Err() != nil || wait != forever && (!absent || !time.Now().Before(limit)) {
			return err
		}
		if err.Error() != logged {
			logged = err.Error()
			attrs := []any{"error", logged}
			if wait != forever {
				attrs = append(attrs, "at_most", time.Until(limit).Round(time.Second).String())
			}
			o.Log.Log(ctx, level, what, attrs...)
		}
		select {
		case <-ctx.Done():
		case <-time.After(tryAgain):
		}
	}
}

// A readiness is whether a daemon can be used, and why not.
type readiness struct {
	mu    sync.Mutex
	state error        // why not; nil: it can
	check func() error // returns another reason; nil: there is none
}

var (
	errStarting = errors.New("starting")
	errDraining = errors.New("stopping")
	// errAnew: the compute node cannot go on as a member of the cluster; as a new one, it can.
	errAnew = errors.New("the compute node must join again")
)

func newReadiness() *readiness { return &readiness{state: errStarting} }

func (r *readiness) set(state error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(r.state, errDraining) {
		r.state = state
	}
}

func (r *readiness) ready() {
	r.set(nil)
	_, _ = sdnotify.SdNotify(false, sdnotify.SdNotifyReady) // without systemd, there is the line that says so
}

func (r *readiness) drain() {
	r.set(errDraining)
	_, _ = sdnotify.SdNotify(false, sdnotify.SdNotifyStopping)
}

func (r *readiness) usable() error {
	r.mu.Lock()
	state, check := r.state, r.check
	r.mu.Unlock()
	if check != nil {
		return errors.Join(state, check())
	}
	return state
}

// serveHTTP starts the daemon's HTTP server, if it is to have one; else it is nil. It starts before the node, so that it can be seen that that starts.
func (o *Options) serveHTTP(r *readiness) (*web.Server, error) {
	if o.HTTP == "" {
		return nil, nil
	}
	s, err := web.Start(web.Options{Addr: o.HTTP, Pprof: o.Pprof, Ready: r.usable})
	if err == nil {
		o.Log.Info("starting", "http", s.Addr())
	}
	return s, err
}

// certificates returns when the certificates expire that the daemon uses. One that cannot be read is not among them: the log says why, where it is used.
func (o *Options) certificates() (list []metrics.Certificate) {
	for _, file := range o.Certificates {
		if at, err := secure.Expiry(file); err == nil {
			list = append(list, metrics.Certificate{File: file, NotAfter: at})
		}
	}
	return list
}
