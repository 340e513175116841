package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/systemd"
	"github.com/declock/declock/cmd/internal/web"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/metrics"
	"github.com/prometheus/client_golang/prometheus"
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

// await calls enter, again and again for so long as the cluster is not there yet, and logs each new reason.
func (o *Options) await(ctx context.Context, wait time.Duration, enter func() error) error {
	limit := time.Now().Add(wait)
	for told := ""; ; {
		err := enter()
		switch code := exit.Of(err); {
		case err == nil:
			return nil
		case code != exit.NoCluster && code != exit.NodeLost && !errors.Is(err, memory.ErrNotFormatted) && !errors.Is(err, memory.ErrHalfFormatted):
			return err
		case ctx.Err() != nil || !time.Now().Before(limit):
			return err
		}
		if err.Error() != told {
			told = err.Error()
			o.Log.Info("waiting for the cluster", "error", told, "at_most", time.Until(limit).Round(time.Second).String())
		}
		select {
		case <-ctx.Done():
		case <-time.After(tryAgain):
		}
	}
}

// A life is what a daemon says of itself to who looks after it.
type life struct {
	mu    sync.Mutex
	state error        // why it cannot be used; nil: it can
	check func() error // says why it cannot, too; nil: nobody does
}

var (
	errStarting = errors.New("starting")
	errDraining = errors.New("stopping")
	// errAnew: the compute node cannot go on as a member of the cluster; as a new one, it can.
	errAnew = errors.New("the compute node must join again")
)

func newLife() *life { return &life{state: errStarting} }

func (l *life) set(state error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !errors.Is(l.state, errDraining) {
		l.state = state
	}
}

func (l *life) ready() {
	l.set(nil)
	_ = systemd.Notify(systemd.Ready) // who started it otherwise has the line that says so
}

func (l *life) drain() {
	l.set(errDraining)
	_ = systemd.Notify(systemd.Stopping)
}

func (l *life) usable() error {
	l.mu.Lock()
	state, check := l.state, l.check
	l.mu.Unlock()
	if check != nil {
		return errors.Join(state, check())
	}
	return state
}

// httpServer is a web.Server, or none.
type httpServer struct{ *web.Server }

func (h httpServer) addr() string {
	if h.Server == nil {
		return ""
	}
	return h.Addr()
}

func (h httpServer) close() {
	if h.Server != nil {
		_ = h.Close() // who asks while we end gets no answer
	}
}

func (h httpServer) show(status func() any, c ...prometheus.Collector) {
	if h.Server != nil {
		h.Show(status, c...)
	}
}

func (h httpServer) hide() {
	if h.Server != nil {
		h.Hide()
	}
}

// serveHTTP starts the daemon's HTTP server, if it is to have one: before the node, so that it can be seen that it starts.
func (o *Options) serveHTTP(l *life) (httpServer, error) {
	if o.HTTP == "" {
		return httpServer{}, nil
	}
	s, err := web.Start(web.Options{Addr: o.HTTP, Pprof: o.Pprof, Ready: l.usable})
	if err != nil {
		return httpServer{}, err
	}
	o.Log.Info("starting", "http", s.Addr())
	return httpServer{s}, nil
}

const (
	// lookEvery is how often a compute node looks whether its memory nodes answer.
	lookEvery = 2 * time.Second
	// lookFor is how long they may take to answer.
	lookFor = 5 * time.Second
)

// watch looks after the compute node until ctx ends: it logs who comes and goes, keeps readiness, and ends with errAnew
// when the cluster has declared this node dead.
func (d *CN) watch(ctx context.Context) error {
	probe := metrics.NewProbe(d.cluster)
	defer probe.Wait()
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	var gone <-chan struct{} // closed when this node has been declared dead, if the fabric tells: no need to wait for a look
	f, tells := d.cluster.Node().Fabric().(interface{ Fenced() <-chan struct{} })
	if tells {
		gone = f.Fenced()
	}
	looks := make(chan looked, 1)
	var looking sync.WaitGroup
	defer looking.Wait()
	var before fabric.View
	memory := map[fabric.MemID]string{}
	for {
		before = d.logView(before)
		looking.Go(func() {
			list, fenced, err := probe.Look(lookFor)
			looks <- looked{list, fenced, err}
		})
		var seen looked
		select {
		case seen = <-looks:
		case <-gone:
			seen.fenced = true
		}
		if seen.fenced {
			d.fenced++
			if e, ok := f.(interface{ Err() error }); ok && e.Err() != nil {
				return fmt.Errorf("%w: %w", errAnew, e.Err())
			}
			return fmt.Errorf("%w: %v: %w", errAnew, d.cluster.Node().Fabric().ID(), fabric.ErrFenced)
		}
		for _, m := range seen.memory {
			if errors.Is(m.Err, cn.ErrMemoryLost) {
				return fmt.Errorf("%w: %w", errAnew, m.Err) // it cannot go on with the memory as it is now
			}
		}
		d.life.set(errors.Join(seen.err, d.logMemory(seen.memory, memory)))
		select {
		case <-ctx.Done():
			return nil
		case <-gone:
		case <-t.C:
		}
	}
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

// looked is what a look at the memory nodes has found.
type looked struct {
	memory []metrics.MemoryState
	fenced bool
	err    error // why memory could not be looked at
}

// logView logs changes of who is live, and returns the new view.
func (d *CN) logView(before fabric.View) fabric.View {
	now := d.cluster.Node().Fabric().View()
	if now.Live == before.Live && now.Lost == before.Lost {
		return now
	}
	if before.Epoch != 0 {
		was, is := nodeNames(before), nodeNames(now)
		gone := slices.DeleteFunc(slices.Clone(was), func(n string) bool { return slices.Contains(is, n) })
		came := slices.DeleteFunc(slices.Clone(is), func(n string) bool { return slices.Contains(was, n) })
		d.cfg.Log.Info("compute nodes changed", "joined", strings.Join(came, ","), "gone", strings.Join(gone, ","),
			"died", now.Lost-before.Lost, "live", now.Live.Len(), "view", now.Epoch)
	}
	return now
}

// logMemory logs changes of what memory nodes say, and returns why they cannot all be used.
func (d *CN) logMemory(list []metrics.MemoryState, before map[fabric.MemID]string) (why error) {
	for _, m := range list {
		text := ""
		if m.Err != nil {
			text = m.Err.Error()
			why = errors.Join(why, fmt.Errorf("memory node %v: %w", m.ID, m.Err))
		}
		if was, known := before[m.ID]; text != was || !known {
			if text != "" {
				d.cfg.Log.Warn("memory node cannot be used", "memory", m.ID.String(), "error", text)
			} else if known {
				d.cfg.Log.Info("memory node can be used again", "memory", m.ID.String(), "epoch", m.Epoch)
			}
			before[m.ID] = text
		}
	}
	return why
}
