package app

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

const statusDescription = `Without --cluster it lists all clusters of this machine, dead ones too. Counters come from the compute nodes'
control sockets; a compute node that is a program with the library, or that is stopped, has none to show.

Examples:
   declock status
   declock status --cluster shm:demo --json`

// A clusterRow is a cluster in the output of status.
type clusterRow struct {
	Cluster string           `json:"cluster"`
	Dir     string           `json:"dir"`
	State   string           `json:"state"` // up, partial, dead, broken
	Error   string           `json:"error,omitempty"`
	MaxCN   int              `json:"max_cn"`
	View    uint64           `json:"view"`
	Memory  []memoryRow      `json:"memory"`
	Compute []computeRow     `json:"compute"`
	Regions []control.Memory `json:"regions,omitempty"`
}

type memoryRow struct {
	Node  string `json:"node"`
	Pid   int    `json:"pid"`
	Alive bool   `json:"alive"`
	Epoch uint32 `json:"epoch"`
	Size  uint64 `json:"size"`
	Keep  bool   `json:"keep"`
	Path  string `json:"path"`
}

type computeRow struct {
	Node   string          `json:"node"`
	Pid    int             `json:"pid"`
	Alive  bool            `json:"alive"`
	Joined string          `json:"joined"`
	Status *control.Status `json:"status,omitempty"`
	Note   string          `json:"note,omitempty"` // why there is no status
}

func statusCommand(env *Env) *cli.Command {
	var cluster, dir string
	var asJSON bool
	return command(&cli.Command{
		Name: "status", Usage: "show the clusters of this machine", Category: "look", Description: statusDescription,
		Flags: []cli.Flag{clusterFlag(&cluster, "show the cluster at `ADDRESS` only, as shm:NAME"), dirFlag(&dir), jsonFlag(&asJSON)},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			names, err := clusterNames(dir, cluster)
			if err != nil {
				return err
			}
			var rows []any
			for _, name := range names {
				row, err := describe(c.Context, dir, name)
				if exit.Of(err) == exit.NoCluster && cluster == "" {
					continue // it has gone meanwhile
				}
				if err != nil {
					return err
				}
				rows = append(rows, row)
			}
			if asJSON {
				r := report.Report{Experiment: "status", Fabric: "shm", Commit: report.Commit(), Config: map[string]any{"dir": dir}, Rows: rows}
				return r.WriteJSON(env.Stdout)
			}
			return writeStatus(env.Stdout, dir, rows)
		},
	})
}

// clusterNames returns the cluster of an address, or all.
func clusterNames(dir, cluster string) ([]string, error) {
	if cluster != "" {
		name, err := daemon.ClusterName(cluster)
		return []string{name}, err
	}
	names, err := shm.List(dir)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "cannot list the clusters of %s: %w", dir, err)
	}
	// A directory in which only sockets are left is not shm's, but ours.
	left, _ := filepath.Glob(filepath.Join(dir, "declock-*"))
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), "declock-")
		if len(control.Sockets(path)) > 0 && checkName(name) == nil && !contains(names, name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// describe tells what there is of a cluster.
func describe(ctx context.Context, dir, name string) (*clusterRow, error) {
	info, err := shm.Inspect(dir, name)
	if err != nil {
		return nil, err
	}
	row := &clusterRow{Cluster: "shm:" + name, Dir: info.Dir, MaxCN: info.MaxCN, View: info.View.Epoch, State: stateOf(info)}
	if info.Broken != nil {
		row.Error = info.Broken.Error()
		return row, nil
	}
	memoryUp := false
	for _, m := range info.Memory {
		memoryUp = memoryUp || m.Alive
		row.Memory = append(row.Memory, memoryRow{Node: m.ID.String(), Pid: m.PID, Alive: m.Alive, Epoch: m.Epoch, Size: m.Size, Keep: m.Keep, Path: m.Path})
	}
	for _, n := range info.Compute {
		r := computeRow{Node: n.ID.String(), Pid: n.PID, Alive: n.Alive, Joined: time.Unix(0, int64(n.Joined)).UTC().Format(time.RFC3339)}
		if n.Alive {
			s, err := askStatus(ctx, filepath.Join(info.Dir, control.SocketName(n.ID)))
			if err != nil {
				r.Note = "no answer from a control socket: a program with the library, or stopped"
			} else {
				r.Status = s
				row.Regions = s.Memory
				s.Memory = nil // once is enough
			}
		}
		row.Compute = append(row.Compute, r)
	}
	if row.Regions == nil && memoryUp {
		row.Regions = regionsByJoining(ctx, dir, name)
	}
	return row, nil
}

// regionsByJoining looks into memory where no compute node could be asked to: it is
// one itself for a moment. If it cannot, there is nothing to show.
func regionsByJoining(ctx context.Context, dir, name string) []control.Memory {
	c, err := declock.Open(ctx, "shm:"+name, declock.WithDir(dir))
	if err != nil {
		return nil
	}
	defer c.Close()
	return daemon.DescribeMemory(ctx, c)
}

// stateOf is one word for a cluster.
func stateOf(info *shm.ClusterInfo) string {
	if info.Broken != nil {
		return "broken"
	}
	dead, up := 0, 0
	for _, m := range info.Memory {
		if m.Alive {
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

// writeStatus writes clusters for people.
func writeStatus(w io.Writer, dir string, rows []any) error {
	p := &lineWriter{w: w}
	if len(rows) == 0 {
		p.printf("no clusters in %s\n", dir)
	}
	for i, r := range rows {
		if i > 0 {
			p.printf("\n")
		}
		p.cluster(r.(*clusterRow))
	}
	return p.err
}

type lineWriter struct {
	w   io.Writer
	err error
}

func (p *lineWriter) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *lineWriter) table(t *report.Table) {
	if p.err == nil && len(t.Rows) > 0 {
		p.err = t.Write(p.w)
	}
}

func (p *lineWriter) cluster(r *clusterRow) {
	p.printf("cluster %s is %s: view %d, at most %d compute nodes, in %s\n", r.Cluster, r.State, r.View, r.MaxCN, r.Dir)
	name := strings.TrimPrefix(r.Cluster, "shm:")
	switch r.State {
	case "broken":
		p.printf("  %s\n  remove it: declock clean %s\n", r.Error, name)
		return
	case "dead":
		p.printf("  all its processes have gone; remove what they left: declock clean %s\n", name)
	case "partial":
		p.printf("  some of its nodes have died; the next that joins or leaves removes what they left\n")
	}
	used := map[string]*control.Memory{}
	for i := range r.Regions {
		used[r.Regions[i].Node] = &r.Regions[i]
	}
	mem := &report.Table{Head: []string{"memory node", "pid", "alive", "epoch", "size", "used", "memory"}}
	for _, m := range r.Memory {
		taken := "-"
		if u := used[m.Node]; u != nil && u.Used > 0 {
			taken = fmt.Sprintf("%s (%.0f%%)", units.Bytes(u.Used), 100*float64(u.Used)/float64(u.Size))
		}
		mem.Add(m.Node, fmt.Sprint(m.Pid), yesNo(m.Alive), fmt.Sprint(m.Epoch), units.Bytes(m.Size), taken, m.Path)
	}
	p.table(mem)
	cns := &report.Table{Head: []string{"compute node", "pid", "alive", "lock", "acquires", "local", "remote", "resets", "replay"}}
	for _, n := range r.Compute {
		row := []string{n.Node, fmt.Sprint(n.Pid), yesNo(n.Alive), "-", "-", "-", "-", "-", n.Note}
		if s := n.Status; s != nil {
			l := &s.Counters.Locks
			row = []string{n.Node, fmt.Sprint(n.Pid), yesNo(n.Alive), s.Policy, units.Count(l.Acquires), units.Count(l.HandoversLocal),
				units.Count(l.HandoversRemote), units.Count(s.Resets.Led), jobText(s.Job)}
		}
		cns.Add(row...)
	}
	p.table(cns)
	p.roots(r.Regions)
}

func (p *lineWriter) roots(regions []control.Memory) {
	t := &report.Table{Head: []string{"root entry", "kind", "address", "size", "made by"}}
	for _, m := range regions {
		for _, e := range m.Entries {
			t.Add(e.Name, e.Kind, e.Address, units.Bytes(e.Length), e.Creator)
		}
		if m.Error != "" {
			p.printf("  %s: %s\n", m.Node, m.Error)
		}
	}
	p.table(t)
}

func jobText(j *control.Progress) string {
	if j == nil {
		return "-"
	}
	if j.Ops == 0 {
		return fmt.Sprintf("filling: %s objects", units.Count(j.Warmed))
	}
	return units.Count(j.Ops) + " operations"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
