package lab

import (
	"errors"
	"io"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/bench"
	"github.com/declock/declock/lab/locks"
	"github.com/urfave/cli/v2"
)

const benchTxnDescription = `Clients take all locks of a transaction of TPC-C or TATP, execute it, which is a pause, and release them (two-phase locking), on the simulator. Transactions are those of
the specification, or with --mode artifact as the generator of FissLock's and ShiftLock's evaluations draws them. Locks are taken in the order of their numbers; with --aborts in
that of the transaction, which gives up after 10 ms, or a wait of --patience for one of them, and begins again. The defaults are ShiftLock's: 240 clients on 5 compute nodes, ConnectX-5.

By the specification each row of TPC-C has a lock, up to 67 million: of more than 216 warehouses some rows share one. The artifact has 121 locks a warehouse.

With --fail-rate clients fail, and others take their places. Leases of dslr and shift free what they had; of other locks the compute node releases it in their name, --noticed later. A transaction that
has lost a lock begins again. With --long some transactions are long readers, of all customers of a warehouse. Rows say in the last column whether the run was steady, which those with failures or long readers seldom are.

Examples:
   declock-lab bench txn --trace tpcc --warehouses 9600 --lock declock,mcs,shift-artifact
   declock-lab bench txn --trace tpcc --warehouses 1 --mode spec --think 0s --delay 1ms
   declock-lab bench txn --trace tatp --mode artifact --aborts
   declock-lab bench txn --mode spec --warehouses 16 --mns 16 --cns 16 --clients 64 --nic cx4 --think 1ns --aborts --patience 1ms --lock dslr,cas,ncosed,declock
   declock-lab bench txn --mode spec --warehouses 16 --mns 16 --cns 16 --clients 64 --nic cx4 --far --lock parlock,declock
   declock-lab bench txn --trace tpcc --data --lock shift-artifact:pause,dslr:shiftlock,declock
   declock-lab bench txn --lock declock,dslr --fail-rate 0.001 --lease 1ms --noticed 1ms
   declock-lab bench txn --lock declock,dslr:slots --mode spec --long 0.01 --long-hold 20ms --ask-lease 400ms`

// txnOptions are the flags of bench txn.
type txnOptions struct {
	bench.Micro
	bench.Txn
	locks, mode string
	fail        string
	aborts      bool
	json        bool
}

func benchTxnCommand(env *command.Env) *cli.Command {
	o := new(txnOptions)
	return &cli.Command{
		Name: "txn", Usage: "transactions of TPC-C or TATP over any lock, by flags", Description: benchTxnDescription,
		Flags: []cli.Flag{
			command.ChoiceFlag(&o.Trace, "trace", "tpcc", "which benchmark", "tpcc", "tatp"),
			command.ChoiceFlag(&o.mode, "mode", "artifact", "how transactions are drawn", "artifact", "spec"),
			command.CountFlag(&o.Warehouses, "warehouses", 500, 1, 9600, "of TPC-C"),
			command.CountFlag(&o.Subscribers, "subscribers", 100_000, 1, 1_000_000, "of TATP"),
			&cli.StringFlag{Name: "lock", Usage: "`LOCKS`, with commas", Value: "declock", Destination: &o.locks},
			&cli.BoolFlag{Name: "aborts", Usage: "locks are taken in the order of the transaction, and given up after 10 ms", Destination: &o.aborts},
			command.TimeFlag(&o.PatienceNs, "patience", "with --aborts: for how long a transaction waits for a lock before it gives all back and begins again; 0s: it has all of them after 10ms, or does so"),
			&cli.BoolFlag{Name: "exclusive", Usage: "there are no shared holders", Destination: &o.Exclusive},
			command.CountFlag(&o.Clients, "clients", 240, 1, 8192, "clients in all"),
			command.CountFlag(&o.CNs, "cns", 5, 1, int(fabric.MaxCN), "compute nodes"),
			command.CountFlag(&o.MNs, "mns", 1, 1, 64, "memory nodes, among which warehouses, or rows of TATP, are dealt out"),
			&cli.BoolFlag{Name: "far", Usage: "messages within a compute node take as long as those between nodes", Destination: &o.Far},
			command.ChoiceFlag(&o.NIC, "nic", "cx5", "model of the NICs", nics...),
			command.TimeFlag(&o.ThinkNs, "think", "for how long a transaction has all of its locks; not given: 2.8us (TATP), 7us (TPC-C)"),
			&cli.BoolFlag{Name: "data", Usage: "with its locks a transaction READs 64 bytes for each, and WRITEs as many for each exclusive one after --think, as ShiftLock's published client does", Destination: &o.WithData},
			command.TimeFlag(&o.DelayNs, "delay", "time between two transactions of a client"),
			&cli.Float64Flag{Name: "fail-rate", Usage: "share of the transactions with which a client fails, 0 to 1", Destination: &o.FailRate},
			command.ChoiceFlag(&o.fail, "fail", "holding", "with --fail-rate: with all of its locks, or if it still waits 3us after it has asked for the first", "holding", "waiting"),
			command.TimeFlag(&o.NoticedNs, "noticed", "with --fail-rate: when the node of a client that has failed releases in its name, of locks without leases; 0s: 10ms"),
			&cli.Float64Flag{Name: "long", Usage: "share of the transactions of TPC-C that are long readers, 0 to 1", Destination: &o.Long},
			command.TimeFlag(&o.LongNs, "long-hold", "with --long: for how long a long reader has its locks; 0s: 20ms"),
			command.TimeFlag(&o.LeaseNs, "lease", "lease of locks that have them (dslr, shift, drtm); 0s: 10ms, of drtm 1ms"),
			command.TimeFlag(&o.AskNs, "ask-lease", "lease that transactions ask for of locks that can choose (dslr:slots); 0s: one of --lease"),
			&cli.BoolFlag{Name: "long-ask", Usage: "with --long and --ask-lease: long readers alone ask for that lease", Destination: &o.LongAsk},
			&cli.BoolFlag{Name: "unchecked", Usage: "a transaction that has lost a lock, for its lease has ended, commits all the same; else it begins again until it has lost none", Destination: &o.Unchecked},
			command.TimeFlag(&o.WindowNs, "window", "time that is measured; 0s, with --warmup 0s: until it is steady"),
			command.TimeFlag(&o.WarmupNs, "warmup", "time before that"),
			command.CountFlag(&o.Seed, "seed", 1, 0, 1<<62, "the seed"), command.JSONFlag(&o.json),
		},
		Action: func(c *cli.Context) error { return o.run(c, env) },
	}
}

// check says which flags mean nothing without others.
func (o *txnOptions) check(c *cli.Context) error {
	for _, f := range [][2]string{{"fail", "fail-rate"}, {"noticed", "fail-rate"}, {"long-hold", "long"}} {
		if c.IsSet(f[0]) && c.Float64(f[1]) == 0 {
			return command.Usage(c, "--%s means nothing without --%s", f[0], f[1])
		}
	}
	if c.IsSet("patience") && !o.aborts {
		return command.Usage(c, "--patience means nothing without --aborts")
	}
	if o.FailWaiting = o.fail == "waiting"; c.IsSet("think") && o.ThinkNs == 0 {
		o.ThinkNs = 1 // 0 is not given
	}
	return nil
}

func (o *txnOptions) run(c *cli.Context, env *command.Env) error {
	if err := o.check(c); err != nil {
		return err
	}
	o.Artifact, o.Sorted, o.CoreClients = o.mode == "artifact", !o.aborts, 1
	var points []bench.Point
	for name := range strings.SplitSeq(o.locks, ",") {
		m := o.Micro
		m.Lock = name
		m = m.WithDefaults()
		if err := o.Txn.Validate(&m); errors.Is(err, locks.ErrUnknown) {
			return exit.With(exit.UnknownName, err)
		} else if err != nil {
			return exit.With(exit.Usage, err)
		}
		points = append(points, o.Txn.Point(m))
	}
	e := &bench.Experiment{Name: "txn", Points: func(bench.Options) []bench.Point { return points }}
	out, err := bench.Run(c.Context, []*bench.Experiment{e}, bench.Config{Seed: o.Seed, Seeds: 1})
	if len(out[0].Rows) > 0 || err == nil {
		r := report.Report{Experiment: "txn", Fabric: "sim", Seed: o.Seed, Rows: report.Rows(out[0].Rows), Config: map[string]any{"trace": o.Trace, "mode": o.mode, "warehouses": o.Warehouses,
			"subscribers": o.Subscribers, "aborts": o.aborts, "patience_us": us(o.PatienceNs), "exclusive": o.Exclusive, "data": o.WithData, "cns": o.CNs, "mns": o.MNs, "far": o.Far, "nic": o.NIC, "nic_model": bench.ModelNote, "cut": out[0].Cut,
			"think_us": us(o.ThinkNs), "delay_us": us(o.DelayNs), "fail_rate": o.FailRate, "fail_waiting": o.FailWaiting, "noticed_us": us(o.NoticedNs), "long": o.Long, "long_hold_us": us(o.LongNs),
			"lease_us": us(o.LeaseNs), "ask_lease_us": us(o.AskNs), "long_ask": o.LongAsk, "unchecked": o.Unchecked, "window_us": us(o.WindowNs), "warmup_us": us(o.WarmupNs)}}
		if err := env.Print(o.json, r, func(w io.Writer) { txnTable(w, out[0].Rows) }); err != nil {
			return err
		}
	}
	if c.Context.Err() != nil {
		return interrupted(c.Context.Err())
	}
	return err
}

func us(t fabric.Time) float64 { return float64(t) / 1e3 }

// txnTable writes rows for people.
func txnTable(w io.Writer, rows []bench.Row) {
	names := []string{"lock", "clients", "mops", "p50_us", "p99_us", "p999_us", "mn_ops_per_op", "aborts_pct", "expired_pct", "failures", "lost", bench.SteadyColumn}
	t := report.Table{Head: names}
	for _, row := range rows {
		var cells []string
		for _, n := range names {
			cells = append(cells, row.Cell(n))
		}
		t.Add(cells...)
	}
	t.Write(w)
}
