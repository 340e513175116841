package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report/reporttest"
	"github.com/declock/declock/lab/bench"
	"github.com/declock/declock/lab/locks"
)

// labRun runs a command in this process, and returns what it prints.
func labRun(args ...string) (stdout string, err error) {
	var out bytes.Buffer
	env := &command.Env{Stdin: os.Stdin, Stdout: &out, Stderr: io.Discard}
	err = command.Run(Lab(env), env, append([]string{"declock-lab"}, args...))
	return out.String(), err
}

// The names in JSON are of one style.
func TestNamesInJSON(t *testing.T) {
	for _, v := range []any{peersRow{}, faultRow{}, exploreRow{}, mutantRow{}} {
		reporttest.CheckNames(t, v)
	}
}

// shape describes JSON: the names of objects and the kinds of values, sorted.
func shape(v any, indent string) string {
	switch x := v.(type) {
	case map[string]any:
		var b strings.Builder
		for _, k := range slices.Sorted(maps.Keys(x)) {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, k, strings.TrimPrefix(shape(x[k], indent+"  "), indent+"  "))
		}
		return "object\n" + strings.TrimSuffix(b.String(), "\n")
	case []any:
		if len(x) == 0 {
			return "empty list"
		}
		return "list of " + shape(x[0], indent)
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "bool"
	}
	return fmt.Sprintf("%T", v)
}

const microShape = `object
commit: string
config: object
  capacity: number
  chain: bool
  clients: number
  cns: number
  cs_len: number
  cut: bool
  keep: bool
  locks: number
  message_extra_ns: number
  message_scale: number
  nic: string
  nic_model: string
  rate: number
  read_pct: number
  seeds: number
  theta: number
  tune: string
  warmup_us: number
  window_us: number
experiment: string
fabric: string
rows: list of object
  acquire_p20_us: number
  acquire_p50_us: number
  acquire_p90_us: number
  acquire_p99_us: number
  clients: number
  cs_len: number
  data_p50_us: number
  drift_pct: number
  experiment: string
  local_handovers: number
  lock: string
  locks: number
  lost: number
  mean_us: number
  messages_per_op: number
  mn_atomics_per_op: number
  mn_ops_per_acquire: number
  mn_ops_per_op: number
  mn_reads_per_op: number
  mops: number
  oldest_us: number
  p50_us: number
  p999_us: number
  p99_us: number
  prefetch_per_acquire: number
  read_pct: number
  refetch_per_release: number
  release_mean_us: number
  release_p50_us: number
  remote_handovers: number
  retries_per_acquire: number
  seeds: number
  settle_us: number
  steady: number
  theta: number
  window_us: number
seed: number`

// The JSON of micro is what scripts depend on. A row more is no harm; one less is.
func TestMicroJSON(t *testing.T) {
	out, err := labRun("bench", "micro", "--json", "--clients", "8", "--cns", "2", "--lock", "cas,declock-tf", "--locks", "100", "--window", "200us", "--warmup", "50us", "--seed", "3")
	if err != nil {
		t.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := shape(v, ""); got != microShape {
		t.Errorf("JSON has another shape:\n%s", got)
	}
	if rows := v["rows"].([]any); len(rows) != 2 || v["seed"] != 3.0 || v["fabric"] != "sim" || v["experiment"] != "micro" {
		t.Errorf("%s", out)
	}
}

// Transactions run over one warehouse and over 9,600, by the specification and as published, and over TATP; with pauses, long readers and clients that fail.
func TestBenchTxn(t *testing.T) {
	for _, args := range []string{"--warehouses 1 --mode spec", "--warehouses 9600", "--trace tatp --subscribers 50 --aborts --exclusive",
		"--mode spec --warehouses 10 --think 0s --delay 10us --long 0.1 --long-hold 100us --lease 1ms --ask-lease 20ms --lock dslr:slots --warmup 1ms --window 5ms",
		"--mode spec --warehouses 4 --mns 4 --far --lock parlock --warmup 1ms --window 5ms", "--warehouses 1 --mode spec --aborts --patience 100us --warmup 1ms --window 5ms", "--trace tatp --subscribers 50 --mns 3",
		"--fail-rate 0.01 --fail waiting --noticed 1ms --warmup 1ms --window 5ms"} {
		out, err := labRun(append([]string{"bench", "txn", "--json", "--clients", "10"}, strings.Fields(args)...)...)
		var v struct{ Rows []map[string]any }
		if err := errors.Join(err, json.Unmarshal([]byte(out), &v)); err != nil || len(v.Rows) != 1 || v.Rows[0]["mops"].(float64) <= 0 {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// The help of bench micro names the forms of locks, and there are no others by these names.
func TestLocksInHelp(t *testing.T) {
	out, err := labRun("bench", "micro", "--help")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"drtm:half", "dslr:slots", "parlock:ro", "retry-on-fail", "srvlock", "rpc:shiftlock", "shift-artifact:pause"} {
		if !strings.Contains(out, name) {
			t.Errorf("no %s in the help", name)
		}
	}
	for name := range strings.SplitSeq(strings.Trim(variedLocks, ",. "), ",") {
		name, _, _ = strings.Cut(strings.TrimSpace(name), " (")
		if name = strings.ReplaceAll(name, "N", "2"); strings.HasPrefix(name, "and ") {
			continue
		}
		if _, err := locks.Lookup(name); err != nil {
			t.Error(err)
		}
	}
}

// The bank's claims are judged by the rows that there are, and rates that are less than twice the other's come out in part.
func TestBankClaims(t *testing.T) {
	r := bankReport{Rows: []bankRow{{Lock: "declock", Load: "10000 customers", Rate: 2500, P50: 40, P99: 10}, {Lock: "redsync, tuned", Load: "10000 customers", Rate: 2000, P50: 100, P99: 100}, {Lock: "redsync", Load: "10000 customers", Rate: 1000, P50: 100, P99: 100}}}
	var got []string
	for _, c := range r.bankClaims() {
		got = append(got, fmt.Sprintf("%s %v %v %v", c.Text, c.Own, c.Ours, c.Verdict))
	}
	want := []string{"10000 customers: DecLock's rate over that of redsync true 2.5 yes", "10000 customers: DecLock's rate over that of redsync, beside ShiftLock's over RedLock's false 2.5 NO", "10000 customers: DecLock's median below redsync's by false 60 yes",
		"10000 customers: DecLock's 99 % latency below redsync's by false 90 yes", "10000 customers: DecLock's rate over that of redsync, tuned true 1.25 in part"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Every experiment is a command, and what it prints holds rows and claims; files are written where --out says.
func TestBenchDocument(t *testing.T) {
	for _, e := range append(bench.Experiments(), &bench.Experiment{Name: "all"}, &bench.Experiment{Name: "micro"}) {
		if out, err := labRun("bench", e.Name, "--help"); err != nil || !strings.Contains(out, "--seed") {
			t.Errorf("bench %s --help: %v", e.Name, err)
		}
	}
	list := slices.DeleteFunc(bench.Experiments(), func(e *bench.Experiment) bool { return e.Name != "fig12a" })
	cfg := bench.Config{Options: bench.Options{Tiny: true, NIC: bench.DefaultNIC}, Seed: 1, Seeds: 1}
	outcomes, err := bench.Run(t.Context(), list, cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &bench.Document{Name: "fig12a", Commit: "abc", Config: cfg, Outcomes: outcomes}
	dir := t.TempDir()
	if err := writeBench(&command.Env{Stderr: io.Discard}, dir, d); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"report.html", "results.json", "fig12a.svg"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Experiment, Commit string
		Config             map[string]any
		Rows, Claims       []map[string]any
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	if v.Experiment != "fig12a" || v.Commit != "abc" || v.Config["nic_model"] == "" || len(v.Rows) == 0 || len(v.Claims) == 0 {
		t.Errorf("%s", text)
	}
	for _, name := range []string{"claim", "ours", "bar", "verdict"} {
		if v.Claims[0][name] == nil {
			t.Errorf("claims have no %s: %v", name, v.Claims[0])
		}
	}
}

// The command that --procs starts takes its flags: none has a name that the cluster's flags have too.
func TestMicroPartFlags(t *testing.T) {
	if _, err := labRun("bench", "micro-part", "--cluster", "shm:nosuch", "--micro", "{"); exit.Of(err) != exit.Usage || !strings.Contains(err.Error(), "--micro") {
		t.Errorf("%v", err)
	}
}

// What cannot be measured is refused before anything runs.
func TestBenchRefuses(t *testing.T) {
	for _, c := range []struct {
		args string
		code exit.Code
	}{
		{"bench micro --lock nosuch", exit.UnknownName}, {"bench micro --read-pct 101", exit.Usage}, {"bench micro --theta -1", exit.Usage},
		{"bench micro --clients 4 --cns 8", exit.Usage}, {"bench micro --capacity 12", exit.Usage}, {"bench micro --window -1s", exit.Usage},
		{"bench nosuch", exit.Usage}, {"bench fig12a --nic nosuch", exit.Usage}, {"bench micro --cluster nosuch:x", exit.BadAddress},
		{"bench micro more", exit.Usage}, {"bench micro --procs 2", exit.Usage}, {"bench micro --message-scale 0", exit.Usage},
		{"bench bank --source /nowhere --locks declock;nosuch", exit.UnknownName}, {"bench bank --stops", exit.Usage}, {"bench bank --clients 6", exit.Usage},
		{"bench txn --lock nosuch", exit.UnknownName}, {"bench txn --warehouses 9601", exit.Usage}, {"bench txn --clients 4 --cns 8", exit.Usage},
		{"bench txn --fail-rate 2", exit.Usage}, {"bench txn --noticed 1ms", exit.Usage}, {"bench txn --trace tatp --long 0.1", exit.Usage}, {"bench txn --long-hold 1ms", exit.Usage},
		{"bench txn --think -1s", exit.Usage}, {"bench txn --delay 11s", exit.Usage},
		{"bench micro --cluster shm: --nic cx6", exit.Usage}, {"bench micro --cluster shm: --message-extra 1us", exit.Usage},
	} {
		if _, err := labRun(strings.Fields(c.args)...); exit.Of(err) != c.code {
			t.Errorf("%s: %v (code %v)", c.args, err, exit.Of(err))
		}
	}
}

// A run may be shorter than a tick of the kernel's clock: then what the machine did meanwhile is not known, and figures are numbers all the same.
func TestMeterOfAShortRun(t *testing.T) {
	row := (&meter{counted: -1}).row(1000)
	if _, err := json.Marshal(row); err != nil {
		t.Error(err)
	}
}

// The names of a bank's locks that are checked here are those that lab/peers has.
func TestBankLocks(t *testing.T) {
	text, err := os.ReadFile("../../../lab/peers/banklocks.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, found := range regexp.MustCompile(`(?m)^\t\{name: "([^"]*)"`).FindAllStringSubmatch(string(text), -1) {
		names = append(names, found[1])
	}
	if !slices.Equal(names, bankLocks) {
		t.Errorf("lab/peers has %q, bench bank %q", names, bankLocks)
	}
}
