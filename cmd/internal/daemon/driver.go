package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/traces/memcached"
)

// dialer returns a function that connects a client to a target that is not the cluster's.
func dialer(target string) opener {
	return func(context.Context, *control.Replay) (*client, error) {
		c, err := memcached.DialTarget(target, memcached.Options{})
		if err != nil {
			return nil, exit.With(exit.NoTarget, err)
		}
		return &client{cache: c, counters: func() control.Counters { return control.Counters{} }, close: c.Close}, nil
	}
}

// A Driver replays against a target that is no cluster.
type Driver struct{ job sync.Mutex }

// RunDriver serves the control protocol on an inherited socket until its other end closes.
func RunDriver(fd, procs int) error {
	if procs > 0 {
		runtime.GOMAXPROCS(procs)
	}
	f := os.NewFile(uintptr(fd), "control")
	if f == nil {
		return exit.Errorf(exit.Usage, "descriptor %d is not open", fd)
	}
	c, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w", fd, err)
	}
	_ = f.Close()
	srv := control.NewServer(&Driver{})
	srv.Serve(c)
	srv.Close()
	return nil
}

// Status implements control.Handler.
func (d *Driver) Status() *control.Status {
	return &control.Status{Node: "driver", Pid: os.Getpid(), Procs: runtime.GOMAXPROCS(0)}
}

// Replay implements control.Handler.
func (d *Driver) Replay(ctx context.Context, spec *control.Replay, job *control.Job) (*control.Result, error) {
	if !d.job.TryLock() {
		return nil, exit.Errorf(exit.Busy, "the driver has a replay under way")
	}
	defer d.job.Unlock()
	w, err := newWork(ctx, spec, dialer(spec.Target))
	if err != nil {
		return nil, err
	}
	return w.run(job), nil
}
