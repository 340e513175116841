package scheme

import (
	"cmp"
	"context"
	"errors"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/verbs"
	"github.com/declock/declock/oververbs"
)

var verbsScheme = Scheme{Name: "verbs", Form: oververbs.Form, Parse: parseVerbs}

// parseVerbs reads the address; flags go before what it says itself.
func parseVerbs(rest string, o Options) (Cluster, error) {
	vo := oververbs.Options{
		Listen: o.Listen, Advertise: o.Advertise, SecretFile: o.SecretFile, TLS: o.TLS, Insecure: o.Insecure,
		Device: o.Device, Port: o.Port, GID: o.GID, QueuePairs: o.QueuePairs,
		EtcdTLS: o.EtcdTLS, EtcdUser: o.EtcdUser, EtcdPasswordFile: o.EtcdPasswordFile, DeadAfter: o.DeadAfter, Report: o.Report,
	}
	if err := vo.Add(rest); err != nil {
		return nil, err
	}
	return &verbsCluster{network{"verbs", *vo.Membership(), vo.TLS, o.RunDir}, vo}, nil
}

type verbsCluster struct {
	network
	o oververbs.Options
}

func (c *verbsCluster) Check(role Role) error {
	vo, e, err := c.o.Open(context.Background())
	if err != nil {
		return err
	}
	if err := errors.Join(vo.Check(), e.Close()); err != nil {
		return err
	}
	return c.checkFiles(role)
}

func (c *verbsCluster) Serve(ctx context.Context, m Memory) (Server, error) {
	vo, e, err := c.o.Open(ctx)
	if err != nil {
		return nil, err
	}
	vo.Mem, vo.Size = m.ID, m.Size
	vo.Huge = map[Huge]verbs.HugePolicy{HugeOff: verbs.HugeOff, HugeTry: verbs.HugeTry, HugeRequire: verbs.HugeRequire}[m.Huge]
	srv, err := verbs.Serve(ctx, vo)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return verbsServer{srv, cmp.Or(m.MaxCN, DefaultMaxCN)}, nil
}

func (c *verbsCluster) Join(ctx context.Context) (fabric.Node, error) { return c.o.Join(ctx) }

func (c *verbsCluster) Visit(ctx context.Context) (fabric.Node, error) {
	o := c.o
	o.Listen, o.Advertise = visiting(o.Listen, o.Advertise)
	return o.Join(ctx)
}

type verbsServer struct {
	*verbs.MemoryServer
	maxCN int
}

func (s verbsServer) MaxCN() int { return s.maxCN }

func (s verbsServer) Details() []Detail {
	return []Detail{{"listen", s.Addr().String()}, {"device", s.Device().String()}}
}
