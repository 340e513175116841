package lab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	etcdserver "github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/lab/bench"
	"github.com/declock/declock/lab/mutants"
	"github.com/urfave/cli/v2"
)

const peersDescription = `Acquire and release, side by side: DecLock over TCP, redsync on a redis-server, etcd's concurrency.Mutex. All on this machine's loopback,
without TLS; one after the other, in rounds; what is shown are medians. It starts a memory node, an etcd (as it is by default: changes wait for its disk)
and a redis-server of its own (Debian: apt-get install redis-server). redsync-1ms is redsync that tries again after 1 ms, and not after its own 50 to 250 ms.
declock is one compute node, in which clients hand a lock to each other without the network; declock-2cn is two, with half of the clients each. Both reach the memory
over the loopback, as from another machine; declock-local and declock-2cn-local by their own CPUs, as declock up has it on one machine.

What is compared with is in a module of its own, bench/peers, that this command builds with go: run it in the source tree, or give --source.

Examples:
   declock-lab peers
   declock-lab peers --clients 64 --rounds 3 --json`

// peersOptions are the flags of bench peers.
type peersOptions struct {
	clients, rounds int
	window          time.Duration
	redis, source   string
	runDir          string
	local           bool // of bench replicas
	json            bool
}

func peersCommand(env *command.Env) *cli.Command {
	o := new(peersOptions)
	return command.Complete(&cli.Command{
		Name: "peers", Category: "compare locks", Usage: "locks of redsync and etcd beside DecLock over TCP", Description: peersDescription,
		Flags: append(o.flags(),
			command.CountFlag(&o.clients, "clients", 32, 2, 1024, "clients, where there are many"),
			&cli.StringFlag{Name: "redis", Usage: "`HOST:PORT` of a Redis server that is running", Destination: &o.redis}),
		Action: func(c *cli.Context) error {
			if err := o.check(c); err != nil {
				return err
			}
			return o.run(c.Context, env)
		},
	})
}

// peersReport is what bench/peers prints.
type peersReport struct {
	Config map[string]any `json:"config"`
	Rows   []peersRow     `json:"rows"`
}

type peersRow struct {
	Lock    string  `json:"lock"`
	Load    string  `json:"load"`
	Clients int     `json:"clients"`
	Rate    float64 `json:"ops_per_s"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func (o *peersOptions) run(ctx context.Context, env *command.Env) error {
	dir, program, err := o.built(ctx, env)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e := app.Embedded{Fabric: "tcp", Name: app.EmbeddedName(), RunDir: o.runDir, Mns: 1, MaxCN: scheme.DefaultMaxCN, Size: 256 << 20, Huge: "off", Local: true}
	f, err := e.Launch(ctx, env.Stderr)
	if err != nil {
		return err
	}
	defer f.Stop()
	etcd, err := etcdserver.Start(ctx, etcdserver.Options{Dir: filepath.Join(dir, "etcd"), Election: time.Second, Durable: true})
	if err != nil {
		return err
	}
	defer etcd.Close()
	r, err := o.compare(ctx, env, program, "--cluster", f.Address()+"?insecure=true&listen=127.0.0.1:0", "--etcd", etcd.Endpoint())
	if err != nil {
		return err
	}
	return o.show(env, "peers", r, r.claims())
}

// flags are those of each command that runs lab/peers.
func (o *peersOptions) flags() []cli.Flag {
	return []cli.Flag{
		command.CountFlag(&o.rounds, "rounds", 5, 1, 1000, "how often each point is measured"),
		&cli.DurationFlag{Name: "window", Usage: "how long each time", Value: time.Second, Destination: &o.window},
		&cli.StringFlag{Name: "source", Usage: "`DIR` of DecLock's source tree (default: the one that this is run in)", Destination: &o.source},
		&cli.StringFlag{Name: "run-dir", Usage: "directory of sockets", Destination: &o.runDir}, command.JSONFlag(&o.json),
	}
}

func (o *peersOptions) check(c *cli.Context) error {
	if o.window <= 0 {
		return command.Usage(c, "--window %v: it must be longer than nothing", o.window)
	}
	return nil
}

// built returns lab/peers, built in a new directory, and removes what killed clusters have left.
func (o *peersOptions) built(ctx context.Context, env *command.Env) (dir, program string, err error) {
	if dir, err = os.MkdirTemp("", "declock-peers"); err != nil {
		return "", "", err
	}
	program = filepath.Join(dir, "peers")
	if err := o.build(ctx, env, program); err != nil {
		return "", "", errors.Join(err, os.RemoveAll(dir))
	}
	app.RemoveKilled("", o.runDir)
	return dir, program, nil
}

// compare runs lab/peers.
func (o *peersOptions) compare(ctx context.Context, env *command.Env, program string, args ...string) (*peersReport, error) {
	r := new(peersReport)
	return r, o.peers(ctx, env, program, r, args...)
}

// peers runs lab/peers, which prints a report in JSON: of a bank, also when it is interrupted.
func (o *peersOptions) peers(ctx context.Context, env *command.Env, program string, report any, args ...string) error {
	cmd := exec.CommandContext(ctx, program, append(args, "--redis", o.redis,
		"--clients", strconv.Itoa(o.clients), "--rounds", strconv.Itoa(o.rounds), "--window", o.window.String())...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches it through us
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, env.Stderr
	err := cmd.Run()
	if ctx.Err() != nil && out.Len() == 0 {
		return context.Cause(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("lab/peers: %w", err)
	}
	if err := json.Unmarshal(out.Bytes(), report); err != nil {
		return fmt.Errorf("lab/peers: %w", err)
	}
	return nil
}

// build builds lab/peers.
func (o *peersOptions) build(ctx context.Context, env *command.Env, program string) error {
	dir, err := mutants.SourceTree(cmp.Or(o.source, "."))
	if err != nil {
		return exit.Errorf(exit.Unavailable, "%w, with which the peers are built: go there, or give --source DIR", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir = filepath.Join(dir, "lab", "peers")
	cmd.Stderr = env.Stderr
	if err := cmd.Run(); err != nil {
		return exit.Errorf(exit.Unavailable, "cannot build %s: %w", cmd.Dir, err)
	}
	return nil
}

// show prints what was measured, and what is claimed of it.
func (o *peersOptions) show(env *command.Env, experiment string, r *peersReport, claims []bench.Claim) error {
	t := &report.Table{Head: []string{"load", "clients", "lock", "ops/s", "p50 us", "p99 us"}}
	for _, row := range r.Rows {
		t.Add(row.Load, strconv.Itoa(row.Clients), row.Lock, fmt.Sprintf("%.0f", row.Rate), fmt.Sprintf("%.1f", row.P50), fmt.Sprintf("%.1f", row.P99))
	}
	rep := report.Report{Experiment: experiment, Fabric: "tcp", Config: r.Config, Rows: report.Rows(r.Rows), Claims: claims}
	return env.Print(o.json, rep, func(w io.Writer) {
		t.Write(w)
		writeClaims(w, claims)
	})
}

func writeClaims(w io.Writer, claims []bench.Claim) {
	for _, c := range claims {
		fmt.Fprintf(w, "  %-13s %s: %.2f, want %s\n", c.Verdict, c.Text, c.Ours, c.Bar)
	}
}

// claims are the bars of the comparison, in rates. Of redsync's two it is the faster one that counts.
func (r *peersReport) claims() (claims []bench.Claim) {
	at := func(load, lock string) (p peersRow) {
		for _, row := range r.Rows {
			if row.Load == load && row.Lock == lock {
				p = row
			}
		}
		return p
	}
	claim := func(text string, ours float64, bar string, ok bool) {
		c := bench.Claim{Experiment: "peers", Text: text, Unit: "x", Ours: ours, Bar: bar, Verdict: bench.DoesNot}
		if ok {
			c.Verdict = bench.ComesOut
		}
		claims = append(claims, c)
	}
	over := func(text, load, ours, lock string, bar float64) {
		rate := at(load, ours).Rate / at(load, lock).Rate
		claim(text, rate, fmt.Sprintf(">= %g", bar), rate >= bar)
	}
	least := func(text, load, lock string, bar float64) { over(text, load, "declock", lock, bar) }
	for _, redsync := range []string{"redsync", "redsync-1ms"} {
		least("1 client: rate over "+redsync+"'s", "1 client", redsync, 2)
		least("each its own lock: rate over "+redsync+"'s", "own locks", redsync, 5)
		for _, ours := range []string{"declock", "declock-2cn"} {
			rate := at("one lock", ours).Rate / at("one lock", redsync).Rate
			claim("all one lock: rate of "+ours+" over "+redsync+"'s", rate, ">= 3", rate >= 3)
			p99 := at("one lock", ours).P99 / at("one lock", redsync).P99
			claim("all one lock: p99 of "+ours+" over "+redsync+"'s", p99, "< 0.1", p99 < 0.1)
		}
	}
	least("1 client: rate over etcd's", "1 client", "etcd", 20)
	over("1 client, local access: rate over redsync's", "1 client", "declock-local", "redsync", 6)
	over("each its own lock, local access: rate over redsync's", "own locks", "declock-local", "redsync", 12)
	over("all one lock, two compute nodes, local access: rate over redsync's", "one lock", "declock-2cn-local", "redsync", 23)
	return claims
}
