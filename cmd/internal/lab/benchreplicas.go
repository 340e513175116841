package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/usage"
	"github.com/declock/declock/lab/bench"
	"github.com/urfave/cli/v2"
)

const benchReplicasDescription = `What a second copy costs, and what it costs elsewhere: sets and gets of an object store over TCP with two copies and with one, SET with
WAIT 1 on a redis-server with one replica, and put on an etcd of three members: as it is by default, and without waiting for its disk. All on this machine's
loopback, without TLS, 100-byte values, one client and many; one after the other, in rounds; what is shown are medians. That is how it is between machines. On one machine the default is another
way ("declock up --fabric tcp"): with --local it is measured, too, and so is Redis by its unix socket, with a connection for each client. Redis's replica is reached by TCP in any case: it knows no
other way. etcd has no faster one either. It starts all servers itself (Debian: apt-get install redis-server). Beside the rates it prints what of the machine others used meanwhile: compare rows of one run only.

What is compared with is in a module of its own, lab/peers, that this command builds with go: run it in the source tree, or give --source.

Examples:
   declock-lab bench replicas
   declock-lab bench replicas --rounds 3 --window 300ms
   declock-lab bench replicas --local                     compute nodes that reach the memory by their own CPUs, too`

func benchReplicasCommand(env *command.Env) *cli.Command {
	o := new(peersOptions)
	return &cli.Command{
		Name: "replicas", Usage: "stores with two copies beside one, Redis and etcd", Description: benchReplicasDescription,
		Flags: append(o.flags(),
			command.CountFlag(&o.clients, "clients", 32, 2, 1024, "clients, where there are many"),
			&cli.BoolFlag{Name: "local", Usage: "measure stores also by local access (docs/local.md): all memory nodes are on this machine", Destination: &o.local},
			&cli.StringFlag{Name: "redis", Usage: "`HOST:PORT` of a Redis server that is running", Destination: &o.redis}),
		Action: func(c *cli.Context) error {
			if err := o.check(c); err != nil {
				return err
			}
			return o.runReplicas(c.Context, env)
		},
	}
}

func (o *peersOptions) runReplicas(ctx context.Context, env *command.Env) error {
	dir, program, err := o.built(ctx, env)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var clusters []string
	for _, replicas := range []int{2, 1} {
		e := app.Embedded{Fabric: "tcp", Name: fmt.Sprintf("%s-%d", app.EmbeddedName(), replicas), RunDir: o.runDir, Mns: 3, Replicas: replicas, Local: o.local,
			MaxCN: scheme.DefaultMaxCN, Size: 64 << 20, Huge: "try"}
		f, err := e.Launch(ctx, env.Stderr)
		if err != nil {
			return err
		}
		defer f.Stop()
		clusters = append(clusters, f.Address()+"?insecure=true&listen=127.0.0.1:0")
	}
	var etcds []string
	for name, durable := range map[string]bool{"etcd": true, "etcd, no fsync": false} {
		members, err := startMembers(ctx, filepath.Join(dir, name), 3, durable)
		defer members.stop()
		if err != nil {
			return err
		}
		etcds = append(etcds, name+"="+strings.Join(members.endpoints, ","))
	}
	busy, idle, err := usage.Machine()
	if err != nil {
		return err
	}
	r, err := o.compare(ctx, env, program, "--cluster", clusters[0], "--single", clusters[1], "--etcd", strings.Join(etcds, ";"), fmt.Sprintf("--local=%v", o.local))
	if err != nil {
		return err
	}
	busy2, idle2, err := usage.Machine()
	if err != nil {
		return err
	}
	r.Config["idle"] = float64(idle2-idle) / float64(busy2-busy+idle2-idle)
	return o.show(env, "replicas", r, r.replicaClaims())
}

// replicaClaims are the bars of a second copy, in rates.
func (r *peersReport) replicaClaims() (claims []bench.Claim) {
	rates := map[string]float64{}
	for _, row := range r.Rows {
		rates[row.Load+": "+row.Lock] = row.Rate
	}
	for _, load := range []string{"1 client", "many clients"} {
		for _, b := range []struct {
			ours, than string
			bar        float64
		}{
			{"declock, 2 copies: set", "declock, 1 copy: set", 0.6},
			{"declock, 2 copies: get", "declock, 1 copy: get", 0.97},
			{"declock, 2 copies: set", "redis, WAIT 1: set", 2},
			{"declock, 2 copies: set", "etcd: put", 20},
			{"declock, 2 copies, local access: set", "declock, 1 copy, local access: set", 0.6},
			{"declock, 2 copies, local access: get", "declock, 1 copy, local access: get", 0.97},
			{"declock, 2 copies, local access: set", "redis, unix socket, WAIT 1: set", 2},
			{"declock, 2 copies, local access: set", "etcd: put", 20},
			{"declock, 1 copy, local access: get", "declock, 1 copy: get", 5},
			{"declock, 2 copies, local access: get", "declock, 2 copies: get", 5},
		} {
			if rates[load+": "+b.ours] == 0 || rates[load+": "+b.than] == 0 {
				continue // not measured
			}
			x := rates[load+": "+b.ours] / rates[load+": "+b.than]
			way := "between machines (here by the loopback), "
			if strings.Contains(b.ours, "local access") {
				way = "on one machine (local access is the default there), "
			}
			c := bench.Claim{Experiment: "replicas", Text: way + load + ": " + b.ours + " over " + b.than, Unit: "x", Ours: x, Bar: fmt.Sprintf(">= %g", b.bar), Verdict: bench.DoesNot}
			if x >= b.bar {
				c.Verdict = bench.ComesOut
			}
			claims = append(claims, c)
		}
	}
	return claims
}
