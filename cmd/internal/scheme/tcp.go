package scheme

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/overtcp"
)

var tcpScheme = Scheme{Name: "tcp", Form: overtcp.Form, Parse: parseTCP}

// parseTCP reads the address; flags go before what it says itself.
func parseTCP(rest string, o Options) (Cluster, error) {
	to, err := overtcp.Parse(rest)
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&to.Listen, o.Listen}, {&to.Advertise, o.Advertise}, {&to.TLS.CA, o.TLS.CA}, {&to.TLS.Cert, o.TLS.Cert}, {&to.TLS.Key, o.TLS.Key},
		{&to.EtcdTLS.CA, o.EtcdTLS.CA}, {&to.EtcdTLS.Cert, o.EtcdTLS.Cert}, {&to.EtcdTLS.Key, o.EtcdTLS.Key},
		{&to.EtcdUser, o.EtcdUser}, {&to.EtcdPasswordFile, o.EtcdPasswordFile},
	} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	to.Insecure = to.Insecure || o.Insecure
	if o.DeadAfter != 0 {
		to.DeadAfter = o.DeadAfter
	}
	to.Report = o.Report
	if _, port, err := net.SplitHostPort(o.HTTP); err == nil && port != "0" {
		to.Note = httpNote + o.HTTP
	}
	return &tcpCluster{o: to, runBase: o.RunDir}, nil
}

// httpNote begins the note by which members say where their status is.
const httpNote = "http="

// httpOf returns where a member's status is: host:port, or nothing. A member that is reached from other hosts, and has its
// status on loopback, has none for them: there they would find a daemon of their own.
func httpOf(addr string) string {
	hostPort, note := tcp.ParseAddress(addr)
	at, ok := strings.CutPrefix(note, httpNote)
	host, port, err := net.SplitHostPort(at)
	if !ok || err != nil {
		return ""
	}
	member, _, _ := net.SplitHostPort(hostPort)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = member
	}
	if isLoopback(host) && !isLoopback(member) {
		return ""
	}
	return net.JoinHostPort(host, port)
}

func isLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

type tcpCluster struct {
	o       overtcp.Options
	runBase string
}

func (c *tcpCluster) Address() string { return c.o.Address() }
func (c *tcpCluster) Scheme() string  { return "tcp" }

// RunDir is the same whatever the order of the endpoints.
func (c *tcpCluster) RunDir() string {
	sorted := c.o
	sorted.Etcd = slices.Sorted(slices.Values(c.o.Etcd))
	return runDir(c.runBase, sorted.Address())
}

// Check is Check of package scheme.
func (c *tcpCluster) Check(role Role) error {
	if err := c.o.Check(); err != nil {
		return err
	}
	return checkFiles(c.o.TLS, c.o.EtcdTLS, role)
}

// Certificates is Certificates of package scheme.
func (c *tcpCluster) Certificates() []string { return certificates(c.o.TLS, c.o.EtcdTLS) }

// Forget implements Forgetter.
func (c *tcpCluster) Forget(ctx context.Context, id fabric.MemID) error {
	return forget(ctx, c.o.Coordinator, id)
}

// forget has a coordinator forget a memory node.
func forget(ctx context.Context, coordinator func(context.Context) (*etcd.Coordinator, error), id fabric.MemID) error {
	e, err := coordinator(ctx)
	if err != nil {
		return err
	}
	return errors.Join(e.ForgetMN(ctx, id), e.Close())
}

func (c *tcpCluster) Serve(ctx context.Context, m Memory) (Server, error) {
	srv, err := c.o.Serve(ctx, overtcp.Memory{ID: m.ID, Size: m.Size, File: m.Path, Huge: m.Huge != HugeOff})
	if err != nil {
		return nil, err
	}
	maxCN := m.MaxCN
	if maxCN == 0 {
		maxCN = DefaultMaxCN
	}
	return tcpServer{srv, maxCN}, nil
}

func (c *tcpCluster) Join(ctx context.Context) (fabric.Node, error) { return c.o.Join(ctx) }

// Visit joins at a port of its own: the one that was given may be the memory node's.
func (c *tcpCluster) Visit(ctx context.Context) (fabric.Node, error) {
	o := c.o
	if host, _, err := net.SplitHostPort(o.Listen); err == nil {
		o.Listen = net.JoinHostPort(host, "0")
	}
	if host, _, err := net.SplitHostPort(o.Advertise); err == nil {
		o.Advertise = host
	}
	return o.Join(ctx)
}

// Describe asks the coordinator.
func (c *tcpCluster) Describe(ctx context.Context) (*Info, error) {
	s, err := c.o.Members(ctx)
	if err != nil {
		return nil, err
	}
	return describeState(c.Address(), s)
}

// describeState tells what the coordinator knows of a cluster.
func describeState(address string, s *member.State) (*Info, error) {
	info := &Info{State: "up", View: s.Revision}
	for _, m := range s.MNs {
		info.Memory = append(info.Memory, MemoryInfo{Memory: fabric.Memory{ID: m.ID, Size: m.Size, Epoch: m.Epoch}, Alive: true, Where: hostPort(m.Addr)})
	}
	for _, m := range s.Down {
		info.Memory = append(info.Memory, MemoryInfo{Memory: fabric.Memory{ID: m.ID, Epoch: m.Epoch}})
	}
	for _, n := range s.CNs {
		info.Compute = append(info.Compute, ComputeInfo{ID: n.ID, Alive: true, Where: hostPort(n.Addr), HTTP: httpOf(n.Addr)})
	}
	for _, n := range s.Fencing {
		info.Compute = append(info.Compute, ComputeInfo{ID: n.ID, Where: hostPort(n.Addr)})
	}
	if len(s.MNs) == 0 || len(s.Down)+len(s.Fencing) > 0 {
		info.State = "partial"
	}
	if len(s.MNs)+len(info.Compute) == 0 {
		return nil, noMembers(address)
	}
	return info, nil
}

// hostPort returns where a member is reached.
func hostPort(addr string) string {
	at, _ := tcp.ParseAddress(addr)
	return at
}

type tcpServer struct {
	*overtcp.Server
	maxCN int
}

func (s tcpServer) MaxCN() int { return s.maxCN }

// Counters returns what the software NIC has counted.
func (s tcpServer) Counters() metrics.MemoryCounters {
	c := s.Stats()
	return metrics.MemoryCounters{Ops: c.Ops, ReadBytes: c.ReadBytes, WriteBytes: c.WriteBytes, Frames: c.Frames, Batches: c.Batches, Connections: c.Connections}
}

func (s tcpServer) Details() []Detail { return []Detail{{"listen", s.Addr().String()}} }
