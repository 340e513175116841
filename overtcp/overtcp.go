package overtcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/tcp"
)

func init() {
	declock.Register("tcp", func(ctx context.Context, rest string) (fabric.Node, error) {
		o, err := Parse(rest)
		if err != nil {
			return nil, err
		}
		return o.Join(ctx)
	})
}

// base are the options of fabric/tcp that nodes of both kinds have.
func (o *Options) base() (tcp.Options, error) {
	to := tcp.Options{Listen: o.Listen, Advertise: o.Advertise, Note: o.Note, Insecure: o.Insecure, DeadAfter: o.DeadAfter, Heartbeat: o.DeadAfter / 5, SilentAfter: o.SilentAfter, Local: o.Local, Report: o.Report}
	switch {
	case o.TLS.Given():
		var err error
		if to.TLS, err = o.TLS.Config(); err != nil {
			return to, err
		}
	case !o.Insecure:
		return to, fmt.Errorf("%w: no TLS: give tls-ca, tls-cert and tls-key (as flags --tls-ca FILE .., in an address ?tls-ca=FILE&..), or insecure (--insecure, ?insecure=true), "+
			"which lets any program in that can reach this process", tcp.ErrOptions)
	case o.Listen == "" && o.Advertise == "":
		return to, o.checkHere()
	}
	return to, nil
}

// checkHere is for a node that would listen on the loopback, for want of TLS: a cluster whose etcd is on other hosts is on other hosts itself,
// and nodes that are each on their own loopback do not find each other.
func (o *Options) checkHere() error {
	for _, e := range o.Etcd {
		host, _, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(e, "https://"), "http://"))
		if err != nil || host == "localhost" || net.ParseIP(host).IsLoopback() { // else a Unix socket
			continue
		}
		return fmt.Errorf("%w: without TLS a node listens on the loopback, where no node on %s can reach it: say where to listen "+
			"(--listen HOST:PORT, in an address ?listen=HOST:PORT), on the loopback if all nodes are on this host", tcp.ErrOptions, host)
	}
	return nil
}

// open connects to the coordinator, which ctx bounds: with a password it waits for etcd. It returns the options of fabric/tcp with it.
func (o *Options) open(ctx context.Context) (tcp.Options, *etcd.Coordinator, error) {
	to, err := o.base()
	if err != nil {
		return to, nil, err
	}
	c, err := o.Membership().Coordinator(ctx)
	if err == nil {
		to.Members, to.Left = c, c.Close
	}
	return to, c, err
}

// Check checks the options, certificates included, without connecting to anything.
func (o *Options) Check() error {
	to, c, err := o.open(context.Background())
	if err != nil {
		return err
	}
	return errors.Join(to.Check(), c.Close())
}

// Join makes the process a compute node.
func (o *Options) Join(ctx context.Context) (fabric.Node, error) {
	to, c, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	n, err := tcp.Join(ctx, to)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return n, nil
}

// A Memory says what memory a memory node lends.
type Memory struct {
	ID      fabric.MemID
	Size    uint64 // bytes
	File    string // that keeps it; see tcp.Options
	Huge    bool
	Workers int // goroutines that execute operations; 0: see tcp.Options

	Replicas int // copies of its number; see tcp.Options
	// MinInSync is how many of them are to be in sync where data is changed.
	MinInSync int
	Label     string // what fails with it
	Room      uint64 // bytes for copies of others
}

// Serve starts a memory node.
func (o *Options) Serve(ctx context.Context, m Memory) (*tcp.MemoryServer, error) {
	to, c, err := o.open(ctx)
	if err != nil {
		return nil, err
	}
	to.Mem, to.Size, to.File, to.Huge, to.Workers = m.ID, m.Size, m.File, m.Huge, m.Workers
	to.Replicas, to.MinInSync, to.Label, to.Room = m.Replicas, m.MinInSync, m.Label, m.Room
	s, err := tcp.Serve(ctx, to)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s, nil
}

// Members returns the members, without becoming one.
func (o *Options) Members(ctx context.Context) (*member.State, error) {
	return o.Membership().Members(ctx)
}
