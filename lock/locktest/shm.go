//go:build linux

package locktest

import (
	"context"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/fabrictest"
	"github.com/declock/declock/fabric/shm"
)

// Shm is a Harness of shared-memory clusters in a directory, with a goroutine
// for each client.
func Shm(dir string) fabrictest.Harness { return shmHarness(dir) }

type shmHarness string

func (h shmHarness) Start(t testing.TB, cfg fabrictest.Config) fabrictest.Cluster {
	t.Helper()
	s := &shmCluster{t: t}
	o := shm.Options{Name: "locktest", Dir: string(h)}
	for i, size := range cfg.Mem {
		o.Mem, o.Size = fabric.MemID(i), size
		srv, err := shm.Serve(o)
		if err != nil {
			t.Fatal(err)
		}
		s.servers = append(s.servers, srv)
	}
	for range cfg.CNs {
		n, err := shm.Join(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		s.nodes = append(s.nodes, n)
	}
	return s
}

type shmCluster struct {
	fabrictest.Goroutines
	t       testing.TB
	servers []*shm.MemoryServer
	nodes   []fabric.Node
}

func (s *shmCluster) Node(i int) fabric.Node { return s.nodes[i] }

func (s *shmCluster) Close() {
	for _, n := range s.nodes {
		if err := n.Close(); err != nil {
			s.t.Error(err)
		}
	}
	for _, srv := range s.servers {
		if err := srv.Close(); err != nil {
			s.t.Error(err)
		}
	}
}
