package app

import (
	"context"
	"fmt"
	"io"
	"reflect"

	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/urfave/cli/v2"
)

const upDescription = `It starts a memory node and compute nodes on this machine as processes of their own, says how to reach them, and waits.
Ctrl-C takes all of them down; nothing stays behind.

Examples:
   declock up
   declock up --name test --cns 2 --size 256MiB --lock declock-tf
   declock up --fabric tcp --mns 2
then, in another terminal:
   declock status
   declock replay --cluster shm:demo`

func upCommand(env *Env) *cli.Command {
	var (
		e         embedded
		name, dir string
		over      = fabricChoice()
		mns       = count{n: 1, min: 1, max: scheme.MaxMN}
		cns       = count{n: 4, min: 1, max: uint64(fabric.MaxCN)}
		procs     = count{n: fleet.DefaultProcs, min: 1, max: 1024}
		maxCN     = count{n: scheme.DefaultMaxCN, min: 1, max: uint64(fabric.MaxCN)}
		size      = byteSize{n: 1 << 30, text: "1GiB"}
		huge      = choice{"try", []string{"off", "try", "require"}}
	)
	return command(&cli.Command{
		Name: "up", Usage: "start a cluster on this machine", Category: "run", Description: upDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the cluster", Value: "demo", Destination: &name},
			choiceFlag(&over, "fabric", "what the nodes talk over: tcp is on this machine's loopback, without TLS, with an etcd of its own"),
			countFlag(&mns, "mns", "memory nodes"),
			countFlag(&cns, "cns", "compute nodes"),
			sizeFlag(&size, "size", "memory of a memory node, as 64MiB, 1GiB, 1e9"),
			lockFlag(&e.policy),
			countFlag(&procs, "procs", "GOMAXPROCS of each compute node"),
			countFlag(&maxCN, "max-cn", "compute nodes that the cluster may have; decides the size of locks"),
			choiceFlag(&huge, "huge", "huge pages"),
			dirFlag(&dir),
			&cli.StringFlag{Name: "run-dir", Usage: "directory of sockets, with --fabric tcp", Destination: &e.runDir},
		},
		Action: func(c *cli.Context) error {
			if err := arguments(c, 0, 0); err != nil {
				return err
			}
			if err := checkName(name); err != nil {
				return err
			}
			var err error
			if e.lockQueue, err = lockQueue(e.policy, maxLockQueue); err != nil {
				return err
			}
			e.fabric, e.mns, e.name, e.dir, e.cns, e.procs, e.maxCN, e.size, e.huge = over.value, int(mns.n), name, dir, int(cns.n), int(procs.n), int(maxCN.n), size.n, huge.value
			if err := onlySHM(c, over.value); err != nil {
				return err
			}
			if cns.n > maxCN.n {
				return usage(c, "--cns %d is more than --max-cn %d", cns.n, maxCN.n)
			}
			return up(c.Context, env, &e)
		},
	})
}

func up(ctx context.Context, env *Env, e *embedded) error {
	if err := e.refuseAlive(); err != nil {
		return err
	}
	f, err := e.launch(ctx, env.Stderr)
	if err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while it started
		}
		return err
	}
	err = announce(env.Stdout, f, e)
	if err == nil {
		err = watch(ctx, env, f)
	}
	f.Stop()
	return err
}

func announce(w io.Writer, f *fleet.Fleet, e *embedded) error {
	memory := fmt.Sprintf("1 memory node (process %d)", f.MNs[0].Pid())
	if n := len(f.MNs); n > 1 {
		memory = fmt.Sprintf("each of %d memory nodes", n)
	}
	flags, program := f.Address(), fmt.Sprintf("declock.Open(ctx, %q)", f.Address())
	if e.fabric == "tcp" {
		flags += " --insecure"
		program = fmt.Sprintf("declock.Open(ctx, %q), with _ \"github.com/declock/declock/overtcp\" imported", f.Address()+"?insecure=true")
	}
	if e.runDir != "" {
		flags += " --run-dir " + e.runDir
	}
	_, err := fmt.Fprintf(w, `cluster %s is up: %s on %s, %d compute nodes, lock %s

  another terminal:  declock status
                     declock replay --cluster %s
                     declock inspect roots --cluster %s
  a Go program:      %s

Ctrl-C takes it down.
`, f.Address(), units.Bytes(e.size), memory, len(f.CNs), e.policy, flags, flags, program)
	return err
}

// watch waits for the end. Compute nodes may die, the others go on; without its
// memory nodes the cluster is lost.
func watch(ctx context.Context, env *Env, f *fleet.Fleet) error {
	children := f.Children()
	for {
		cases := []reflect.SelectCase{{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(ctx.Done())}}
		for _, c := range children {
			cases = append(cases, reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(c.Done())})
		}
		i, _, _ := reflect.Select(cases)
		if i == 0 {
			return nil
		}
		if err := f.MemoryLost(); err != nil {
			return fmt.Errorf("the cluster is lost: %w", err)
		}
		fmt.Fprintf(env.Stderr, "declock: %v; the others go on\n", children[i-1].Died())
		children = append(children[:i-1:i-1], children[i:]...)
	}
}
