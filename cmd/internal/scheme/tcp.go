package scheme

import (
	"cmp"
	"context"
	"net"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/overtcp"
)

var tcpScheme = Scheme{Name: "tcp", Form: overtcp.Form, Parse: parseTCP}

// parseTCP reads the address; flags go before what it says itself.
func parseTCP(rest string, o Options) (Cluster, error) {
	to := o.Options
	if err := to.Add(rest); err != nil {
		return nil, err
	}
	if _, port, err := net.SplitHostPort(o.HTTP); err == nil && port != "0" {
		to.Note = httpNote + o.HTTP
	}
	return &tcpCluster{network{"tcp", *to.Membership(), to.TLS, o.RunDir}, to}, nil
}

type tcpCluster struct {
	network
	o overtcp.Options
}

func (c *tcpCluster) Check(role Role) error {
	if err := c.o.Check(); err != nil {
		return err
	}
	return c.checkFiles(role)
}

func (c *tcpCluster) Serve(ctx context.Context, m Memory) (Server, error) {
	srv, err := c.o.Serve(ctx, overtcp.Memory{ID: m.ID, Size: m.Size, File: m.Path, Huge: m.Huge != HugeOff, Replicas: m.Replicas, MinInSync: m.MinInSync, Label: m.Label, Room: m.DefaultRoom()})
	if err != nil {
		return nil, err
	}
	return tcpServer{srv, cmp.Or(m.MaxCN, DefaultMaxCN)}, nil
}

func (c *tcpCluster) Join(ctx context.Context) (fabric.Node, error) { return c.o.Join(ctx) }

func (c *tcpCluster) Visit(ctx context.Context) (fabric.Node, error) {
	o := c.o
	o.Listen, o.Advertise = visiting(o.Listen, o.Advertise)
	return o.Join(ctx)
}

type tcpServer struct {
	*tcp.MemoryServer
	maxCN int
}

func (s tcpServer) MaxCN() int { return s.maxCN }

func (s tcpServer) Details() []Detail { return []Detail{{"listen", s.Addr().String()}} }
