package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
)

// A Load is what one client of [Run] works with.
type Load struct {
	Cache objstore.Cache
	// Warm, if not nil, is stored before anything is measured.
	Warm traces.Source
	// Stream is what is measured. If it is an io.Closer, a stopped replay closes it, to wake a client that waits for a record.
	Stream traces.Source
}

// Run replays with one goroutine per load. All clients are warm before the first is measured. When
// ctx is done, each client ends within an operation; that is no error, and the
// result says Stopped. With an error (ErrTooMany, or a stream's) the result is what was measured until then.
func Run(ctx context.Context, o Options, loads []Load) (*Result, error) {
	own := o.Stop == nil
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(loads) == 0 {
		return nil, fmt.Errorf("%w: no clients", ErrOptions)
	}
	if own {
		ctx, o.Stop = context.WithCancel(ctx)
		defer o.Stop()
	}
	defer closeWhenDone(ctx, loads)()

	clients := make([]*Client, len(loads))
	for i := range loads {
		if clients[i], err = NewClient(loads[i].Cache, o.FirstClient+i, o); err != nil {
			return nil, err
		}
	}
	err = each(clients, func(i int, c *Client) error {
		if loads[i].Warm == nil {
			return nil
		}
		return c.Warm(ctx, loads[i].Warm)
	})
	if err == nil {
		start := wallNow()
		err = each(clients, func(i int, c *Client) error {
			c.start = start
			return c.Run(ctx, loads[i].Stream)
		})
	}
	total := new(Result)
	for _, c := range clients {
		if e := total.Merge(c.Result()); e != nil {
			return total, e
		}
	}
	total.Stopped = total.Stopped || ctx.Err() != nil
	return total, err
}

// each runs f for all clients at once. ErrTooMany has stopped the others; an error of a stream has
// not: what was whole of a cut trace is replayed to its end by all.
func each(clients []*Client, f func(i int, c *Client) error) error {
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { errs[i] = f(i, c) })
	}
	wg.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, ErrTooMany) }); i >= 0 {
		return errs[i]
	}
	return cmp.Or(errs...)
}

// closeWhenDone wakes the clients that wait for a record when ctx is done. What it returns ends it.
func closeWhenDone(ctx context.Context, loads []Load) (end func()) {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		for _, l := range loads {
			if c, ok := l.Stream.(io.Closer); ok {
				_ = c.Close()
			}
		}
	})
	return func() {
		if !stop() {
			<-closed
		}
	}
}
