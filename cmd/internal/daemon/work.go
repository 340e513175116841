package daemon

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

const (
	// progressInterval is how often progress is reported.
	progressInterval = 200 * time.Millisecond
	// stopGrace is how long clients have to end by themselves, before what they wait for is interrupted.
	stopGrace = 2 * time.Second
	// maxClients of one daemon: a Port's index has 12 bits.
	maxClients = 4000
)

// A client is what one client of a replay works with.
type client struct {
	cache     objstore.Cache
	counters  func() control.Counters // called by the client's goroutine, or when it is idle
	interrupt func()                  // ends what the client waits for
	resume    func()                  // undoes interrupt
	drain     func() error            // gives memory back that the compute node keeps
	close     func() error
}

// A timedClient is a client of a store some of whose gets and sets are timed.
type timedClient struct {
	*objstore.Client
	gets, sets front.Timer
}

// Get implements objstore.Cache.
func (c *timedClient) Get(key []byte) (objstore.Item, error) {
	at := c.gets.Begin()
	it, err := c.Client.Get(key)
	c.gets.End(at)
	return it, err
}

// Set implements objstore.Cache.
func (c *timedClient) Set(key, value []byte, o objstore.Options) error {
	at := c.sets.Begin()
	err := c.Client.Set(key, value, o)
	c.sets.End(at)
	return err
}

// work is a daemon's part of a replay.
type work struct {
	spec    *control.Replay
	clients []*client
	meters  []*meter
	loads   []replay.Load
	reader  *traces.Reader
	dealer  *replay.Dealer
	o       replay.Options
	ctx     context.Context // of the replay; o.Stop ends it

	warming atomic.Int64  // clients that are still at it
	warm    chan struct{} // closed when none is
	open    chan struct{} // closed at start
}

// kinds are the errors that a replay counts each by itself.
var kinds = []error{
	lock.ErrMemoryLost, lock.ErrLost, fabric.ErrFenced, fabric.ErrTooFewCopies, fabric.ErrUnknownOutcome, fabric.ErrStaleEpoch, fabric.ErrNodeDown,
	lock.ErrTimeout, lock.ErrCanceled, objstore.ErrNoSpace, objstore.ErrCorrupt,
}

// An opener opens a client for a replay.
type opener func(context.Context, *control.Replay) (*client, error)

// newWork opens everything that a replay needs.
func newWork(ctx context.Context, spec *control.Replay, open opener) (w *work, err error) {
	if err := checkSpec(spec); err != nil {
		return nil, err
	}
	w = &work{spec: spec, warm: make(chan struct{}), open: make(chan struct{})}
	w.o = replay.Options{
		Verify: spec.Verify, Exclusive: spec.Verify && spec.Exclusive, FillOnMiss: spec.Fill, TimeBase: spec.TimeBase,
		MaxValue: int(spec.MaxValue), Speed: spec.Speed, MaxErrors: spec.MaxErrors, RunID: spec.RunID, FirstClient: spec.First,
		Kinds: kinds, Progress: new(replay.Progress),
	}
	w.ctx, w.o.Stop = context.WithCancel(ctx)
	if spec.NoTTL {
		w.o.TTL = replay.TTLNone
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
			w = nil
		}
	}()
	for range spec.Clients {
		c, err := open(ctx, spec)
		if err != nil {
			return w, err
		}
		w.clients = append(w.clients, c)
	}
	if err := w.openStreams(); err != nil {
		return w, err
	}
	return w, nil
}

func checkSpec(spec *control.Replay) error {
	switch {
	case spec.Clients < 1 || spec.Clients > maxClients:
		return exit.Errorf(exit.Usage, "%d clients on a compute node: want 1 to %d", spec.Clients, maxClients)
	case spec.First < 0 || spec.First+spec.Clients > spec.Total:
		return exit.Errorf(exit.Usage, "clients %d to %d of %d", spec.First, spec.First+spec.Clients-1, spec.Total)
	case (spec.Preset == "") == (spec.Path == ""):
		return exit.Errorf(exit.Usage, "a replay needs a preset or a trace file, and not both")
	}
	return nil
}

// openStreams makes the loads: what each client replays.
func (w *work) openStreams() error {
	spec := w.spec
	warm := func(int) traces.Source { return nil }
	var stream func(i int) traces.Source
	if spec.Preset != "" {
		p, err := traces.FindPreset(spec.Preset)
		if err != nil {
			return err
		}
		g, err := traces.NewGenerator(traces.GenConfig{Preset: p, Seed: spec.Seed, Keys: spec.Keys, Requests: spec.Requests, Clients: spec.Total})
		if err != nil {
			return err
		}
		stream = func(i int) traces.Source { return g.Stream(spec.First + i) }
		if spec.Warm {
			warm = func(i int) traces.Source { return g.Keys(spec.First+i, spec.Total) }
		}
	} else {
		if err := w.openTrace(); err != nil {
			return err
		}
		w.o.TraceStart = w.dealer.FirstTime()
		stream = w.dealer.Source
	}
	w.warming.Store(int64(len(w.clients)))
	for i, c := range w.clients {
		m := &meter{src: stream(i), c: c}
		w.meters = append(w.meters, m)
		w.loads = append(w.loads, replay.Load{Cache: c.cache, Stream: m, Warm: &gate{src: warm(i), m: m, w: w}})
	}
	return nil
}

func (w *work) openTrace() error {
	dealing, err := replay.ParseDealing(w.spec.Deal)
	if err != nil {
		return err
	}
	w.reader, err = traces.Open(w.spec.Path, traces.ReaderOptions{SkipBad: w.spec.SkipBad, Name: w.spec.Name})
	if err != nil {
		return exit.Trace(err)
	}
	w.dealer, err = replay.Deal(w.reader, dealing, w.spec.First, w.spec.Clients, w.spec.Total)
	return err
}

// run replays, gives everything back, and returns what was measured whatever happens.
func (w *work) run(job *control.Job) *control.Result {
	res := w.measure(job)
	if err := w.close(); err != nil && res.Error == nil {
		res.Error = control.FailureOf(err)
	}
	return res
}

// measure replays.
func (w *work) measure(job *control.Job) *control.Result {
	over := make(chan struct{})
	var helpers sync.WaitGroup
	helpers.Go(func() { w.progress(over, job) })
	helpers.Go(func() { w.start(over, job) })
	helpers.Go(func() { w.hurry(over) })
	measured, err := replay.Run(w.ctx, w.o, w.loads)
	close(over)
	helpers.Wait()
	res := &control.Result{Replay: measured}
	for _, m := range w.meters {
		d := m.measured()
		stats.Add(&res.Counters, &d)
	}
	if w.reader != nil {
		w.stopDealing()
		var first error
		if res.Skipped, first = w.reader.Skipped(); first != nil {
			res.FirstBad = first.Error()
		}
	}
	res.Error = w.failure(err)
	return res
}

// stopDealing ends the dealing of the trace, if there is one: then the reader is free. A trace is a file, so the dealer does not wait in it.
func (w *work) stopDealing() {
	if w.dealer != nil {
		w.dealer.Close()
		<-w.dealer.Finished()
	}
}

// failure of a replay; errors of traces that are cut or malformed keep their code.
func (w *work) failure(err error) *control.Failure {
	if err != nil && exit.Of(err) == exit.Other && w.reader != nil && w.reader.Err() != nil {
		err = exit.With(exit.NoTrace, err)
	}
	return control.FailureOf(err)
}

// start lets the clients go when all are warm and the command says so.
func (w *work) start(over <-chan struct{}, job *control.Job) {
	select {
	case <-w.warm:
	case <-over: // it could not begin
		return
	}
	if w.ctx.Err() != nil || !job.Ready(w.ctx, w.progressNow()) {
		w.o.Stop()
	}
	close(w.open)
}

// progress reports the progress until the replay is over.
func (w *work) progress(over <-chan struct{}, job *control.Job) {
	t := time.NewTicker(progressInterval)
	defer t.Stop()
	for {
		select {
		case <-over:
			return
		case <-t.C:
		}
		select {
		case <-w.open:
			job.Progress(w.progressNow())
		default:
			job.Warming(w.progressNow())
		}
	}
}

// hurry interrupts clients that do not end although they should: they wait
// for a lock that is not released.
func (w *work) hurry(over <-chan struct{}) {
	select {
	case <-over:
		return
	case <-w.ctx.Done():
	}
	select {
	case <-over:
		return
	case <-time.After(stopGrace):
	}
	for _, c := range w.clients {
		if c.interrupt != nil {
			c.interrupt()
		}
	}
}

func (w *work) progressNow() control.Progress {
	p := w.o.Progress
	return control.Progress{
		Warmed: p.Warmed.Load(), Ops: p.Ops.Load(), Reads: p.Reads.Load(), Hits: p.Hits.Load(),
		Errors: p.Errors.Load() + p.VerifyFailures.Load(),
	}
}

// total returns what the clients have counted in all, warming included.
func (w *work) total() (t control.Counters) {
	for _, m := range w.meters {
		d := m.seen()
		stats.Add(&t, &d)
	}
	return t
}

// close gives everything back. The clients are idle.
func (w *work) close() error {
	w.o.Stop()
	var errs []error
	for i, c := range w.clients {
		if c.resume != nil {
			c.resume()
		}
		if i == len(w.clients)-1 && c.drain != nil {
			// So that memory is not lost with this compute node. Of an unreachable memory node it is lost anyway.
			_ = c.drain()
		}
		errs = append(errs, c.close())
	}
	w.clients = nil
	w.stopDealing()
	if w.reader != nil {
		errs = append(errs, w.reader.Close())
	}
	return errors.Join(errs...)
}

// A gate is the end of a client's warming: it holds the client until all are warm.
type gate struct {
	src traces.Source // nil: nothing to warm with
	m   *meter
	w   *work
}

func (g *gate) Next(rec *traces.Record) bool {
	if g.src != nil && g.src.Next(rec) {
		return true
	}
	g.m.begin()
	if g.w.warming.Add(-1) == 0 {
		close(g.w.warm)
	}
	select {
	case <-g.w.open:
	case <-g.w.ctx.Done():
	}
	return false
}

func (g *gate) Err() error {
	if g.src != nil {
		return g.src.Err()
	}
	return nil
}

// A meter is a client's stream, which shows others the client's counters now
// and then: they belong to its goroutine.
type meter struct {
	src traces.Source
	c   *client
	n   uint

	mu     sync.Mutex
	before control.Counters // when measuring began
	latest control.Counters
}

// meterEvery is after how many records the counters are shown.
const meterEvery = 64

func (m *meter) Next(rec *traces.Record) bool {
	if m.n++; m.n%meterEvery == 0 {
		m.show()
	}
	ok := m.src.Next(rec)
	if !ok {
		m.show()
	}
	return ok
}

func (m *meter) Err() error { return m.src.Err() }

// Close implements io.Closer for a replay that is stopped.
func (m *meter) Close() error {
	if c, ok := m.src.(interface{ Close() error }); ok {
		return c.Close()
	}
	return nil
}

func (m *meter) show() {
	now := m.c.counters()
	m.mu.Lock()
	m.latest = now
	m.mu.Unlock()
}

func (m *meter) begin() {
	m.show()
	m.mu.Lock()
	m.before = m.latest
	m.mu.Unlock()
}

func (m *meter) seen() control.Counters {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest
}

// measured returns what was counted since begin. The client is idle.
func (m *meter) measured() control.Counters {
	m.show()
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.latest
	stats.Subtract(&d, &m.before)
	return d
}
