package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/bench"
	"github.com/declock/declock/memory"
	"github.com/urfave/cli/v2"
)

// privateCluster is the address that has micro serve memory itself.
const privateCluster = "shm:"

// Times of a run in real time, unless they are given.
const (
	realWindow = 2 * fabric.Second
	realWarmup = 500 * fabric.Millisecond
)

// realBase is where locks lie in memory of our own.
const realBase = 4096

// realMicro returns the microbenchmark of the flags, for real time.
func (o *microOptions) realMicro(lock string) bench.Micro {
	m := o.micro(lock)
	if m.WindowNs == 0 {
		m.WindowNs = realWindow
	}
	if m.WarmupNs == 0 {
		m.WarmupNs = realWarmup
	}
	return m.WithDefaults()
}

// realPoint measures a lock on a fabric in real time.
func (o *microOptions) realPoint(c *cli.Context, env *command.Env, lock string) bench.Point {
	return bench.Point{Measure: func(ctx context.Context, seed uint64) ([]bench.Sample, error) {
		m := o.realMicro(lock)
		m.Seed = seed
		r, err := o.real(ctx, c, env, m)
		if r == nil || r.Ops == 0 && (err != nil || ctx.Err() != nil) {
			return nil, cmp.Or(err, context.Cause(ctx))
		}
		return []bench.Sample{{Params: m.Params(), Metrics: r.Metrics()}}, err
	}}
}

// real finds memory for the locks, and has the compute nodes work on it.
func (o *microOptions) real(ctx context.Context, c *cli.Context, env *command.Env, m bench.Micro) (*bench.Result, error) {
	size, err := m.MemorySize()
	if err != nil {
		return nil, err
	}
	var cl scheme.Cluster
	base := fabric.At(0, realBase)
	if o.net.Cluster == privateCluster {
		cl = scheme.SHM(app.EmbeddedName(), o.net.Options.Dir)
		srv, err := cl.Serve(ctx, scheme.Memory{Size: realBase + size, MaxCN: m.CNs + 1})
		if err != nil {
			return nil, err
		}
		defer srv.Close()
	} else {
		if cl, err = o.net.Parse(c); err == nil {
			base, err = allocate(ctx, cl, size)
		}
		if err != nil {
			return nil, err
		}
	}
	if o.procs <= 1 {
		return realPart(ctx, env, cl, m, base, 0, m.CNs)
	}
	return o.realProcs(ctx, c, env, cl, m, base)
}

// allocate takes memory for the locks from a cluster that is running. It is not given back.
func allocate(ctx context.Context, cl scheme.Cluster, size uint64) (fabric.Addr, error) {
	node, err := cl.Visit(ctx)
	if err != nil {
		return 0, err
	}
	defer node.Close()
	p, err := node.Open()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if len(node.Memory()) == 0 {
		return 0, exit.Errorf(exit.NoCluster, "%s has no memory node", cl.Address())
	}
	r, err := memory.Open(p, node.Memory()[0].ID)
	if err != nil {
		return 0, err
	}
	return r.Alloc(p, size, 64)
}

// realPart runs some of the compute nodes in this process.
func realPart(ctx context.Context, env *command.Env, cl scheme.Cluster, m bench.Micro, base fabric.Addr, first, n int) (r *bench.Result, err error) {
	part := bench.Part{First: first, Base: base, Report: func(err error) { fmt.Fprintln(env.Stderr, "agent:", err) }}
	defer func() {
		for _, node := range part.Nodes {
			err = errors.Join(err, node.Close())
		}
	}()
	for range n {
		node, err := cl.Join(ctx)
		if err != nil {
			return nil, err
		}
		part.Nodes = append(part.Nodes, node)
	}
	return bench.Real(ctx, m, part)
}

// realProcs deals the compute nodes out to processes of this program.
func (o *microOptions) realProcs(ctx context.Context, c *cli.Context, env *command.Env, cl scheme.Cluster, m bench.Micro, base fabric.Addr) (*bench.Result, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	procs := min(o.procs, m.CNs)
	micro, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	defer cancel()
	wires, errs := make([]bench.WireResult, procs), make([]error, procs)
	var wg sync.WaitGroup
	for i := range procs {
		first, next := i*m.CNs/procs, (i+1)*m.CNs/procs
		args := append([]string{"bench", "micro-part", "--cluster", cl.Address(), "--base", strconv.FormatUint(uint64(base), 10), "--first", strconv.Itoa(first),
			"--nodes", strconv.Itoa(next - first), "--micro", string(micro)}, o.net.Args(c)...)
		wg.Go(func() {
			out, err := partOutput(exec.CommandContext(running, program, args...), env)
			if e := json.Unmarshal(out, &wires[i]); e == nil && ctx.Err() != nil {
				return // asked to stop, it has ended by itself, with what it had
			} else if err == nil {
				err = e
			}
			if err != nil {
				errs[i] = fmt.Errorf("process %d: %w", i+1, err)
				cancel() // the others would wait for it
			}
		})
	}
	wg.Wait()
	total := new(bench.Result)
	for i := range wires {
		if errs[i] == nil {
			errs[i] = total.Merge(wires[i])
		}
	}
	return total, errors.Join(errs...)
}

// partOutput runs a process that has a part of the compute nodes, and returns what it prints. It is asked
// to stop by the end of its standard input, which it sees too if this process is killed: a second signal
// beside the terminal's would end it at once.
func partOutput(cmd *exec.Cmd, env *command.Env) ([]byte, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = env.Stderr
	return cmd.Output()
}

// microPartCommand is what realProcs starts.
func microPartCommand(env *command.Env) *cli.Command {
	net := new(node.Network)
	var micro string
	var base fabric.Addr
	var first, nodes int
	return &cli.Command{
		Name: "micro-part", Hidden: true,
		Flags: append([]cli.Flag{command.CountFlag(&base, "base", 0, 0, math.MaxUint64, "address of the locks"),
			command.CountFlag(&first, "first", 0, 0, int(fabric.MaxCN), "the first compute node"),
			command.CountFlag(&nodes, "nodes", 1, 1, int(fabric.MaxCN), "compute nodes of this process"), &cli.StringFlag{Name: "micro", Usage: "the microbenchmark, in JSON", Destination: &micro}}, net.Flags("the cluster")...),
		Action: func(c *cli.Context) error {
			var m bench.Micro
			if err := json.Unmarshal([]byte(micro), &m); err != nil {
				return exit.With(exit.Usage, fmt.Errorf("--micro: %w", err))
			}
			cl, err := net.Parse(c)
			if err != nil {
				return err
			}
			ctx, cancel := node.ParentContext(env.Stdin)
			defer cancel()
			r, err := realPart(ctx, env, cl, m, base, first, nodes)
			if r == nil {
				return err
			}
			return errors.Join(err, json.NewEncoder(env.Stdout).Encode(r.Wire()))
		},
	}
}
