package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

const statusDescription = `It shows nodes, memory with the locks, stores and trees in it, and counters. Without --cluster it lists all clusters of this machine, dead ones too. Counters come from the compute nodes'
control sockets, and with --cluster tcp://.. those of other hosts from the addresses of their --http; a compute node that is a program with the
library, or that is stopped, has none to show.

Examples:
   declock status
   declock status --cluster shm:demo --json`

// A clusterRow is a cluster in the output of status.
type clusterRow struct {
	Cluster string              `json:"cluster"`
	Dir     string              `json:"dir"`
	State   string              `json:"state"` // up, partial, dead, broken, denied
	Error   string              `json:"error,omitempty"`
	MaxCN   int                 `json:"max_cn"`
	View    uint64              `json:"view"`
	Memory  []scheme.MemoryInfo `json:"memory"`
	Groups  []scheme.GroupInfo  `json:"groups,omitempty"`
	Compute []computeRow        `json:"compute"`
	Regions []control.Memory    `json:"regions,omitempty"`
	// Coordinator says why the coordinator does not answer, if it does not: this command, or compute nodes.
	Coordinator string `json:"coordinator,omitempty"`

	local bool // what daemons on this machine say, over another fabric than shm
}

type computeRow struct {
	scheme.ComputeInfo
	Status *control.Status `json:"status,omitempty"`
	Note   string          `json:"note,omitempty"` // why there is no status
}

func statusCommand(env *command.Env) *cli.Command {
	var net node.Network
	var asJSON bool
	return command.Complete(&cli.Command{
		Name: "status", Usage: "show the clusters of this machine", Category: "look", Description: statusDescription,
		Flags: append(net.Flags("show the cluster at `ADDRESS` only, as "+scheme.Forms()), command.JSONFlag(&asJSON)),
		Action: func(c *cli.Context) error {
			rows, fabric, err := statusRows(c, &net)
			if err != nil {
				return err
			}
			r := report.Report{Experiment: "status", Fabric: fabric, Config: map[string]any{"dir": net.Options.Dir}, Rows: report.Rows(rows)}
			return env.Print(asJSON, r, func(w io.Writer) { writeStatus(w, net.Options.Dir, rows) })
		},
	})
}

// statusRows describes the cluster that was asked for, or all that this machine knows of.
func statusRows(c *cli.Context, net *node.Network) (rows []*clusterRow, fabric string, err error) {
	if err := net.Settings.Load(c); err != nil {
		return nil, "", err
	}
	ctx := c.Context
	if net.Cluster != "" {
		at, err := net.Parse(c)
		if err != nil {
			return nil, "", err
		}
		row, err := describe(ctx, at)
		return []*clusterRow{row}, at.Scheme(), err
	}
	names, err := clusterNames(net.Options.Dir)
	if err != nil {
		return nil, "", err
	}
	for _, name := range names {
		row, err := describe(ctx, scheme.SHM(name, net.Options.Dir))
		if exit.Of(err) == exit.NoCluster {
			continue // it has gone meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		rows = append(rows, row)
	}
	return append(rows, overNetworks(ctx, net.Options.RunDir)...), "shm", nil
}

// clusterNames returns all shm clusters of a directory.
func clusterNames(dir string) ([]string, error) {
	names, err := shm.List(dir)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "cannot list the clusters of %s: %w", dir, err)
	}
	// A directory in which only sockets are left is not shm's, but ours.
	left, _ := filepath.Glob(filepath.Join(dir, "declock-*"))
	for _, path := range left {
		name := strings.TrimPrefix(filepath.Base(path), "declock-")
		if len(control.Sockets(path)) > 0 && command.CheckName(name) == nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names, nil
}

// overNetworks describes clusters of other fabrics that have compute-node daemons on this machine.
func overNetworks(ctx context.Context, runDir string) (rows []*clusterRow) {
	dirs, _ := os.ReadDir(scheme.RunBase(runDir))
	for _, d := range dirs {
		dir := filepath.Join(scheme.RunBase(runDir), d.Name())
		if here := askAll(ctx, dir); len(here) > 0 {
			rows = append(rows, seenBy(dir, here))
		}
	}
	return rows
}

// newest returns the status with the latest view; nil: there is none.
func newest(here map[string]*control.Status) (last *control.Status) {
	for _, s := range here {
		if last == nil || s.View > last.View {
			last = s
		}
	}
	return last
}

// seenBy describes a cluster by what its compute nodes on this machine say.
func seenBy(runDir string, here map[string]*control.Status) *clusterRow {
	s := newest(here)
	row := &clusterRow{Cluster: s.Address, Dir: runDir, State: "up", View: s.View, Regions: s.Memory, local: true}
	for _, m := range s.Memory {
		row.Memory = append(row.Memory, scheme.MemoryInfo{Node: m.Node, Alive: true, Epoch: m.Epoch, Size: m.Size})
	}
	for _, node := range s.Live {
		row.Compute = append(row.Compute, computeRow{ComputeInfo: scheme.ComputeInfo{Node: node, Alive: true}, Status: here[node]})
	}
	row.finish()
	return row
}

// finish marks memory nodes that compute nodes cannot use, and says why compute nodes have no status.
func (row *clusterRow) finish() {
	for _, seen := range row.Regions {
		if i := slices.IndexFunc(row.Memory, func(m scheme.MemoryInfo) bool { return m.Node == seen.Node }); i >= 0 && seen.Error != "" && !strings.HasPrefix(row.Cluster, "shm:") {
			row.Memory[i].Alive, row.State = false, "partial"
		}
	}
	for i := range row.Compute {
		switch r := &row.Compute[i]; {
		case r.Status != nil:
			r.Pid, r.Status.Memory = r.Status.Pid, nil // that of one is enough
		case r.Alive:
			r.Note = "no answer from a control socket here: on another host, a program with the library, or stopped"
		}
	}
}

// describe tells what there is of a cluster: by its coordinator, and where that does not answer, by its compute nodes on this machine.
func describe(ctx context.Context, at scheme.Cluster) (*clusterRow, error) {
	here := askAll(ctx, at.RunDir())
	asking := ctx
	if len(here) > 0 { // they will do
		var cancel context.CancelFunc
		asking, cancel = context.WithTimeout(ctx, statusTimeout)
		defer cancel()
	}
	info, err := at.Describe(asking)
	switch {
	case err != nil && len(here) > 0:
		row := seenBy(at.RunDir(), here)
		row.Coordinator = err.Error()
		return row, nil
	case err != nil:
		return nil, err
	}
	row := &clusterRow{Cluster: at.Address(), Dir: info.Dir, MaxCN: info.MaxCN, View: info.View, State: info.State, Memory: info.Memory, Groups: info.Groups}
	if info.Broken != nil {
		row.Error = info.Broken.Error()
		return row, nil
	}
	if s := newest(here); s != nil {
		row.Dir, row.View, row.Regions = cmp.Or(info.Dir, at.RunDir()), s.View, s.Memory
	}
	row.Compute = computeRows(ctx, at, info.Compute, here)
	for _, r := range row.Compute {
		if r.Status != nil && row.Regions == nil {
			row.Regions = r.Status.Memory
		}
	}
	if row.Regions == nil && slices.ContainsFunc(row.Memory, func(m scheme.MemoryInfo) bool { return m.Alive }) {
		row.Regions = regionsByJoining(ctx, at)
	}
	row.finish()
	return row, nil
}

// computeRows describes compute nodes. Those of other hosts are asked at the same time, within one bound: a silent one delays no other.
func computeRows(ctx context.Context, at scheme.Cluster, nodes []scheme.ComputeInfo, here map[string]*control.Status) []computeRow {
	ctx, stop := context.WithTimeout(ctx, statusTimeout)
	defer stop()
	rows := make([]computeRow, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		r := &rows[i]
		if r.ComputeInfo = n; !n.Alive {
			continue
		}
		if r.Status = here[n.Node]; r.Status == nil && n.HTTP != "" {
			asked.Go(func() { r.Status, _ = fetchStatus(ctx, n.HTTP, at, n.Node) })
		}
	}
	asked.Wait()
	return rows
}

// regionsByJoining looks into memory where no compute node could be asked to: it is
// one itself for a moment. If it cannot, there is nothing to show.
func regionsByJoining(ctx context.Context, at scheme.Cluster) []control.Memory {
	c, err := daemon.Open(ctx, at)
	if err != nil {
		return nil
	}
	defer c.Close()
	return daemon.DescribeMemory(c)
}

// writeStatus writes clusters for people.
func writeStatus(w io.Writer, dir string, rows []*clusterRow) {
	if len(rows) == 0 {
		fmt.Fprintf(w, "no clusters in %s\n", dir)
	}
	for i, r := range rows {
		if i > 0 {
			fmt.Fprintln(w)
		}
		writeCluster(w, r)
	}
}

func writeCluster(w io.Writer, r *clusterRow) {
	if r.State == scheme.Denied {
		fmt.Fprintf(w, "cluster %s is not this user's own: %s\n", r.Cluster, r.Error)
		return
	}
	fmt.Fprintf(w, "cluster %s is %s: view %d", r.Cluster, r.State, r.View)
	if r.MaxCN > 0 {
		fmt.Fprintf(w, ", at most %d compute nodes", r.MaxCN)
	}
	switch {
	case r.local:
		fmt.Fprintf(w, ", as its compute nodes on this machine see it")
	case r.Dir != "":
		fmt.Fprintf(w, ", in %s", r.Dir)
	}
	fmt.Fprintln(w)
	name := strings.TrimPrefix(r.Cluster, "shm:")
	writeCoordinator(w, r)
	switch {
	case r.State == scheme.Broken:
		fmt.Fprintf(w, "  %s\n  remove it: declock clean %s\n", r.Error, name)
		return
	case r.State == "dead":
		fmt.Fprintf(w, "  all its processes have gone; remove what they left: declock clean %s\n", name)
	case slices.ContainsFunc(r.Memory, func(m scheme.MemoryInfo) bool { return !m.Alive }) && !strings.HasPrefix(r.Cluster, "shm:"):
		fmt.Fprintf(w, "  a memory node is down: what is on it cannot be used until it is started again\n")
	case r.State == "partial" && !r.local:
		fmt.Fprintf(w, "  some of its nodes have crashed; the next node that joins or leaves removes what they left\n")
	}
	for _, m := range r.Memory {
		if m.Error != "" {
			fmt.Fprintf(w, "  %s: %s\n", m.Node, m.Error)
		}
	}
	used := map[string]*control.Memory{}
	for i := range r.Regions {
		used[r.Regions[i].Node] = &r.Regions[i]
	}
	mem := &report.Table{Head: []string{"memory node", "pid", "alive", "epoch", "size", "taken", "memory"}} // where it is: a file, or an address
	for _, m := range r.Memory {
		taken := "-"
		if u := used[m.Node]; u != nil && u.Used > 0 {
			taken = fmt.Sprintf("%s (%.0f%%)", units.Bytes(u.Used), 100*float64(u.Used)/float64(u.Size))
		}
		mem.Add(m.Node, pidText(m.Pid), yesNo(m.Alive), fmt.Sprint(m.Epoch), units.Bytes(m.Size), taken, m.Path+m.Address)
	}
	mem.Write(w)
	writeGroups(w, r.Groups, r.Compute)
	cns := &report.Table{Head: []string{"compute node", "pid", "alive", "address", "lock", "acquires", "local", "remote", "resets", "replay"}}
	for _, n := range r.Compute {
		row := []string{n.Node, pidText(n.Pid), yesNo(n.Alive), cmp.Or(n.Address, "-"), "-", "-", "-", "-", "-", n.Note}
		if s := n.Status; s != nil {
			l := &s.Counters.Locks
			row = []string{n.Node, pidText(n.Pid), yesNo(n.Alive), cmp.Or(n.Address, "-"), s.Policy, units.Count(l.Acquires), units.Count(l.HandoversLocal),
				units.Count(l.HandoversRemote), units.Count(s.Resets.Led), jobText(s.Job)}
		}
		cns.Add(row...)
	}
	cns.Write(w)
	writeWays(w, r.Compute)
	writeHot(w, r.Compute)
	writeRoots(w, r.Regions)
}

// inSync returns how many copies of a number are in sync, and up.
func inSync(g *scheme.GroupInfo) (n int) {
	for _, c := range g.Copies {
		if c.Alive && c.Phase == member.InSync.String() {
			n++
		}
	}
	return n
}

// writeGroups shows where the copies of memory-node numbers are that are replicated.
func writeGroups(w io.Writer, groups []scheme.GroupInfo, nodes []computeRow) {
	t := &report.Table{Head: []string{"number", "primary", "serves", "backups", "copies", "term", "epoch"}}
	var copied []string
	for _, g := range groups {
		var backups []string
		good := inSync(&g)
		for i, c := range g.Copies {
			text := c.Node + " " + c.Phase
			if !c.Alive {
				text = c.Node + " DOWN"
			}
			if i > 0 {
				backups = append(backups, text)
			}
			if c.Alive && c.Phase == member.Copying.String() && good < g.Replicas && !slices.Contains(copied, g.Number) {
				copied = append(copied, g.Number)
			}
		}
		primary := "none"
		if len(g.Copies) > 0 && g.Copies[0].Alive {
			primary = g.Copies[0].Node
		}
		t.Add(g.Number, primary, yesNo(g.Serving && primary != "none"), cmp.Or(strings.Join(backups, ", "), "none"), fmt.Sprintf("%d of %d", good, g.Replicas), fmt.Sprint(g.Term), fmt.Sprint(g.Epoch))
	}
	t.Write(w)
	for _, g := range groups {
		if g.Drained {
			fmt.Fprintf(w, "  %s is drained: no copies are put on it, until declock mn rebalance or drain --undo\n", g.Number)
		}
		if n := inSync(&g); n == 0 && g.Waits == "" {
			fmt.Fprintf(w, "  %s is not served: no copy in sync is up. If none comes back with its memory, declock mn abandon --force %s lets it begin anew, empty\n", g.Number, g.Number)
		} else if n > 0 && n < g.MinInSync {
			fmt.Fprintf(w, "  data of %s is not changed: %d in sync, at least %d wanted (min-in-sync)\n", g.Number, n, g.MinInSync)
		}
		if g.Waits != "" {
			fmt.Fprintf(w, "  %s is not served: %s\n", g.Number, g.Waits)
		}
	}
	if len(copied) > 0 {
		fmt.Fprintf(w, "  copying %s: the compute node with the lowest number does so (copy-rate); until that is done, the new copy takes no other's place\n", strings.Join(copied, ", "))
	}
	for _, n := range nodes {
		if n.Status != nil && n.Status.Copying != nil {
			c := n.Status.Copying
			fmt.Fprintf(w, "  %s has copied %d of %d buckets of %s (%.0f%%)\n", n.Node, c.Done, c.All, c.Number, c.Percent())
		}
	}
}

// writeCoordinator shows that etcd does not answer: this command, or compute nodes.
func writeCoordinator(w io.Writer, r *clusterRow) {
	if r.Coordinator != "" {
		fmt.Fprintf(w, "  etcd does not answer: no node can join, and crashes go unnoticed: %s\n", r.Coordinator)
	}
	for _, n := range r.Compute {
		if n.Status == nil || n.Status.Coordinator == nil || n.Status.Coordinator.Error == "" {
			continue
		}
		c := n.Status.Coordinator
		fmt.Fprintf(w, "  etcd has not answered %s for %.0f s: %s\n", n.Node, c.SilentS, c.Error)
	}
}

// hotShown is how many hot locks are shown of each compute node.
const hotShown = 3

// writeHot shows the locks that are acquired most.
func writeHot(w io.Writer, nodes []computeRow) {
	t := &report.Table{Head: []string{"hot locks of", "lock", "share", "acquired in us"}}
	for _, n := range nodes {
		if n.Status == nil {
			continue
		}
		for _, h := range n.Status.Hot[:min(hotShown, len(n.Status.Hot))] {
			t.Add(n.Node, h.Lock, fmt.Sprintf("%.1f%%", 100*h.Share), fmt.Sprintf("%.1f", h.AcquireUs))
		}
	}
	t.Write(w)
}

func writeRoots(w io.Writer, regions []control.Memory) {
	t := &report.Table{Head: []string{"root entry", "kind", "address", "size", "takes", "limit", "made by", "objects", "in use by them"}}
	for _, m := range regions {
		for _, e := range m.Entries {
			objects, inUse := "-", "-"
			if u := e.Usage; u != nil {
				about := map[bool]string{false: "about "}[u.Exact]
				objects, inUse = about+units.Count(u.Items), about+units.Bytes(u.Bytes)
			}
			limit := "-"
			if e.Limit != 0 {
				limit = units.Bytes(e.Limit)
			}
			t.Add(e.Name, e.Kind, e.Address, units.Bytes(e.Length), units.Bytes(e.Taken), limit, e.Creator, objects, inUse)
		}
		if m.Error != "" {
			fmt.Fprintf(w, "  %s: %s\n", m.Node, m.Error)
		}
	}
	t.Write(w)
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

// pidText is a process's number; 0 is one of another host.
func pidText(pid int) string {
	if pid == 0 {
		return "-"
	}
	return fmt.Sprint(pid)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}
