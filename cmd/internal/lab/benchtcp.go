package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/app"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/usage"
	"github.com/declock/declock/traces/memcached"
	"github.com/declock/declock/traces/replay"
	"github.com/urfave/cli/v2"
)

const benchTCPDescription = `The object store beside memcached, in real time and in processes of this machine, with the same replayer: rates and latencies, and what an
operation costs in processor time, system calls and context switches, of all nodes together, memcached with its clients. Nodes of "tcp" are on the memory
node's machine and reach its memory by their own CPUs (docs/local.md), as "declock replay --fabric tcp" has it; those of "loopback" do not. It measures in turns, one after the
other, and prints medians; then once more beside programs that burn a processor each. "others" is the processor time that programs had
which do not take part, "idle" what nobody used, both of all processors: on a busy machine compare rows of one run only. It starts a memcached of its own
(Debian: apt-get install memcached). System calls need tracefs and CAP_PERFMON; without, "-".

Examples:
   declock-lab bench tcp
   declock-lab bench tcp --rounds 3 --ops 200k --burners 0`

// tcpOptions are the flags of bench tcp.
type tcpOptions struct {
	rounds, burners int
	keys, ops       uint64
	only, runDir    string
	json            bool
}

// A contender is one of what bench tcp compares.
type contender struct {
	name, args string
	ops        uint64 // times the operations of the flags: as long as the others, about
	memcached  bool
}

var contenders = []contender{
	{"memcached 4x8", "--cns 4 --clients 8", 2, true},
	{"tcp 4x8", "--fabric tcp --cns 4 --clients 8", 8, false},
	{"tcp 1x32", "--fabric tcp --cns 1 --procs 2 --clients 32", 8, false},
	{"loopback 4x8", "--fabric tcp --local=false --cns 4 --clients 8", 1, false},
	{"loopback 4x8 open slots", "--fabric tcp --local=false --cns 4 --clients 8 --open-slots", 1, false},
	{"loopback 1x32", "--fabric tcp --local=false --cns 1 --procs 2 --clients 32", 3, false},
	{"shm 4x8", "--fabric shm --cns 4 --clients 8", 16, false},
	{"shm 2x8", "--fabric shm --cns 2 --procs 1 --clients 8", 24, false},
}

func benchTCPCommand(env *command.Env) *cli.Command {
	o := new(tcpOptions)
	return &cli.Command{
		Name: "tcp", Usage: "the object store beside memcached on this machine: rates, processor time, system calls", Description: benchTCPDescription,
		Flags: []cli.Flag{
			command.CountFlag(&o.rounds, "rounds", 5, 1, 1000, "how often each is measured, in turns"),
			command.CountFlag(&o.burners, "burners", 2, 0, 1024, "programs that burn a processor each, in the second half; 0: no second half"),
			command.CountFlag(&o.keys, "keys", 100_000, 1, 1<<30, "distinct keys"),
			command.CountFlag(&o.ops, "ops", 150_000, 1, 1<<40, "operations of a run over TCP with four processes; faster ones do more"),
			&cli.StringFlag{Name: "only", Usage: "those whose `NAME` begins so", Destination: &o.only},
			&cli.StringFlag{Name: "run-dir", Usage: "directory of sockets", Destination: &o.runDir},
			command.JSONFlag(&o.json),
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, env) },
	}
}

// A tcpRow is a contender, as medians of its rounds.
type tcpRow struct {
	Name        string  `json:"name"`
	Burners     int     `json:"burners"`
	Rate        float64 `json:"ops_per_s"`
	GetP50      float64 `json:"get_p50_us"`
	GetP99      float64 `json:"get_p99_us"`
	SetP50      float64 `json:"set_p50_us"`
	SetP99      float64 `json:"set_p99_us"`
	User        float64 `json:"user_us_per_op"`
	Kernel      float64 `json:"kernel_us_per_op"`
	Syscalls    float64 `json:"syscalls_per_op"` // negative: not known
	Voluntary   float64 `json:"voluntary_switches_per_op"`
	Involuntary float64 `json:"involuntary_switches_per_op"`
	Others      float64 `json:"others"` // of all processors: programs that do not take part
	Idle        float64 `json:"idle"`
}

func (o *tcpOptions) run(ctx context.Context, env *command.Env) error {
	server, err := startMemcached(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	var rows []tcpRow
	for _, burners := range slices.Compact([]int{0, o.burners}) {
		part, err := o.turns(ctx, env, server, burners)
		if rows = append(rows, part...); err != nil {
			if ctx.Err() != nil {
				return interrupted(ctx.Err())
			}
			return err
		}
	}
	t := &report.Table{Head: []string{"", "burners", "ops/s", "get p50 us", "p99", "set p50 us", "p99", "user us/op", "kernel", "calls/op", "switches/op", "forced", "others %", "idle %"}}
	for _, r := range rows {
		f := func(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
		calls := "-"
		if r.Syscalls >= 0 {
			calls = f(r.Syscalls, 2)
		}
		t.Add(r.Name, strconv.Itoa(r.Burners), f(r.Rate, 0), f(r.GetP50, 1), f(r.GetP99, 0), f(r.SetP50, 1), f(r.SetP99, 0), f(r.User, 1), f(r.Kernel, 1), calls,
			f(r.Voluntary, 3), f(r.Involuntary, 3), f(100*r.Others, 0), f(100*r.Idle, 0))
	}
	rep := report.Report{Experiment: "tcp", Fabric: "tcp", Config: map[string]any{"rounds": o.rounds, "keys": o.keys, "ops": o.ops, "preset": "cluster14"}, Rows: report.Rows(rows)}
	return env.Print(o.json, rep, t.Write)
}

// turns measures all contenders in turns.
func (o *tcpOptions) turns(ctx context.Context, env *command.Env, server *memcachedServer, burners int) (rows []tcpRow, err error) {
	for range burners {
		stop, err := burn()
		if err != nil {
			return nil, err
		}
		defer stop()
	}
	rounds := make([][]tcpRow, len(contenders))
	line := command.NewLine(env.Stderr)
	defer line.Clear()
	for round := range o.rounds {
		for i, c := range contenders {
			if !strings.HasPrefix(c.name, o.only) {
				continue
			}
			line.Show(true, fmt.Sprintf("round %d of %d", round+1, o.rounds), c.name)
			row, err := o.once(ctx, env, &c, server)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			row.Burners = burners
			rounds[i] = append(rounds[i], row)
		}
	}
	for _, list := range rounds {
		if len(list) > 0 {
			rows = append(rows, medians(list))
		}
	}
	return rows, nil
}

// once measures a contender once.
func (o *tcpOptions) once(ctx context.Context, env *command.Env, c *contender, server *memcachedServer) (row tcpRow, err error) {
	args := append([]string{"--keys", strconv.FormatUint(o.keys, 10), "--ops", strconv.FormatUint(c.ops*o.ops, 10)}, strings.Fields(c.args)...)
	if c.memcached {
		args = append(args, "--target", server.target)
	}
	if o.runDir != "" {
		args = append(args, "--run-dir", o.runDir)
	}
	var m meter
	total, ops, err := app.MeasureReplay(ctx, env, args, func(f *fleet.Fleet, ended bool) {
		pids := []int{}
		for _, child := range f.Children() {
			pids = append(pids, child.Pid())
		}
		if c.memcached {
			pids = append(pids, server.cmd.Process.Pid)
		}
		m.sample(pids, ended)
	})
	if err = errors.Join(err, m.err); err != nil {
		return row, err
	}
	row = m.row(float64(total.Ops))
	row.Name, row.Rate = c.name, total.OpsPerS
	at := func(op string) (r replay.Row) {
		if i := slices.IndexFunc(ops, func(r replay.Row) bool { return r.Op == op }); i >= 0 {
			r = ops[i]
		}
		return r
	}
	row.GetP50, row.GetP99, row.SetP50, row.SetP99 = at("get").P50Us, at("get").P99Us, at("set").P50Us, at("set").P99Us
	return row, nil
}

// A meter measures what processes cost between two samples.
type meter struct {
	cost       usage.Cost
	busy, idle time.Duration
	calls      *usage.Syscalls
	counted    float64 // negative: not known
	err        error
}

// sample takes a sample, the first or the last.
func (m *meter) sample(pids []int, last bool) {
	if last {
		m.counted = -1
		if m.calls != nil {
			n, err := m.calls.Count()
			m.counted, m.err = float64(n), errors.Join(m.err, err, m.calls.Close())
		}
	}
	cost, err := usage.Of(pids...)
	busy, idle, err2 := usage.Machine()
	m.err = errors.Join(m.err, err, err2)
	m.cost, m.busy, m.idle = cost.Sub(m.cost), busy-m.busy, idle-m.idle
	if !last {
		m.calls, err = usage.CountSyscalls(pids...)
		if err != nil && !errors.Is(err, usage.ErrNoSyscalls) {
			m.err = errors.Join(m.err, err)
		}
	}
}

// row returns what was measured, for so many operations.
func (m *meter) row(ops float64) tcpRow {
	us := func(d time.Duration) float64 { return float64(d.Microseconds()) / ops }
	all := max(1, float64(m.busy+m.idle)) // both are 0 in a run that is shorter than a tick of the kernel's clock
	return tcpRow{
		User: us(m.cost.User), Kernel: us(m.cost.Kernel), Syscalls: m.counted / ops,
		Voluntary: float64(m.cost.Voluntary) / ops, Involuntary: float64(m.cost.Involuntary) / ops,
		Others: max(0, float64(m.busy-m.cost.User-m.cost.Kernel)) / all, Idle: float64(m.idle) / all,
	}
}

// medians returns the median of each figure of rows that are alike otherwise.
func medians[T any](rounds []T) (row T) {
	row = rounds[0]
	to := reflect.ValueOf(&row).Elem()
	for i := range to.NumField() {
		if to.Field(i).Kind() != reflect.Float64 {
			continue
		}
		var values []float64
		for _, r := range rounds {
			values = append(values, reflect.ValueOf(r).Field(i).Float())
		}
		slices.Sort(values)
		to.Field(i).SetFloat(values[len(values)/2])
	}
	return row
}

// burn starts a program that burns a processor, until stop.
func burn() (stop func(), err error) {
	cmd := exec.Command("sh", "-c", "while kill -0 $PPID; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done") // it ends with this process
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, nil
}

// A memcachedServer is one that bench tcp has started: on the loopback, as it comes but for its memory.
type memcachedServer struct {
	target string
	cmd    *exec.Cmd
}

func startMemcached(ctx context.Context) (*memcachedServer, error) {
	program, err := exec.LookPath("memcached")
	if err != nil {
		return nil, exit.Errorf(exit.Unavailable, "no memcached on PATH (Debian: apt-get install memcached): %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	args := []string{"-l", host, "-p", port, "-m", "512"}
	if os.Getuid() == 0 {
		args = append(args, "-u", "root") // it refuses to run as root unless it is told so
	}
	s := &memcachedServer{target: memcached.Scheme + "://" + net.JoinHostPort(host, port), cmd: exec.Command(program, args...)}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c, err := memcached.DialTarget(s.target, memcached.Options{})
		if err == nil {
			return s, c.Close()
		}
		if ctx.Err() != nil || time.Now().After(limit) {
			s.stop()
			return nil, fmt.Errorf("memcached does not answer: %w", err)
		}
	}
}

func (s *memcachedServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}
