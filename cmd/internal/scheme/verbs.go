package scheme

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/verbs"
	"github.com/declock/declock/internal/secure"
)

var verbsScheme = Scheme{Name: "verbs", Form: "verbs://HOST[:PORT]", Parse: parseVerbs}

// parseVerbs reads //HOST[:PORT], where memory node 0 is.
func parseVerbs(rest string, o Options) (Cluster, error) {
	address := "verbs:" + rest
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", declock.ErrAddress, address, err)
	}
	if u.Hostname() == "" || u.User != nil || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%w: %q: want verbs://HOST[:PORT], the host of memory node 0", declock.ErrAddress, address)
	}
	port := u.Port()
	if port == "" {
		port = strconv.Itoa(verbs.DefaultPort)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return nil, fmt.Errorf("%w: %q: no port %q", declock.ErrAddress, address, port)
	}
	return &verbsCluster{lead: net.JoinHostPort(u.Hostname(), port), port: port, o: o}, nil
}

type verbsCluster struct {
	lead, port string
	o          Options
}

func (c *verbsCluster) Address() string { return "verbs://" + c.lead }
func (c *verbsCluster) Scheme() string  { return "verbs" }
func (c *verbsCluster) RunDir() string  { return runDir(c.o.RunDir, c.Address()) }

// options are those of Serve and Join.
func (c *verbsCluster) options() (verbs.Options, error) {
	vo := verbs.Options{
		Listen: c.o.Listen, Advertise: c.o.Advertise, Insecure: c.o.Insecure, Device: c.o.Device, Port: c.o.Port, GID: c.o.GID,
		QueuePairs: c.o.QueuePairs, DeadAfter: c.o.DeadAfter,
	}
	if c.o.DeadAfter > 0 {
		vo.Heartbeat = c.o.DeadAfter / 5
	}
	var err error
	if c.o.TLS.Given() {
		if vo.TLS, err = c.o.TLS.Config(); err != nil {
			return vo, err
		}
	}
	if c.o.SecretFile != "" {
		if vo.Secret, err = secure.Secret(c.o.SecretFile); err != nil {
			return vo, err
		}
	}
	return vo, nil
}

func (c *verbsCluster) Serve(_ context.Context, m Memory) (Server, error) {
	vo, err := c.options()
	if err != nil {
		return nil, err
	}
	vo.Mem, vo.Size, vo.Report = m.ID, m.Size, c.o.Report
	vo.Huge = map[Huge]verbs.HugePolicy{HugeOff: verbs.HugeOff, HugeTry: verbs.HugeTry, HugeRequire: verbs.HugeRequire}[m.Huge]
	if m.ID != 0 {
		vo.Lead = c.lead
	} else if vo.Listen == "" {
		vo.Listen = ":" + c.port
	}
	srv, err := verbs.Serve(vo)
	if err != nil {
		return nil, err
	}
	maxCN := m.MaxCN
	if maxCN == 0 {
		maxCN = DefaultMaxCN
	}
	return verbsServer{srv, maxCN}, nil
}

func (c *verbsCluster) Join(ctx context.Context) (fabric.Node, error) {
	vo, err := c.options()
	if err != nil {
		return nil, err
	}
	vo.Lead = c.lead
	return verbs.Join(ctx, vo)
}

// Visit joins at a port of its own: the one that was given may be the memory node's.
func (c *verbsCluster) Visit(ctx context.Context) (fabric.Node, error) {
	v := *c
	v.o.Advertise = ""
	if host, _, err := net.SplitHostPort(v.o.Listen); err == nil {
		v.o.Listen = net.JoinHostPort(host, "0")
	}
	return v.Join(ctx)
}

// Describe is a compute node for a moment: membership is known to members only.
func (c *verbsCluster) Describe(ctx context.Context) (*Info, error) {
	n, err := c.Visit(ctx)
	if err != nil {
		return nil, err
	}
	return describeNode(n), n.Close()
}

// describeNode tells what a compute node knows, without itself.
func describeNode(n fabric.Node) *Info {
	v := n.View()
	info := &Info{State: "up", View: v.Epoch}
	for _, m := range n.Memory() {
		info.Memory = append(info.Memory, MemoryInfo{Memory: m, Alive: true})
	}
	if len(info.Memory) == 0 {
		info.State = "partial"
	}
	for cn, ok := v.Live.Next(0); ok; cn, ok = v.Live.Next(cn) {
		if cn != n.ID() {
			info.Compute = append(info.Compute, ComputeInfo{ID: cn, Alive: true})
		}
	}
	return info
}

type verbsServer struct {
	*verbs.MemoryServer
	maxCN int
}

func (s verbsServer) MaxCN() int { return s.maxCN }

func (s verbsServer) Details() []Detail {
	return []Detail{{"listen", s.Addr().String()}, {"device", s.Device().String()}}
}
