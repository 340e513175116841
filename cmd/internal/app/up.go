package app

import (
	"context"
	"fmt"
	"io"

	"github.com/declock/declock/cmd/internal/command"
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

func upCommand(env *command.Env) *cli.Command {
	var (
		e         Embedded
		name, dir string
		over      = fabricChoice()
		mns       = command.Count{N: 1, Min: 1, Max: scheme.MaxMN}
		cns       = command.Count{N: 4, Min: 1, Max: uint64(fabric.MaxCN)}
		procs     = command.Count{N: fleet.DefaultProcs, Min: 1, Max: 1024}
		maxCN     = command.Count{N: scheme.DefaultMaxCN, Min: 1, Max: uint64(fabric.MaxCN)}
		size      = command.ByteSize{N: 1 << 30, Text: "1GiB"}
		huge      = command.OneOf("try", "off", "try", "require")
	)
	return command.Complete(&cli.Command{
		Name: "up", Usage: "start a cluster on this machine", Category: "run", Description: upDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "name", Usage: "`NAME` of the cluster", Value: "demo", Destination: &name},
			command.ChoiceFlag(&over, "fabric", "what the nodes talk over: tcp is on this machine's loopback, without TLS, with an etcd of its own"),
			command.CountFlag(&mns, "mns", "memory nodes"),
			command.CountFlag(&cns, "cns", "compute nodes"),
			command.SizeFlag(&size, "size", "memory of a memory node, as 64MiB, 1GiB, 1e9"),
			command.LockFlag(&e.policy),
			command.CountFlag(&procs, "procs", "GOMAXPROCS of each compute node"),
			command.CountFlag(&maxCN, "max-cn", "compute nodes that the cluster may have; decides the size of locks"),
			command.ChoiceFlag(&huge, "huge", "huge pages"),
			command.DirFlag(&dir),
			&cli.StringFlag{Name: "run-dir", Usage: "directory of sockets, with --fabric tcp", Destination: &e.RunDir},
		},
		Action: func(c *cli.Context) error {
			if err := command.CheckName(name); err != nil {
				return err
			}
			var err error
			if e.lockQueue, err = command.LockQueue(e.policy, command.MaxLockQueue); err != nil {
				return err
			}
			e.Fabric, e.Mns, e.Name, e.dir, e.cns, e.procs, e.MaxCN, e.Size, e.Huge = over.Value, int(mns.N), name, dir, int(cns.N), int(procs.N), int(maxCN.N), size.N, huge.Value
			if err := onlySHM(c, over.Value); err != nil {
				return err
			}
			if cns.N > maxCN.N {
				return command.Usage(c, "--cns %d is more than --max-cn %d", cns.N, maxCN.N)
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
	announce(env.Stdout, f, e)
	err = watch(ctx, env, f)
	f.Stop()
	return err
}

func announce(w io.Writer, f *fleet.Fleet, e *Embedded) {
	memory := fmt.Sprintf("1 memory node (process %d)", f.MNs[0].Pid())
	if n := len(f.MNs); n > 1 {
		memory = fmt.Sprintf("each of %d memory nodes", n)
	}
	flags, program := f.Address(), fmt.Sprintf("declock.Open(ctx, %q)", f.Address())
	if e.Fabric == "tcp" {
		flags += " --insecure"
		program = fmt.Sprintf("declock.Open(ctx, %q), with _ \"github.com/declock/declock/overtcp\" imported", f.Address()+"?insecure=true")
	}
	if e.RunDir != "" {
		flags += " --run-dir " + e.RunDir
	}
	fmt.Fprintf(w, `cluster %s is up: %s on %s, %d compute nodes, lock %s

  another terminal:  declock status
                     declock replay --cluster %s
                     declock inspect roots --cluster %s
  a Go program:      %s

Ctrl-C takes it down.
`, f.Address(), units.Bytes(e.Size), memory, len(f.CNs), e.policy, flags, flags, program)
}

// watch waits for the end. Compute nodes may die, the others go on; without its
// memory nodes the cluster is lost.
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
