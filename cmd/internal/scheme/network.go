package scheme

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/internal/membership"
	"github.com/declock/declock/internal/secure"
)

// A network is what clusters over tcp and verbs have in common: etcd knows their members.
type network struct {
	scheme  string
	members membership.Options
	tls     secure.Files // between nodes
	runBase string
}

func (n *network) Address() string { return n.members.Address(n.scheme) }
func (n *network) Scheme() string  { return n.scheme }

// RunDir is the same whatever the order of the endpoints.
func (n *network) RunDir() string {
	sorted := n.members
	sorted.Etcd = slices.Sorted(slices.Values(sorted.Etcd))
	return runDir(n.runBase, sorted.Address(n.scheme))
}

// checkFiles checks certificates: that they are valid now, that their CA accepts them, and that they are for a role.
func (n *network) checkFiles(role Role) error {
	now := time.Now()
	if n.tls.Given() {
		if err := n.tls.Check(now, role); err != nil {
			return err
		}
	}
	if n.members.TLS.Given() {
		if err := n.members.TLS.Check(now, nil); err != nil {
			return fmt.Errorf("for etcd: %w", err)
		}
	}
	return nil
}

func (n *network) Certificates() (list []string) {
	for _, path := range []string{n.tls.CA, n.tls.Cert, n.members.TLS.CA, n.members.TLS.Cert} {
		if path != "" && !slices.Contains(list, path) {
			list = append(list, path)
		}
	}
	return list
}

// Forget implements Forgetter.
func (n *network) Forget(ctx context.Context, id fabric.MemID) error {
	e, err := n.members.Coordinator(ctx)
	if err != nil {
		return err
	}
	return errors.Join(e.ForgetMN(ctx, id), e.Close())
}

// Move implements Mover.
func (n *network) Move(ctx context.Context, next func(*member.State) (member.Step, error), show func(step member.Step, s *member.State)) (err error) {
	e, err := n.members.Coordinator(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	w, err := e.Watch(ctx)
	if err != nil {
		return err
	}
	for shown := ""; ; {
		s, newer := w.State()
		if s != nil {
			step, err := next(s)
			if err != nil || step.What == "" {
				return err
			}
			if step.What != shown {
				shown = step.What
				show(step, s)
			}
			if step.Change != nil {
				if err := e.Change(ctx, *step.Change); err != nil && !errors.Is(err, member.ErrChanged) { // the news of another change is on its way
					return err
				}
			}
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// visiting returns the addresses of a visitor, which has a port of its own: the one that was given may be the memory node's.
func visiting(listen, advertise string) (string, string) {
	if host, _, err := net.SplitHostPort(listen); err == nil {
		listen = net.JoinHostPort(host, "0")
	}
	if host, _, err := net.SplitHostPort(advertise); err == nil {
		advertise = host
	}
	return listen, advertise
}

// Describe asks the coordinator.
func (n *network) Describe(ctx context.Context) (*Info, error) {
	s, err := n.members.Members(ctx)
	if err != nil {
		return nil, err
	}
	return describeState(n.Address(), s)
}

// describeState describes a cluster by the coordinator's state.
func describeState(address string, s *member.State) (*Info, error) {
	info := &Info{State: "up", View: s.Revision}
	for _, m := range s.MNs {
		info.Memory = append(info.Memory, MemoryInfo{Node: m.ID.String(), Size: m.Size, Epoch: m.Epoch, Alive: true, Address: hostPort(m.Addr)})
	}
	for _, g := range s.Groups {
		x := GroupInfo{Number: g.ID.String(), Replicas: g.Factor, MinInSync: g.MinInSync, Term: g.Term, Epoch: g.Epoch, Serving: g.Serving, Drained: s.Has(g.Draining)}
		for _, r := range g.Replicas {
			x.Copies = append(x.Copies, ReplicaInfo{Node: r.ID.String(), Alive: s.Has(r.Host), Phase: r.Phase.String()})
		}
		info.Groups = append(info.Groups, x)
	}
	for _, g := range s.Waiting {
		info.addWaiting(s, g)
	}
	for _, m := range s.Down {
		info.Memory = append(info.Memory, MemoryInfo{Node: m.ID.String(), Epoch: m.Epoch})
	}
	for _, c := range s.CNs {
		info.Compute = append(info.Compute, ComputeInfo{Node: c.ID.String(), Alive: true, Address: hostPort(c.Addr), HTTP: httpOf(c.Addr)})
	}
	for _, c := range s.Fencing {
		info.Compute = append(info.Compute, ComputeInfo{Node: c.ID.String(), Address: hostPort(c.Addr)})
	}
	if len(s.MNs) == 0 || len(s.Down)+len(s.Fencing) > 0 {
		info.State = "partial"
	}
	if len(s.MNs)+len(info.Compute) == 0 {
		return nil, noMembers(address)
	}
	return info, nil
}

// addWaiting adds that a number waits, because etcd has lost its data: the copies are those that the latest configuration names which a memory node knows.
func (info *Info) addWaiting(s *member.State, g *member.Group) {
	i := slices.IndexFunc(info.Groups, func(x GroupInfo) bool { return x.Number == g.ID.String() })
	if i < 0 {
		x := GroupInfo{Number: g.ID.String(), Replicas: g.Factor, Term: g.Term, Epoch: g.Epoch}
		missing := s.Missing(g)
		for _, r := range g.Lost.Group.Replicas {
			x.Copies = append(x.Copies, ReplicaInfo{Node: r.ID.String(), Alive: !slices.Contains(missing, r), Phase: r.Phase.String()})
		}
		i, info.Groups = len(info.Groups), append(info.Groups, x)
	}
	var wait, adopt []string
	for _, r := range s.Missing(g) {
		wait = append(wait, r.ID.String())
	}
	for _, m := range s.Adoptable(g) {
		adopt = append(adopt, "--from "+m.ID.String())
	}
	why := "etcd has lost its data, and " + strings.Join(wait, ", ") + " may have a later copy: if that is gone, "
	if len(g.Replicas) > 0 {
		why = "etcd has lost its data, and it has begun anew before a memory node with a copy joined: say whose copy counts: "
	}
	if len(adopt) > 0 {
		why += "declock mn adopt " + strings.Join(adopt, " or ")
	} else {
		why += "declock mn abandon"
	}
	info.Groups[i].Waits = why
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

// hostPort returns where a member is reached.
func hostPort(addr string) string {
	at, _ := tcp.ParseAddress(addr)
	return at
}
