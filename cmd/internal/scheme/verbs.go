package scheme

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/declock/declock"
	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/verbs"
	"github.com/declock/declock/internal/membership"
	"github.com/declock/declock/internal/secure"
)

var verbsScheme = Scheme{Name: "verbs", Form: membership.Form("verbs"), Parse: parseVerbs}

// parseVerbs reads //ETCD[,ETCD..]/NAME.
func parseVerbs(rest string, o Options) (Cluster, error) {
	m, query, err := membership.Parse("verbs", rest)
	if err == nil && query != "" {
		err = fmt.Errorf("%q: nothing may be said behind a question mark: use flags", "verbs:"+rest)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", declock.ErrAddress, err)
	}
	o.Etcd, o.Cluster = m.Etcd, m.Cluster
	return &verbsCluster{network{"verbs", *o.Membership(), o.TLS, o.RunDir}, o}, nil
}

type verbsCluster struct {
	network
	o Options
}

// options are those of Serve and Join, with a coordinator that the node closes, and the caller if there is none.
func (c *verbsCluster) options(ctx context.Context) (verbs.Options, *etcd.Coordinator, error) {
	vo := verbs.Options{
		Listen: c.o.Listen, Advertise: c.o.Advertise, Insecure: c.o.Insecure, Device: c.o.Device, Port: c.o.Port, GID: c.o.GID,
		QueuePairs: c.o.QueuePairs, DeadAfter: c.o.DeadAfter, Heartbeat: c.o.DeadAfter / 5, Report: c.o.Report,
	}
	var err error
	if c.o.TLS.Given() {
		if vo.TLS, err = c.o.TLS.Config(); err != nil {
			return vo, nil, err
		}
	}
	if c.o.SecretFile == "" && !c.o.TLS.Given() && !c.o.Insecure {
		return vo, nil, fmt.Errorf("%w: no Secret and no TLS: give --secret-file, or --tls-ca, --tls-cert and --tls-key, or --insecure, which lets in any program that can reach this node", verbs.ErrOptions)
	}
	if c.o.SecretFile != "" {
		if vo.Secret, err = secure.Secret(c.o.SecretFile); err != nil {
			return vo, nil, err
		}
	}
	e, err := c.members.Coordinator(ctx)
	if err != nil {
		return vo, nil, err
	}
	vo.Members, vo.Left = e, e.Close
	return vo, e, nil
}

func (c *verbsCluster) Check(role Role) error {
	vo, e, err := c.options(context.Background())
	if err != nil {
		return err
	}
	if err := errors.Join(vo.Check(), e.Close()); err != nil {
		return err
	}
	return c.checkFiles(role)
}

func (c *verbsCluster) Serve(ctx context.Context, m Memory) (Server, error) {
	vo, e, err := c.options(ctx)
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

func (c *verbsCluster) Join(ctx context.Context) (fabric.Node, error) {
	vo, e, err := c.options(ctx)
	if err != nil {
		return nil, err
	}
	n, err := verbs.Join(ctx, vo)
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return n, nil
}

func (c *verbsCluster) Visit(ctx context.Context) (fabric.Node, error) {
	v := *c
	v.o.Listen, v.o.Advertise = visiting(v.o.Listen, v.o.Advertise)
	return v.Join(ctx)
}

type verbsServer struct {
	*verbs.MemoryServer
	maxCN int
}

func (s verbsServer) MaxCN() int { return s.maxCN }

func (s verbsServer) Details() []Detail {
	return []Detail{{"listen", s.Addr().String()}, {"device", s.Device().String()}}
}
