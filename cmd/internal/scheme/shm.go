package scheme

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
)

var shmScheme = Scheme{Name: "shm", Form: "shm:NAME", Parse: func(rest string, o Options) (Cluster, error) {
	if rest == "" {
		return nil, fmt.Errorf("%w: \"shm:\" has no name: want shm:NAME", declock.ErrAddress)
	}
	return shmCluster{name: rest, dir: o.Dir, deadAfter: o.DeadAfter, report: o.Report}, nil
}}

// SHM returns the cluster with a name in a directory of shm clusters.
func SHM(name, dir string) Cluster { return shmCluster{name: name, dir: dir} }

type shmCluster struct {
	name, dir string
	deadAfter time.Duration // of processes that do not run; 0: never
	report    func(error)
}

func (c shmCluster) Address() string { return "shm:" + c.name }
func (c shmCluster) Scheme() string  { return "shm" }

// RunDir is the directory with the cluster's memory.
func (c shmCluster) RunDir() string {
	dir := c.dir
	if dir == "" {
		dir = shm.DefaultDir
	}
	return filepath.Join(dir, "declock-"+c.name)
}

func (c shmCluster) Serve(_ context.Context, m Memory) (Server, error) {
	huge := map[Huge]shm.HugePolicy{HugeOff: shm.HugeOff, HugeTry: shm.HugeTry, HugeRequire: shm.HugeRequire}[m.Huge]
	srv, err := shm.Serve(shm.Options{
		Name: c.name, Dir: c.dir, Mem: m.ID, Size: m.Size, MaxCN: m.MaxCN, Huge: huge, Path: m.Path, Keep: m.Keep, Lease: c.deadAfter, Report: c.report,
	})
	if err != nil {
		return nil, err
	}
	info, err := shm.Inspect(c.dir, c.name)
	if err != nil {
		_ = srv.Close()
		return nil, err
	}
	return shmServer{srv, info.MaxCN}, nil
}

func (c shmCluster) Join(ctx context.Context) (fabric.Node, error) {
	return shm.Join(ctx, shm.Options{Name: c.name, Dir: c.dir})
}

func (c shmCluster) Check(Role) error       { return nil }
func (c shmCluster) Certificates() []string { return nil }

func (c shmCluster) Visit(ctx context.Context) (fabric.Node, error) { return c.Join(ctx) }

func (c shmCluster) Describe(context.Context) (*Info, error) {
	info, err := shm.Inspect(c.dir, c.name)
	if err != nil {
		return nil, err
	}
	out := &Info{State: shmState(info), Dir: info.Dir, View: info.View.Epoch, MaxCN: info.MaxCN, Broken: info.Broken}
	for _, m := range info.Memory {
		x := MemoryInfo{Node: m.ID.String(), Pid: m.PID, Alive: m.Alive, Epoch: m.Epoch, Size: m.Size, Keep: m.Keep, Path: m.Path}
		if m.Broken != nil {
			x.Error = m.Broken.Error()
		}
		out.Memory = append(out.Memory, x)
	}
	for _, n := range info.Compute {
		out.Compute = append(out.Compute, ComputeInfo{Node: n.ID.String(), Pid: n.PID, Alive: n.Alive, Joined: time.Unix(0, int64(n.Joined)).UTC().Format(time.RFC3339)})
	}
	return out, nil
}

// shmState is one word for a cluster.
func shmState(info *shm.ClusterInfo) string {
	switch {
	case errors.Is(info.Broken, fs.ErrPermission), errors.Is(info.Broken, shm.ErrForeign):
		return Denied
	case info.Broken != nil:
		return Broken
	}
	dead, up := 0, 0
	for _, m := range info.Memory {
		if m.Alive && m.Broken == nil {
			up++
		} else {
			dead++
		}
	}
	for _, n := range info.Compute {
		if !n.Alive {
			dead++
		}
	}
	switch {
	case !info.Alive():
		return "dead"
	case dead > 0 || up == 0:
		return "partial"
	}
	return "up"
}

type shmServer struct {
	*shm.MemoryServer
	maxCN int
}

func (s shmServer) MaxCN() int { return s.maxCN }

func (s shmServer) Details() []Detail {
	huge, why := s.Huge()
	switch {
	case huge == "" && why == "":
		huge = "off"
	case huge == "":
		huge = "none (" + why + ")"
	}
	return []Detail{{"memory", s.Path()}, {"huge", huge}}
}
