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
that of the transaction, which gives up after 10 ms and begins again. The defaults are ShiftLock's: 240 clients on 5 compute nodes, ConnectX-5.

Examples:
   declock-lab bench txn --trace tpcc --warehouses 9600 --lock declock,mcs,shift-artifact
   declock-lab bench txn --trace tpcc --warehouses 1 --mode spec
   declock-lab bench txn --trace tatp --mode artifact --aborts`

// txnOptions are the flags of bench txn.
type txnOptions struct {
	bench.Micro
	bench.Txn
	locks, mode string
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
			&cli.BoolFlag{Name: "exclusive", Usage: "there are no shared holders", Destination: &o.Exclusive},
			command.CountFlag(&o.Clients, "clients", 240, 1, 8192, "clients in all"),
			command.CountFlag(&o.CNs, "cns", 5, 1, int(fabric.MaxCN), "compute nodes"),
			command.ChoiceFlag(&o.NIC, "nic", "cx5", "model of the NICs", nics...),
			command.CountFlag(&o.Seed, "seed", 1, 0, 1<<62, "the seed"), command.JSONFlag(&o.json),
		},
		Action: func(c *cli.Context) error { return o.run(c, env) },
	}
}

func (o *txnOptions) run(c *cli.Context, env *command.Env) error {
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
			"subscribers": o.Subscribers, "aborts": o.aborts, "exclusive": o.Exclusive, "cns": o.CNs, "nic": o.NIC, "nic_model": bench.ModelNote, "cut": out[0].Cut}}
		if err := env.Print(o.json, r, func(w io.Writer) { txnTable(w, out[0].Rows) }); err != nil {
			return err
		}
	}
	if c.Context.Err() != nil {
		return interrupted(c.Context.Err())
	}
	return err
}

// txnTable writes rows for people.
func txnTable(w io.Writer, rows []bench.Row) {
	names := []string{"lock", "clients", "mops", "p50_us", "p99_us", "p999_us", "mn_ops_per_op", "aborts_pct", "lost", bench.SteadyColumn}
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
