package daemon

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/front"
	"github.com/declock/declock/front/memcached"
	"github.com/declock/declock/objstore"
)

// A frontServer serves clients of another system.
type frontServer interface {
	Attach(*declock.Cluster, declock.StoreConfig) error
	Detach()
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Counters() front.Counters
	StoreStats() objstore.Stats
	// MaxMemory is how much memory its clients can have it hold, about.
	MaxMemory() int64
}

// A frontEnd is a server of the compute node, and where it listens.
type frontEnd struct {
	frontServer
	d      *CN
	name   string // of the protocol
	listen string // as it was given
	l      net.Listener
}

// front listens at HOST:PORT, or at the path of a unix socket, for the clients of a server.
func (d *CN) front(name, listen string, srv frontServer) error {
	network := "tcp"
	if strings.Contains(listen, "/") {
		network = "unix"
	}
	l, err := net.Listen(network, listen)
	if err != nil {
		return exit.Errorf(exit.InUse, "cannot serve clients of %s at %s: %w", name, listen, err)
	}
	f := &frontEnd{srv, d, name, listen, l}
	d.fronts = append(d.fronts, f)
	go f.ended(func() error { return srv.Serve(l) })
	return nil
}

// ended says so if a listener does not serve any more.
func (f *frontEnd) ended(serve func() error) {
	if err := serve(); !errors.Is(err, memcached.ErrServerClosed) && !errors.Is(err, front.ErrClosed) {
		f.d.cfg.Log.Error(f.name+": not serving any more", "error", err.Error())
	}
}

// bytesPerItem is what the index expects an item to have, about: more of smaller ones find room in overflow blocks.
const bytesPerItem = 1 << 10

// attachFronts has clients served with the cluster that was joined.
func (d *CN) attachFronts() error {
	var memory uint64
	for _, r := range d.cluster.Node().Regions() {
		memory += r.Size()
	}
	for i, f := range d.fronts {
		if err := f.Attach(d.cluster, declock.StoreConfig{Objects: max(memory/bytesPerItem, 1<<12)}); err != nil {
			for _, f := range d.fronts[:i] {
				f.Detach()
			}
			return err
		}
	}
	return nil
}

// detachFronts has clients served no more, until attachFronts. They stay connected.
func (d *CN) detachFronts() {
	for _, f := range d.fronts {
		f.Detach()
	}
}

// drainFor is how long connections may take to end when the compute node is stopped.
const drainFor = 10 * time.Second

// closeFronts lets the requests that have arrived be answered, and ends.
func (d *CN) closeFronts() {
	ctx, cancel := context.WithTimeout(context.Background(), drainFor)
	defer cancel()
	for _, f := range d.fronts {
		if err := f.Shutdown(ctx); err != nil {
			d.cfg.Log.Warn(f.name+": connections cut", "error", err.Error())
		}
	}
}

// addr returns where it listens.
func (f *frontEnd) addr() string { return cmp.Or(f.l.Addr().String(), f.listen) }

// counters returns what all servers have counted.
func (d *CN) counters() (all []front.Counters) {
	for _, f := range d.fronts {
		all = append(all, f.Counters())
	}
	return all
}
