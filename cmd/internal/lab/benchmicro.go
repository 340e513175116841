package lab

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/bench"
	"github.com/declock/declock/lab/locks"
	"github.com/urfave/cli/v2"
)

const microDescription = `Clients on compute nodes acquire locks drawn by Zipf, do some data operations of 8 bytes on the memory
node, and release: the microbenchmark of the DecLock paper (section 6.2). On the simulator a seed determines every figure.

Examples:
   declock-lab bench micro --lock declock-tf
   declock-lab bench micro --lock cas,declock-tf,declock-pf --clients 256 --cs-len 8 --read-pct 90
   declock-lab bench micro --lock declock --rate 2e6           open loop: operations are due at random times, 2 M/s in all
   declock-lab bench micro --cluster shm: --procs 4 --clients 32 --cns 4 --lock cas,declock
                                                           on shared memory, in four processes
   declock-lab bench micro --cluster tcp://HOST:PORT --cns 2   compute nodes of a cluster that is running

Locks: `

// variedLocks are the names of locks that are not in the registry: its Lookup says what they mean.
const variedLocks = `, retry-on-fail (cas), srvlock (server:8), local-bound:N, drtm:half, drtm:N, drtm:half:N, dslr:busy, dslr:slots, dslr:shiftlock, dslr:N, dslr:wait:N, dslr:withdraw:N,
shift-artifact:pause, shift-artifact:casN, shift-artifact:N, rpc:shiftlock, rpc:N, server:N, server-ro:N, parlock:N, parlock:ro, parlock:local, fiss:N, fiss:local, and policies of DecLock with
features (declock-pf+batch).`

// microOptions are the flags of bench micro.
type microOptions struct {
	bench.Micro
	locks string
	runs  int
	json  bool

	net   node.Network // of a cluster in real time; none: the simulator
	procs int
}

// micro returns the microbenchmark of the flags, for one lock.
func (o *microOptions) micro(lock string) bench.Micro {
	m := o.Micro
	m.Lock = lock
	return m
}

func microCommand(env *command.Env) *cli.Command {
	o := new(microOptions)
	return &cli.Command{
		Name: "micro", Usage: "the microbenchmark, with all parameters as flags", Description: microDescription + strings.Join(locks.Names(), ", ") + variedLocks,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "lock", Usage: "`LOCKS`, with commas", Value: "declock-tf", Destination: &o.locks},
			command.CountFlag(&o.Clients, "clients", bench.DefaultClients, 1, 8192, "clients in all"),
			command.CountFlag(&o.CNs, "cns", 0, 0, int(fabric.MaxCN), "compute nodes; 0: as many as it takes with 32 clients on each"),
			command.CountFlag(&o.CSLen, "cs-len", 1, 0, 1024, "data operations of a critical section"),
			command.CountFlag(&o.ReadPct, "read-pct", bench.DefaultReadPct, 0, 100, "percentage of shared acquisitions"),
			command.CountFlag(&o.Locks, "locks", bench.DefaultLocks, 1, 100_000_000, "number of locks"),
			&cli.Float64Flag{Name: "theta", Usage: "exponent of the Zipf distribution of locks; 0: uniform", Value: bench.DefaultTheta, Destination: &o.Theta},
			&cli.Float64Flag{Name: "rate", Usage: "operations per second that are due, of all clients (open loop); 0: each client begins when it is done", Destination: &o.Rate},
			&cli.BoolFlag{Name: "chain", Usage: "the last data operation travels with the release, the first READ with the acquisition", Destination: &o.Chain},
			&cli.BoolFlag{Name: "keep", Usage: "the data stays on the compute node while the lock does, for locks that can; --chain for others", Destination: &o.Keep},
			command.TimeFlag(&o.WindowNs, "window", "time that is measured; 0s, with --warmup 0s: until it is steady, on the simulator"),
			command.TimeFlag(&o.WarmupNs, "warmup", "time before that"),
			command.ChoiceFlag(&o.NIC, "nic", "cx4", "model of the NICs", nics...),
			&cli.StringFlag{Name: "tune", Usage: "change `CONSTANTS` of the model, with commas: LocalWake=1650,Pipe=32 (go doc ./fabric/sim NIC has them)", Destination: &o.Tune},
			&cli.Float64Flag{Name: "message-scale", Usage: "stretches messages between compute nodes", Value: 1, Destination: &o.MessageScale},
			command.TimeFlag(&o.MessageExtraNs, "message-extra", "added to each message between compute nodes"),
			command.TimeFlag(&o.ServerNs, "server", "what a worker of a server takes for a request, of locks that have servers (default: 1us)"),
			command.CountFlag(&o.Capacity, "capacity", 0, 0, 2048, "length of DecLock's queues, a power of two; 0: what the compute nodes need"),
			command.CountFlag(&o.Seed, "seed", 1, 0, math.MaxUint64, "the first seed"),
			command.CountFlag(&o.runs, "seeds", 1, 1, 1000, "runs, each of its own seed"),
			command.CountFlag(&o.procs, "procs", 1, 1, 128, "processes of this machine that the compute nodes are dealt out to, in real time"), command.JSONFlag(&o.json),
		}, o.net.Flags("`ADDRESS` of a running cluster, or shm: for one of our own: in real time. Without, it runs on the simulator")...),
		Action: func(c *cli.Context) error {
			return runMicro(c, env, o)
		},
	}
}

// runMicro measures the locks of the flags, and prints what it has when ctx ends.
func runMicro(c *cli.Context, env *command.Env, o *microOptions) error {
	e := &bench.Experiment{Name: "micro"}
	names := strings.Split(o.locks, ",")
	for _, name := range names {
		m := o.micro(name).WithDefaults()
		if err := m.Validate(); err != nil {
			if errors.Is(err, locks.ErrUnknown) {
				return exit.With(exit.UnknownName, err)
			}
			return exit.With(exit.Usage, err)
		}
	}
	cfg := bench.Config{Seed: o.Seed, Seeds: o.runs}
	if err := o.fits(c); err != nil {
		return err
	}
	if o.net.Cluster != "" {
		cfg.Workers = 1 // they would disturb each other
	}
	e.Points = func(bench.Options) (points []bench.Point) {
		for _, name := range names {
			if o.net.Cluster != "" {
				points = append(points, o.realPoint(c, env, name))
			} else {
				points = append(points, o.micro(name).Point())
			}
		}
		return points
	}
	out, err := bench.Run(c.Context, []*bench.Experiment{e}, cfg)
	if len(out[0].Rows) > 0 || err == nil {
		if e := printMicro(env, o, &out[0]); e != nil {
			return e
		}
	}
	if c.Context.Err() != nil {
		return interrupted(c.Context.Err())
	}
	return err
}

// fits refuses flags that mean nothing where the benchmark is to run.
func (o *microOptions) fits(c *cli.Context) error {
	if o.net.Cluster == "" && c.IsSet("procs") {
		return exit.Errorf(exit.Usage, "--procs is for runs in real time: give --cluster too, or leave it out")
	}
	if o.MessageScale == 0 {
		return exit.Errorf(exit.Usage, "--message-scale must be more than 0, to 1000; 1 leaves messages as they are")
	}
	for _, name := range []string{"nic", "tune", "message-scale", "message-extra", "server"} {
		if o.net.Cluster != "" && c.IsSet(name) {
			return exit.Errorf(exit.Usage, "--%s is of the simulator's model: leave it out, or --cluster", name)
		}
	}
	return nil
}

// microColumns are the columns of the table: heading, and metric.
var microColumns = [][2]string{{"Mops", "mops"}, {"p50 us", "p50_us"}, {"p99 us", "p99_us"}, {"p999 us", "p999_us"},
	{"acq p50", "acquire_p50_us"}, {"acq p99", "acquire_p99_us"}, {"MN ops/acq", "mn_ops_per_acquire"},
	{"prefetches", "prefetch_per_acquire"}, {"retries", "retries_per_acquire"},
	{"refetch", "refetch_per_release"}, {"lost", "lost"}, {"oldest us", "oldest_us"}}

func printMicro(env *command.Env, o *microOptions, out *bench.Outcome) error {
	r := report.Report{Experiment: "micro", Fabric: "sim", Seed: o.Seed, Config: o.config(), Rows: report.Rows(out.Rows)}
	r.Config["cut"] = out.Cut
	if o.net.Cluster != "" {
		r.Fabric, _, _ = strings.Cut(o.net.Cluster, ":")
	}
	return env.Print(o.json, r, func(w io.Writer) { o.table(w, out.Rows) })
}

// config is the parameters in JSON. Times that are 0 are until the run is steady: rows have settle_us and window_us.
func (o *microOptions) config() map[string]any {
	m := o.micro("").WithDefaults()
	window, warmup := o.WindowNs, o.WarmupNs
	config := map[string]any{"cns": m.CNs, "clients": m.Clients, "cs_len": m.CSLen, "read_pct": m.ReadPct, "locks": m.Locks, "theta": m.Theta,
		"rate": m.Rate, "chain": m.Chain, "keep": m.Keep, "nic": m.NIC, "tune": m.Tune, "message_scale": m.MessageScale, "message_extra_ns": m.MessageExtraNs,
		"seeds": o.runs, "capacity": o.Capacity}
	if o.net.Cluster != "" {
		config["procs"] = o.procs
		real := o.realMicro("")
		window, warmup = real.WindowNs, real.WarmupNs
	} else {
		config["nic_model"] = bench.ModelNote
	}
	if m.ServerNs > 0 {
		config["server_ns"] = m.ServerNs
	}
	config["window_us"], config["warmup_us"] = float64(window)/1e3, float64(warmup)/1e3
	return config
}

// table writes rows for people.
func (o *microOptions) table(w io.Writer, rows []bench.Row) {
	t := report.Table{Head: []string{"lock"}}
	for _, c := range microColumns {
		t.Head = append(t.Head, c[0])
	}
	if o.net.Cluster == "" {
		t.Head = append(t.Head, "steady after ms")
	}
	for _, row := range rows {
		cells := []string{row.Text("lock")}
		for _, c := range microColumns {
			cells = append(cells, bench.Figure(row.Value(c[1])))
		}
		if o.net.Cluster == "" {
			cells = append(cells, row.Cell(bench.SteadyColumn))
		}
		t.Add(cells...)
	}
	t.Write(w)
	if o.runs > 1 {
		for _, row := range rows {
			m := row.Metrics["mops"]
			fmt.Fprintf(w, "  %s: %.4g Mops +- %.2g (95 %%, %d seeds)\n", row.Text("lock"), m.Mean, m.Half, m.N)
		}
	}
}
