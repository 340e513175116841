package app

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strconv"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

const upDescription = `It starts a memory node and compute nodes on this machine as processes of their own, says how to reach them, and waits.
Ctrl-C takes all of them down; nothing stays behind.

Examples:
   declock up
   declock up --name test --cns 2 --size 256MiB --lock declock-tf
then, in another terminal:
   declock status
   declock replay --cluster shm:demo`

func upCommand(env *Env) *cli.Command {
	var (
		e         embedded
		name, dir string
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
			countFlag(&cns, "cns", "compute nodes"),
			sizeFlag(&size, "size", "memory of the memory node, as 64MiB, 1GiB, 1e9"),
			lockFlag(&e.policy),
			countFlag(&procs, "procs", "GOMAXPROCS of each compute node"),
			countFlag(&maxCN, "max-cn", "compute nodes that the cluster may have; decides the size of locks"),
			choiceFlag(&huge, "huge", "huge pages"),
			dirFlag(&dir),
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
			e.name, e.dir, e.cns, e.procs, e.maxCN, e.size, e.huge = name, dir, int(cns.n), int(procs.n), int(maxCN.n), size.n, huge.value
			if cns.n > maxCN.n {
				return usage(c, "--cns %d is more than --max-cn %d", cns.n, maxCN.n)
			}
			return up(c.Context, env, &e)
		},
	})
}

// An embedded cluster lives as long as the command that started it.
type embedded struct {
	name, dir, huge, policy, profile string
	cns, procs, maxCN, lockQueue     int
	size                             uint64
}

// launch starts it.
func (e *embedded) launch(ctx context.Context, messages io.Writer) (*fleet.Fleet, error) {
	cfg := fleet.Config{
		Cluster: scheme.SHM(e.name, e.dir),
		Memory: []string{"--size", strconv.FormatUint(e.size, 10), "--max-cn", strconv.Itoa(e.maxCN),
			"--lock-queue", strconv.Itoa(e.lockQueue), "--huge", e.huge},
		CNs: e.cns, Policy: e.policy, Procs: e.procs, Messages: messages, Profile: e.profile,
		Remove: func() error { return fleet.Remove(e.dir, e.name) },
	}
	if e.dir != "" {
		cfg.Network = []string{"--dir", e.dir}
	}
	return fleet.Launch(ctx, cfg)
}

func up(ctx context.Context, env *Env, e *embedded) error {
	if err := refuseAlive(e.dir, e.name); err != nil {
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

// refuseAlive refuses to become a part of somebody else's cluster.
func refuseAlive(dir, name string) error {
	info, err := shm.Inspect(dir, name)
	if err == nil && info.Alive() {
		return exit.Errorf(exit.InUse, "cluster shm:%s is running already: take another --name, or stop it; \"declock status\" shows who it is", name)
	}
	return nil
}

func announce(w io.Writer, f *fleet.Fleet, e *embedded) error {
	_, err := fmt.Fprintf(w, `cluster %s is up: %s on 1 memory node (process %d), %d compute nodes, lock %s

  another terminal:  declock status
                     declock replay --cluster %s
                     declock inspect roots --cluster %s
  a Go program:      declock.Open(ctx, %q)

Ctrl-C takes it down.
`, f.Address(), units.Bytes(e.size), f.MN.Pid(), len(f.CNs), e.policy, f.Address(), f.Address(), f.Address())
	return err
}

// watch waits for the end. Compute nodes may die, the others go on; without its
// memory node the cluster is lost.
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
		died := children[i-1]
		if died == f.MN {
			return fmt.Errorf("the cluster is lost: %w", died.Died())
		}
		fmt.Fprintf(env.Stderr, "declock: %v; the others go on\n", died.Died())
		children = append(children[:i-1:i-1], children[i:]...)
	}
}
