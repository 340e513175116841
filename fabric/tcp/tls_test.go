package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/secure/securetest"
)

func withTLS(cfg *tls.Config) func(*Options) {
	return func(o *Options) { o.TLS, o.Insecure = cfg, false }
}

func TestConformanceTLS(t *testing.T) {
	if testing.Short() {
		t.Skip("TestConformance without TLS has been run")
	}
	a := securetest.New(t)
	fabrictest.Run(t, tlsHarness{harness{change: withTLS(a.Config("all", peer.NameMN, peer.NameCN))}})
}

// A tlsHarness runs clusters with TLS, which allocates.
type tlsHarness struct{ harness }

type tlsCluster struct{ *testCluster }

func (tlsCluster) Allocates() string { return "crypto/tls allocates" }

func (h tlsHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	return tlsCluster{h.harness.Start(t, cfg).(*testCluster)}
}

// A node may be what the names in its certificate say, and the member whose common name the coordinator has.
func TestCertificates(t *testing.T) {
	a, stranger := securetest.New(t), securetest.New(t)
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = withTLS(a.Config("memory-3", peer.NameMN, "mn0.declock"))
	s := c.Serve(0, 1<<20)
	c.change = withTLS(a.Config("compute-1", peer.NameCN))
	n := c.Join()
	peertest.Do(t, peertest.Open(t, n), fabric.FAA(fabric.At(0, 64), 1))

	join := func(cfg *tls.Config) error {
		c.change = withTLS(cfg)
		n, err := Join(context.Background(), c.options())
		if err == nil {
			n.Close()
		}
		return err
	}
	if err := join(a.Config("compute-2", peer.NameCN)); err != nil {
		t.Errorf("a compute node of its own: %v", err)
	}
	if err := join(a.Config("memory-3", peer.NameMN)); !errors.Is(err, ErrAuth) {
		t.Errorf("a memory node's certificate as a compute node: %v", err)
	}
	if err := join(stranger.Config("compute-2", peer.NameCN)); !errors.Is(err, ErrAuth) {
		t.Errorf("another authority's certificate: %v", err)
	}
	mixed := stranger.Config("compute-2", peer.NameCN)
	mixed.RootCAs = a.Config("any").RootCAs
	if err := join(mixed); err == nil {
		t.Error("a certificate that the memory node does not know was accepted")
	}
	// A member's incarnation with another member's certificate.
	raw := func(cfg *tls.Config, index uint16) error {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		cfg.ServerName = peer.NameMN
		h := hello{role: roleLane, cn: uint8(n.Own.ID), index: index, min: 1, max: 1, from: uint64(n.Own.Incarnation), to: uint64(s.peer.Own.Incarnation)}
		st := &stream{tls: tls.Client(conn, cfg)}
		_, err = st.greet(nil, &h)
		return err
	}
	if err := raw(a.Config("compute-1", peer.NameCN), 7); err != nil {
		t.Errorf("a member with its own certificate: %v", err)
	}
	own := s.connOf(t, laneKey{n.Own.Incarnation, 0, target{}})
	for index := range uint16(2) {
		if err := raw(a.Config("compute-2", peer.NameCN), index); !errors.Is(err, ErrAuth) {
			t.Errorf("a member's incarnation with another's certificate: %v", err)
		}
	}
	if own.isCut() {
		t.Error("a refused node has cut the member's own connection")
	}
	// No TLS where TLS is due.
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	h := hello{role: roleLane, cn: 1, min: 1, max: 1, from: 1, to: 1}
	if _, err := (&stream{}).greet(&switchConn{conn}, &h); err == nil {
		t.Error("a hello without TLS was answered")
	}
}

// A certificate for memory node 0 does not do for memory node 1.
func TestCertificateOfAnotherMemoryNode(t *testing.T) {
	a := securetest.New(t)
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = withTLS(a.Config("memory-0", peer.NameMN, "mn0.declock"))
	c.Serve(0, 1<<20)
	c.Serve(1, 1<<20)
	c.change = withTLS(a.Config("compute-1", peer.NameCN))
	if n, err := Join(context.Background(), c.options()); !errors.Is(err, ErrAuth) {
		t.Errorf("joined a cluster with a memory node under another's name: %v", err)
		if err == nil {
			n.Close()
		}
	}
}

func TestOptions(t *testing.T) {
	a := securetest.New(t)
	c := newTestCluster(t)
	for name, change := range map[string]func(o *Options){
		"no coordinator":        func(o *Options) { o.Members = nil },
		"neither TLS nor leave": func(o *Options) { o.Insecure = false },
		"TLS and Insecure":      func(o *Options) { o.TLS = a.Config("x", peer.NameMN) },
		"TLS of one side": func(o *Options) {
			withTLS(a.Config("x", peer.NameMN))(o)
			o.TLS.ClientAuth = tls.NoClientCert
		},
		"no certificate": func(o *Options) {
			withTLS(a.Config("x", peer.NameMN))(o)
			o.TLS.Certificates = nil
		},
		"no common name":     withTLS(a.Config("", peer.NameMN)),
		"heartbeat":          func(o *Options) { o.Heartbeat, o.DeadAfter = time.Second, time.Second },
		"memory node 64":     func(o *Options) { o.Mem = MaxMN },
		"listen":             func(o *Options) { o.Listen = "nonsense" },
		"no size":            func(o *Options) { o.Size = 0 },
		"more than there is": func(o *Options) { o.Size = fabric.MaxOffset + 1 },
		"workers":            func(o *Options) { o.Workers = 1000 },
	} {
		o := c.options()
		o.Size = 4096
		change(&o)
		if s, err := Serve(context.Background(), o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				s.Close()
			}
		}
	}
	o := c.options()
	o.Lanes = 99
	if _, err := Join(context.Background(), o); !errors.Is(err, ErrOptions) {
		t.Errorf("99 lanes: %v", err)
	}
}

// Without TLS a node listens on the loopback by default: no node of another host is let in by accident.
func TestInsecureListensOnTheLoopback(t *testing.T) {
	for name, c := range map[string]struct {
		o     Options
		mn    string
		cn    string
		reach bool // members elsewhere are no error
	}{
		"insecure":                {Options{Insecure: true}, "127.0.0.1:7490", "127.0.0.1:0", false},
		"insecure, and said so":   {Options{Insecure: true, Listen: ":0"}, ":0", ":0", true},
		"insecure, and advertise": {Options{Insecure: true, Advertise: "10.0.0.1"}, ":7490", ":0", true},
		"TLS":                     {Options{TLS: securetest.New(t).Config("x", peer.NameMN, peer.NameCN)}, ":7490", ":0", true},
	} {
		c.o.Members, c.o.Size = coordinator.NewMemory(fabric.MaxCN), 4096
		mn, cn := c.o, c.o
		if err := errors.Join(mn.checkServe(), cn.checkJoin()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if mn.Listen != c.mn || cn.Listen != c.cn {
			t.Errorf("%s: listens on %q and %q, want %q and %q", name, mn.Listen, cn.Listen, c.mn, c.cn)
		}
		here := &member.State{MNs: []member.MN{{Addr: "127.0.0.1:7490"}}, CNs: []member.CN{{Addr: "[::1]:7"}}}
		if err := cn.checkReach(here); err != nil {
			t.Errorf("%s: members on the loopback: %v", name, err)
		}
		there := &member.State{MNs: here.MNs, CNs: []member.CN{{Addr: "10.0.0.2:7"}}}
		if err := cn.checkReach(there); (err == nil) != c.reach {
			t.Errorf("%s: a member elsewhere: %v", name, err)
		}
	}
}

// A node that would be alone with its loopback in a cluster of other hosts gets an error when it joins, and does not stay.
func TestInsecureJoinOfAClusterElsewhere(t *testing.T) {
	c := newTestCluster(t)
	c.change = func(o *Options) { o.Listen, o.Advertise = "127.0.0.1:0", "192.0.2.1" }
	c.Serve(0, 4096)
	o := testOptions(t, c.Members.Now())
	o.Listen = ""
	if n, err := Join(context.Background(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "--listen") {
		t.Errorf("joined: %v", err)
		if err == nil {
			n.Close()
		}
	}
}
