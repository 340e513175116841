package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/internal/stats"
	"github.com/declock/declock/traces/replay"
)

// A Member is a process that takes part in a replay.
type Member struct {
	Name   string
	Client *control.Client
}

// cancelTimeout is how long members may take to end a replay that was cancelled.
const cancelTimeout = 20 * time.Second

// An Outcome is what a replay over several processes measured.
type Outcome struct {
	Result   *replay.Result
	Counters control.Counters
	Resets   uint64 // led to the end, all causes
	Members  int    // whose result is in it
	Lost     []error
	Skipped  int64
	FirstBad string
	// Err is why the replay ended before its time, if it did.
	Err error
	// Interrupted: because the context ended.
	Interrupted bool
}

// An event is a reply of a member, or the end of its connection.
type event struct {
	i     int
	reply *control.Reply
	err   error
}

// run is a replay under way.
type run struct {
	members  []*Member
	events   chan event
	progress []control.Progress
	ready    int // members that wait for start
	out      *Outcome
	started  bool
	canceled bool
	show     func(measuring bool, p control.Progress)
}

// Replay has all members do their parts, and adds up the results. specs are one
// for each member. show is called with the progress. When ctx ends, the replay is
// cancelled and the outcome is what was measured so far.
func Replay(ctx context.Context, members []*Member, specs []*control.Replay, show func(measuring bool, p control.Progress)) (*Outcome, error) {
	r := &run{
		members: members, events: make(chan event, 4*len(members)), show: show,
		progress: make([]control.Progress, len(members)),
		out:      &Outcome{Result: new(replay.Result)},
	}
	stop := make(chan struct{})
	defer close(stop)
	for i, m := range members {
		if err := m.Client.Send(control.Request{Op: control.OpReplay, Replay: specs[i]}); err != nil {
			// If it refused, it said why.
			if _, why := m.Client.Next(); why != nil && !errors.Is(why, control.ErrClosed) {
				err = why
			}
			return nil, fmt.Errorf("%s: %w", m.Name, err)
		}
		go r.read(i, stop)
	}
	return r.out, r.loop(ctx)
}

func (r *run) read(i int, stop <-chan struct{}) {
	for {
		reply, err := r.members[i].Client.Next()
		select {
		case r.events <- event{i, reply, err}:
		case <-stop:
			return
		}
		if err != nil || reply.Type == control.TypeResult {
			return
		}
	}
}

// loop handles events until all members have ended.
func (r *run) loop(ctx context.Context) error {
	var giveUp <-chan time.Time
	done := ctx.Done()
	for left := len(r.members); left > 0; {
		select {
		case <-done:
			done = nil
			r.out.Interrupted = true
			r.cancel()
			giveUp = time.After(cancelTimeout)
		case <-giveUp:
			return exit.Errorf(exit.NodeLost, "%d of %d processes did not end their replay after %v", left, len(r.members), cancelTimeout)
		case e := <-r.events:
			ended, err := r.handle(e)
			if err != nil {
				return err
			}
			if ended {
				left--
			}
			if r.failed() && giveUp == nil {
				r.cancel()
				giveUp = time.After(cancelTimeout)
			}
		}
	}
	return nil
}

// failed reports whether the replay is to end because of an error.
func (r *run) failed() bool { return r.out.Err != nil || len(r.out.Lost) == len(r.members) }

func (r *run) cancel() {
	if r.canceled {
		return
	}
	r.canceled = true
	for _, m := range r.members {
		_ = m.Client.Send(control.Request{Op: control.OpCancel}) // one that has gone need not be notified
	}
}

// handle handles an event of a member, and reports whether it is the last.
func (r *run) handle(e event) (ended bool, err error) {
	name := r.members[e.i].Name
	switch {
	case e.err != nil && errors.Is(e.err, control.ErrClosed):
		lost := exit.Errorf(exit.NodeLost, "%s has gone: its part of the result is lost", name)
		r.out.Lost = append(r.out.Lost, lost)
		if !r.started {
			r.out.Err = errors.Join(r.out.Err, lost)
		}
		return true, nil
	case e.err != nil:
		if r.out.Err == nil {
			r.out.Err = fmt.Errorf("%s: %w", name, e.err)
		}
		return true, nil
	}
	if p := e.reply.Progress; p != nil {
		r.progress[e.i] = *p
		r.showAll()
	}
	switch e.reply.Type {
	case control.TypeReady: // once, but earlier progress may arrive after it
		if r.ready++; r.ready == len(r.members) {
			r.start()
		}
	case control.TypeResult:
		return true, r.add(name, e.reply.Result)
	}
	return false, nil
}

func (r *run) showAll() {
	var sum control.Progress
	for i := range r.progress {
		stats.Add(&sum, &r.progress[i])
	}
	r.show(r.started, sum)
}

// start starts to measure.
func (r *run) start() {
	r.started = true
	for _, m := range r.members {
		_ = m.Client.Send(control.Request{Op: control.OpStart}) // the reader notices one that has gone
	}
	r.showAll()
}

// add adds a member's result.
func (r *run) add(name string, res *control.Result) error {
	if res == nil {
		return exit.Errorf(exit.Mismatch, "%s: a result without content", name)
	}
	o := r.out
	if res.Replay != nil {
		if err := o.Result.Merge(res.Replay); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	o.Members++
	stats.Add(&o.Counters, &res.Counters)
	o.Resets += res.Resets.Led
	// Every process reads a whole trace file: each sees the same bad lines.
	if res.Skipped > o.Skipped {
		o.Skipped, o.FirstBad = res.Skipped, res.FirstBad
	}
	if res.Replay != nil && res.Replay.Stopped && !r.canceled && res.Error.Err() == nil {
		o.Lost = append(o.Lost, exit.Errorf(exit.NodeLost, "%s stopped before its end without having been asked to", name))
	}
	if err := res.Error.Err(); err != nil && o.Err == nil {
		o.Err = fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
