package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/fabric/tcp"
	"github.com/urfave/cli/v2"
)

const upDescription = `It starts a memory node and compute nodes on this machine as processes of their own, says how to reach them, and waits.
Ctrl-C takes all of them down; nothing stays behind. Each node shows what it does in a browser.

Examples:
   declock up
   declock up --name test --cns 2 --size 256MiB --lock declock-tf
   declock up --fabric tcp --mns 2
   declock up --fabric tcp --mns 3 --replicas 2
   declock up --memcached 127.0.0.1:11211
   declock up --redis 127.0.0.1:6379
then, in another terminal:
   declock status
   declock replay --cluster shm:demo`

func upCommand(env *command.Env) *cli.Command {
	var e Embedded
	return command.Complete(&cli.Command{
		Name: "up", Usage: "start a cluster on this machine", Category: "run", Description: upDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the cluster", Value: "demo", Destination: &e.Name},
			e.fabricFlag("what the nodes talk over: tcp is on this machine's loopback, without TLS, with an etcd of its own"),
			command.CountFlag(&e.Mns, "mns", 1, 1, scheme.MaxMN, "memory nodes"),
			command.CountFlag(&e.Replicas, "replicas", 1, 1, tcp.MaxReplicas, "with --fabric tcp: copies of each memory node, on others: locks, stores and trees go on when one fails"),
			command.CountFlag(&e.minInSync, "min-in-sync", 1, 1, tcp.MaxReplicas, "with --replicas: copies that must be in sync where data is changed: with fewer, changes wait, and fail in the end"),
			&cli.DurationFlag{Name: "silent-after", Usage: "with --replicas: a memory node that does not answer an operation for so long is replaced, unless it says that it lives", DefaultText: "5s", Destination: &e.silentAfter},
			&cli.BoolFlag{Name: "local", Usage: "with --fabric tcp: nodes reach the memory by their own CPUs, as on one machine they can; --local=false: over the loopback", Value: true, Destination: &e.Local},
			command.CountFlag(&e.cns, "cns", 4, 1, int(fabric.MaxCN), "compute nodes"),
			command.SizeFlag(&e.Size, "size", "1GiB", "memory of a memory node, as 64MiB, 1GiB, 1e9"),
			command.LockFlag(&e.policy),
			command.CountFlag(&e.procs, "procs", 0, 0, 1024, "GOMAXPROCS of each compute node; 0 is 1, or with --memcached or --redis twice the number of processors"),
			command.CountFlag(&e.MaxCN, "max-cn", scheme.DefaultMaxCN, 1, int(fabric.MaxCN), "compute nodes that the cluster may have; decides the size of locks"),
			command.HugeFlag(&e.Huge),
			&cli.StringFlag{Name: "memcached", Usage: "`HOST:PORT`, or path of a unix socket, at which the first compute node serves clients of memcached; the next ones have the next ports, or PATH.2 and so on, and all serve the same items", Destination: &e.memcached},
			&cli.StringFlag{Name: "redis", Usage: "`HOST:PORT`, or path of a unix socket, at which the first compute node serves clients of Redis; the next ones have the next ports, or PATH.2 and so on, and all serve the same keys", Destination: &e.redis},
			command.SizeFlag(&e.redisMaxValue, "redis-max-value", "1MiB", "their largest value, at most 512MiB"),
			command.DirFlag(&e.dir),
			&cli.StringFlag{Name: "run-dir", Usage: "directory of sockets, with --fabric tcp", Destination: &e.RunDir},
		},
		Action: func(c *cli.Context) (err error) {
			if err := command.CheckName(e.Name); err != nil {
				return err
			}
			if e.lockQueue, err = command.LockQueue(e.policy, command.MaxLockQueue); err != nil {
				return err
			}
			if err := e.onlySHM(c); err != nil {
				return err
			}
			switch {
			case e.Replicas > 1 && e.Fabric != "tcp":
				return command.Usage(c, "--replicas %d needs --fabric tcp", e.Replicas)
			case c.IsSet("local") && e.Fabric != "tcp":
				return command.Usage(c, "--local needs --fabric tcp")
			case e.silentAfter != 0 && e.Replicas < 2:
				return command.Usage(c, "--silent-after needs --replicas")
			case e.minInSync > e.Replicas:
				return command.Usage(c, "--min-in-sync %d is more than --replicas %d", e.minInSync, e.Replicas)
			case e.Replicas > e.Mns:
				return command.Usage(c, "--replicas %d is more than --mns %d: each copy is on another memory node", e.Replicas, e.Mns)
			}
			e.pages = true
			if e.cns > e.MaxCN {
				return command.Usage(c, "--cns %d is more than --max-cn %d", e.cns, e.MaxCN)
			}
			return up(c.Context, env, &e)
		},
	})
}

func up(ctx context.Context, env *command.Env, e *Embedded) error {
	if err := e.refuseAlive(); err != nil {
		return err
	}
	f, err := e.Launch(ctx, env.Stderr)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while it started
		}
		return err
	}
	announce(ctx, env.Stdout, f, e)
	err = watch(ctx, env, f)
	f.Stop()
	return err
}

func announce(ctx context.Context, w io.Writer, f *fleet.Fleet, e *Embedded) {
	memory := fmt.Sprintf("1 memory node (process %d)", f.MNs[0].Pid())
	if n := len(f.MNs); n > 1 {
		memory = fmt.Sprintf("each of %d memory nodes", n)
	}
	short := ""
	flags, program, where := f.Address(), fmt.Sprintf("declock.Open(ctx, %q)", f.Address()), ""
	if e.Fabric == "shm" && e.dir != shm.DefaultDir {
		where = " --dir " + e.dir
		program = fmt.Sprintf("declock.Open(ctx, %q, declock.WithDir(%q))", f.Address(), e.dir)
	}
	if e.Fabric == "tcp" {
		query := "?insecure=true"
		if flags += " --insecure"; e.Local {
			flags += " --local"
			query += "&local=true"
		}
		short = ways(ctx, f)
		program = fmt.Sprintf("declock.Open(ctx, %q), with _ \"github.com/declock/declock/overtcp\" imported", f.Address()+query)
	}
	if e.RunDir != "" {
		where = " --run-dir " + e.RunDir
	}
	flags += where
	fmt.Fprintf(w, `cluster %s is up: %s on %s, %d compute nodes, lock %s

  another terminal:  declock status%s
                     declock replay --cluster %s
                     declock inspect roots --cluster %s
  a Go program:      %s

%s%s%sCtrl-C takes it down.
`, f.Address(), units.Bytes(e.Size), memory, len(f.CNs), e.policy, where, flags, flags, program, short, served(f, "memcached")+served(f, "Redis"), pages("compute", f.CNs)+pages("memory", f.MNs))
}

// ways says how the compute nodes' operations on memory are executed, as these say themselves.
func ways(ctx context.Context, f *fleet.Fleet) string {
	var nodes []computeRow
	for _, s := range askAll(ctx, f.RunDir()) {
		nodes = append(nodes, computeRow{ComputeInfo: scheme.ComputeInfo{Node: s.Node}, Status: s})
	}
	slices.SortFunc(nodes, func(a, b computeRow) int {
		return cmp.Or(cmp.Compare(len(a.Node), len(b.Node)), cmp.Compare(a.Node, b.Node))
	})
	var b strings.Builder
	writeWays(&b, nodes)
	return b.String() + "\n"
}

// pages says where nodes of a kind have their pages.
func pages(kind string, nodes []*fleet.Child) string {
	return fmt.Sprintf("In a browser, %s nodes: http://%s\n", kind, strings.Join(said(nodes, "http"), ", http://"))
}

// served says where clients of another system are served.
func served(f *fleet.Fleet, system string) string {
	list := said(f.CNs, strings.ToLower(system))
	if len(list) == 0 {
		return ""
	}
	return "Clients of " + system + " are served at " + strings.Join(list, ", ") + ": the same items at each.\n"
}

// said returns what nodes have said under a name.
func said(nodes []*fleet.Child, name string) (list []string) {
	for _, c := range nodes {
		if at := c.Ready[name]; at != "" {
			list = append(list, at)
		}
	}
	return list
}

// watch waits for the end. Compute nodes may die, the others go on; without its
// memory nodes, or one of them if they have no copies, the cluster is lost.
func watch(ctx context.Context, env *command.Env, f *fleet.Fleet) error {
	children := f.Children()
	ended := make(chan *fleet.Child, len(children))
	for _, c := range children {
		go func() { // it ends with f
			<-c.Done()
			ended <- c
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-ended:
			if err := f.MemoryLost(); err != nil {
				return fmt.Errorf("the cluster is lost: %w", err)
			}
			fmt.Fprintf(env.Stderr, "declock: %v; the others go on\n", c.Died())
		}
	}
}
