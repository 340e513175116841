package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// bankProcesses are among how many processes clients are dealt out.
const bankProcesses = 4

// A bankRow is a lock of the bank, under a load: as a median of the rounds, or over all runs with faults.
type bankRow struct {
	Lock         string  `json:"lock"`
	Load         string  `json:"load"`
	Clients      int     `json:"clients"`
	Rate         float64 `json:"ops_per_s"` // transactions
	P50          float64 `json:"p50_us"`
	P99          float64 `json:"p99_us"`
	Runs         int     `json:"runs"`
	Faults       int     `json:"faults"`       // processes that were killed, or stopped for longer than a lease
	Transactions int     `json:"transactions"` // of processes that were not killed
	Lost         int     `json:"lost"`
	Refused      int     `json:"refused"`
	Wrong        int     `json:"wrong"`   // runs after which money was missing, or too much
	Missing      int64   `json:"missing"` // in all of these, without its sign
}

// A child is a process of clients.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	said  bytes.Buffer // what it writes to its standard error
	ended bool
}

// start starts a process of clients, and returns when these are ready.
func (o *bankOptions) start(ctx context.Context) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, "--bank-client", o.lock, "--bank-first", strconv.Itoa(o.first), "--clients", strconv.Itoa(o.clients),
		"--customers", strconv.Itoa(o.customers), "--think", o.think.String(), "--cluster", o.cluster, "--etcd", o.etcd, "--redis", o.redis)}
	c.cmd.Stderr = &c.said
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	if _, err := c.out.ReadString('\n'); err != nil {
		c.kill()
		return nil, fmt.Errorf("%s: clients do not begin: %w: %s", o.lock, err, strings.TrimSpace(c.said.String()))
	}
	return c, nil
}

func (c *child) begin() error { _, err := io.WriteString(c.in, "begin\n"); return err }

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.ended = true
}

// finish ends a process when its clients have ended their transactions, and returns what they have done.
func (c *child) finish() (t bankTally, err error) {
	_ = c.in.Close()
	limit := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	defer limit.Stop()
	text, err := io.ReadAll(c.out)
	c.ended = true
	if werr := c.cmd.Wait(); err != nil || werr != nil {
		return t, fmt.Errorf("%w: %s", errors.Join(err, werr), strings.TrimSpace(c.said.String()))
	}
	return t, json.Unmarshal(text, &t)
}

// A bankRun is a bank with the processes of its clients.
type bankRun struct {
	*bank
	o        bankOptions
	all      int // clients
	children []*child
}

// openBank makes the accounts, and starts processes of clients, which wait.
func openBank(ctx context.Context, o bankOptions) (*bankRun, error) {
	r := &bankRun{bank: &bank{data: redis.NewClient(&redis.Options{Addr: o.redis}), customers: o.customers}, o: o, all: o.clients}
	if err := r.create(ctx); err != nil {
		return r, err
	}
	r.o.clients = max(1, r.all/bankProcesses)
	for i := range min(bankProcesses, r.all) {
		if err := r.add(ctx, i); err != nil {
			return r, err
		}
	}
	return r, nil
}

// add starts the i-th process of clients, in the place of one that was killed.
func (r *bankRun) add(ctx context.Context, i int) error {
	o := r.o
	o.first = i * o.clients
	c, err := o.start(ctx)
	if err != nil {
		return err
	}
	if i == len(r.children) {
		r.children = append(r.children, nil)
	}
	r.children[i] = c
	return nil
}

func (r *bankRun) begin() error {
	for _, c := range r.children {
		if err := c.begin(); err != nil {
			return err
		}
	}
	return nil
}

func (r *bankRun) close() {
	for _, c := range r.children {
		if !c.ended {
			c.kill()
		}
	}
	_ = r.data.Close()
}

// finish ends all processes, and returns what they have done and how much money is missing. Of the process that was stopped errors are no failure: its locks were lost.
func (r *bankRun) finish(ctx context.Context, stopped int) (t bankTally, missing int64, err error) {
	for _, c := range r.children {
		_ = c.in.Close()
	}
	for i, c := range r.children {
		more, err := c.finish()
		if err != nil && i != stopped {
			return t, 0, fmt.Errorf("%s: %w", r.o.lock, err)
		}
		t.add(more)
	}
	missing, err = r.missing(ctx, r.all)
	return t, missing, err
}

// window lets the clients work without faults.
func (o bankOptions) window(ctx context.Context, window time.Duration) (row bankRow, err error) {
	r, err := openBank(ctx, o)
	defer r.close()
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		return row, err
	}
	if err := sleep(ctx, window); err != nil {
		return row, err
	}
	t, missing, err := r.finish(ctx, -1)
	if err != nil {
		return row, err
	}
	row.count(&t, missing)
	slices.Sort(t.Took)
	at := func(q float64) float64 { return float64(t.Took[int(q*float64(len(t.Took)-1))]) }
	if len(t.Took) > 0 {
		row.Rate, row.P50, row.P99 = float64(len(t.Took))/window.Seconds(), at(0.5), at(0.99)
	}
	return row, nil
}

func (row *bankRow) count(t *bankTally, missing int64) {
	row.Runs++
	row.Transactions += len(t.Took)
	row.Lost += t.Lost
	row.Refused += t.Refused
	if missing != 0 {
		row.Wrong++
		row.Missing += max(missing, -missing)
	}
}

// kills is a run in which a process is killed, twice, and started anew.
func (o bankOptions) kills(ctx context.Context, window time.Duration, row *bankRow) error {
	r, err := openBank(ctx, o)
	defer r.close()
	if err == nil {
		err = r.begin()
	}
	for range 2 {
		if err == nil {
			err = sleep(ctx, window/8+rand.N(window/4))
		}
		if err != nil {
			return err
		}
		i := rand.IntN(len(r.children))
		r.children[i].kill()
		row.Faults++
		if err = r.add(ctx, i); err == nil {
			err = r.children[i].begin()
		}
	}
	if err == nil {
		err = sleep(ctx, window/4)
	}
	if err != nil {
		return err
	}
	t, missing, err := r.finish(ctx, -1)
	row.count(&t, missing)
	return err
}

// stops is a run in which a process stands still for longer than the lease of its locks, and goes on.
func (o bankOptions) stops(ctx context.Context, window time.Duration, row *bankRow) error {
	lease := bankLocks[slices.IndexFunc(bankLocks, func(l bankLock) bool { return l.name == o.lock })].lease
	r, err := openBank(ctx, o)
	defer r.close()
	if err == nil {
		err = r.begin()
	}
	if err == nil {
		err = sleep(ctx, window/4)
	}
	if err != nil {
		return err
	}
	i := rand.IntN(len(r.children))
	process := r.children[i].cmd.Process
	err = process.Signal(syscall.SIGSTOP)
	row.Faults++
	err = errors.Join(err, sleep(ctx, lease+time.Second), process.Signal(syscall.SIGCONT), sleep(ctx, window/4))
	if err != nil {
		return err
	}
	t, missing, err := r.finish(ctx, i)
	row.count(&t, missing)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// bankFlags are what to measure of the bank.
type bankFlags struct {
	locks  string // by name, with semicolons between
	runs   int    // with faults; 0: the rates are measured
	stops  bool   // processes stand still, and are not killed
	rounds int
	window time.Duration
}

// The customers of loads: of ShiftLock's paper, who hardly ever wait, as many as memory allows here, and few.
var bankLoads = []int{10_000, 50}

// measureBank measures the bank under all locks, in turns. With an error it returns what was measured before.
func measureBank(ctx context.Context, f *bankFlags, o bankOptions) (rows []bankRow, err error) {
	names := strings.Split(f.locks, ";")
	for i, name := range names {
		names[i] = strings.TrimSpace(name)
		if !slices.ContainsFunc(bankLocks, func(l bankLock) bool { return l.name == names[i] }) {
			return nil, fmt.Errorf("no lock %q; there are: %s", names[i], lockNames())
		}
	}
	defer fmt.Fprintln(os.Stderr)
	if f.runs > 0 {
		o.customers, o.think = bankLoads[len(bankLoads)-1], 4*time.Millisecond
		run, load := bankOptions.kills, "killed"
		if f.stops {
			run, load = bankOptions.stops, "stopped"
		}
		for _, name := range names {
			o.lock = name
			row := bankRow{Lock: name, Load: load, Clients: o.clients}
			for i := range f.runs {
				fmt.Fprintf(os.Stderr, "\r%s, run %d of %d: %-20s", load, i+1, f.runs, name)
				if err := run(o, ctx, f.window, &row); err != nil {
					return append(rows, row), fmt.Errorf("run %d: %w", i+1, err)
				}
			}
			rows = append(rows, row)
		}
		return rows, nil
	}
	for _, customers := range bankLoads {
		o.customers = customers
		list := make([][]bankRow, len(names))
		for round := range f.rounds {
			for i, name := range names {
				o.lock = name
				fmt.Fprintf(os.Stderr, "\r%d customers, round %d of %d: %-20s", customers, round+1, f.rounds, name)
				row, err := o.window(ctx, f.window)
				if err != nil {
					return rows, err
				}
				list[i] = append(list[i], row)
			}
		}
		for i, name := range names {
			row := bankRow{Lock: name, Load: fmt.Sprintf("%d customers", customers), Clients: o.clients,
				Rate: median(list[i], func(r bankRow) float64 { return r.Rate }), P50: median(list[i], func(r bankRow) float64 { return r.P50 }),
				P99: median(list[i], func(r bankRow) float64 { return r.P99 })}
			for _, r := range list[i] {
				row.Runs, row.Transactions, row.Lost, row.Refused = row.Runs+1, row.Transactions+r.Transactions, row.Lost+r.Lost, row.Refused+r.Refused
				row.Wrong, row.Missing = row.Wrong+r.Wrong, row.Missing+r.Missing
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
