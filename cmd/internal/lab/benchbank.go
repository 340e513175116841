package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	etcdserver "github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/lab/bench"
	"github.com/urfave/cli/v2"
)

const benchBankDescription = `A bank with its data in Redis (SmallBank: balance, deposit, transfer, amalgamate) under the locks of DecLock over TCP, redsync and etcd. Clients are in four processes. A
transaction locks its one or two customers, reads their accounts, and writes them and its client's log in one step of Redis. It starts a memory node, an etcd and a redis-server of its
own, on this machine's loopback (Debian: apt-get install redis-server). It prints rates and latencies, medians of rounds in turns, with 10,000 customers and with 50; and after
each round it counts the money.

With --runs N it measures nothing. In each run two of the processes are killed (SIGKILL), while their clients hold locks, and started anew; with --stops one stands still
(SIGSTOP) for a second longer than the lease of its locks, and goes on. After each run it counts the money. Where accounts keep the fencing tokens of DecLock and etcd, and refuse older
ones, none may be missing: else it exits with 1.

Examples:
   declock-lab bench bank
   declock-lab bench bank --runs 200
   declock-lab bench bank --runs 5 --stops --locks 'declock; declock, no tokens; redsync, tuned; etcd; etcd, no tokens'
   declock-lab bench bank --runs 5 --locks 'declock, two writes; no lock'     what the check must find`

// bankLocks are the locks of lab/peers' bank by name: a typing error is found before anything is built.
var bankLocks = []string{"declock", "declock-tf", "declock, no tokens", "redsync", "redsync, tuned", "etcd", "etcd, no tokens", "declock, two writes", "no lock"}

const defaultBankLocks = "declock; declock-tf; declock, no tokens; redsync; redsync, tuned; etcd; etcd, no tokens"

// bankOptions are the flags of bench bank.
type bankOptions struct {
	peersOptions
	locks string
	runs  int
	stops bool
}

func benchBankCommand(env *command.Env) *cli.Command {
	o := new(bankOptions)
	return &cli.Command{
		Name: "bank", Usage: "a bank in Redis under the locks of DecLock, redsync and etcd, also with processes that are killed", Description: benchBankDescription,
		Flags: append(o.flags(),
			&cli.StringFlag{Name: "locks", Usage: "`NAMES`, with semicolons between", Value: defaultBankLocks, Destination: &o.locks},
			command.CountFlag(&o.runs, "runs", 0, 0, 100_000, "runs with processes that are killed; 0: measure rates"),
			&cli.BoolFlag{Name: "stops", Usage: "with --runs: processes stand still for longer than a lease, and are not killed", Destination: &o.stops},
			command.CountFlag(&o.clients, "clients", 32, 4, 1024, "clients, in four processes"),
		),
		Action: func(c *cli.Context) error {
			if err := o.check(c); err != nil {
				return err
			}
			for name := range strings.SplitSeq(o.locks, ";") {
				if !slices.Contains(bankLocks, strings.TrimSpace(name)) {
					return exit.Errorf(exit.UnknownName, "--locks: no lock %q; there are, with semicolons between: %s", strings.TrimSpace(name), strings.Join(bankLocks, "; "))
				}
			}
			if o.stops && o.runs == 0 {
				return command.Usage(c, "--stops means nothing without --runs")
			}
			if o.clients%4 != 0 { // else fewer would be at work than the report says
				return command.Usage(c, "--clients %d: it must be a multiple of 4, for there are four processes", o.clients)
			}
			return o.run(c.Context, env)
		},
	}
}

// bankReport is what lab/peers prints of a bank.
type bankReport struct {
	Config map[string]any `json:"config"`
	Rows   []bankRow      `json:"rows"`
}

type bankRow struct {
	Lock         string  `json:"lock"`
	Load         string  `json:"load"`
	Clients      int     `json:"clients"`
	Rate         float64 `json:"ops_per_s"`
	P50          float64 `json:"p50_us"`
	P99          float64 `json:"p99_us"`
	Runs         int     `json:"runs"`
	Faults       int     `json:"faults"`
	Transactions int     `json:"transactions"`
	Lost         int     `json:"lost"`
	Refused      int     `json:"refused"`
	Wrong        int     `json:"wrong"`
	Missing      int64   `json:"missing"`
}

func (o *bankOptions) run(ctx context.Context, env *command.Env) error {
	dir, program, err := o.built(ctx, env)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	e := app.Embedded{Fabric: "tcp", Name: app.EmbeddedName(), RunDir: o.runDir, Mns: 1, MaxCN: bankNodes, Size: 256 << 20, Huge: "off"}
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
	r := new(bankReport)
	err = o.peers(ctx, env, program, r, "--bank", o.locks, "--runs", strconv.Itoa(o.runs), "--stops="+strconv.FormatBool(o.stops),
		"--cluster", f.Address()+"?insecure=true&listen=127.0.0.1:0", "--etcd", etcd.Endpoint())
	if err != nil {
		return err
	}
	return errors.Join(o.showBank(env, r), interrupted(ctx.Err()))
}

// bankNodes are compute nodes: four processes, and those that were killed until their leases end.
const bankNodes = 32

func (o *bankOptions) showBank(env *command.Env, r *bankReport) error {
	t := &report.Table{Head: []string{"load", "lock", "clients", "ops/s", "p50 us", "p99 us", "runs", "faults", "transactions", "lost", "refused", "wrong", "missing"}}
	var wrong []string
	for _, row := range r.Rows {
		t.Add(row.Load, row.Lock, strconv.Itoa(row.Clients), fmt.Sprintf("%.0f", row.Rate), fmt.Sprintf("%.0f", row.P50), fmt.Sprintf("%.0f", row.P99), strconv.Itoa(row.Runs), strconv.Itoa(row.Faults),
			strconv.Itoa(row.Transactions), strconv.Itoa(row.Lost), strconv.Itoa(row.Refused), strconv.Itoa(row.Wrong), strconv.FormatInt(row.Missing, 10))
		if row.Wrong > 0 && (row.Lock == "declock" || row.Lock == "declock-tf" || row.Lock == "etcd") {
			wrong = append(wrong, row.Lock)
		}
	}
	claims := r.bankClaims()
	rep := report.Report{Experiment: "bank", Fabric: "tcp", Config: r.Config, Rows: report.Rows(r.Rows), Claims: claims}
	err := env.Print(o.json, rep, func(w io.Writer) {
		t.Write(w)
		writeClaims(w, claims)
	})
	if err == nil && len(wrong) > 0 {
		return fmt.Errorf("money is missing, or too much, under %s", strings.Join(wrong, " and "))
	}
	return err
}

// bankSpread is by how much of itself a ratio of two rates differs from one measurement to the next: those of one lock differ by a factor of two from round to round.
const bankSpread = 1

// shiftLockRate and redLockRate are what ShiftLock's paper has, in transactions a second.
const shiftLockRate, redLockRate = 36_550.0, 5560.0

// bankClaims are those of ShiftLock's paper, section 4.5, for which DecLock stands here, and redsync for RedLock: 36,550 transactions/s beside 5,560, the median 62.9 % lower, and the 99 %
// latency 95.2 %. Those over other locks, and bars of 1, are the project's own.
func (r *bankReport) bankClaims() (claims []bench.Claim) {
	at := func(load, lock string) (p bankRow) {
		for _, row := range r.Rows {
			if row.Load == load && row.Lock == lock && row.Rate > 0 {
				p = row
			}
		}
		return p
	}
	for _, load := range []string{"10000 customers", "50 customers"} {
		for _, other := range []string{"redsync", "redsync, tuned", "etcd"} {
			ours, theirs := at(load, "declock"), at(load, other)
			if ours.Rate == 0 || theirs.Rate == 0 {
				continue
			}
			c := bench.Claim{Experiment: "bank", Text: load + ": DecLock's rate over that of " + other, Unit: "x", Own: true, Spread: bankSpread}
			if other == "redsync" {
				c.Paper = shiftLockRate / redLockRate
			}
			claims = append(claims, c.AtLeast(ours.Rate/theirs.Rate, 1))
			if other != "redsync" || load != "10000 customers" { // their million accounts have no hot ones
				continue
			}
			claims = append(claims, bench.Claim{Experiment: "bank", Text: load + ": DecLock's rate over that of redsync, beside ShiftLock's over RedLock's", Unit: "x", Other: true, Paper: c.Paper, Spread: bankSpread,
				Note: fmt.Sprintf("all locks share two processors with Redis, which does the same work for each: redsync's rate here is %.1f times that of the paper's RedLock, and DecLock's over TCP %.2f times that of its ShiftLock, by one-sided operations", theirs.Rate/redLockRate, ours.Rate/shiftLockRate)}.Near(ours.Rate/theirs.Rate, 1.25))
			for _, cut := range []struct {
				text         string
				ours, theirs float64
				paper        float64
			}{{"median", ours.P50, theirs.P50, 62.9}, {"99 % latency", ours.P99, theirs.P99, 95.2}} {
				claims = append(claims, bench.Claim{Experiment: "bank", Text: load + ": DecLock's " + cut.text + " below redsync's by", Unit: "%", Other: true, Paper: cut.paper}.Near(100*(1-cut.ours/cut.theirs), 1.25))
			}
		}
	}
	return claims
}
