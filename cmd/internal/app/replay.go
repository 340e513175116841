package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/memcached"
	"github.com/declock/declock/traces/replay"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

const replayDescription = `It replays TRACE (the 7-column CSV of the Twitter cache traces; plain, .gz or .zst, "-" is standard
input; that and pipes are copied to an unlinked temporary file first) or, without TRACE, a trace that it generates. By default it starts a memory
node and compute nodes on this machine, fills the cache with the population of a generated trace (not measured), replays, prints a table,
and takes everything down. Over tcp these reach the memory by their own CPUs, as on one machine they can; --local=false: over the loopback. Ctrl-C stops it and prints what was measured so far (exit code 130).

Examples:
   declock replay
   declock replay --preset cluster53 --keys 20000 --ops 1M --lock declock-tf
   declock replay cluster14.sort.zst --verify --on-bad-line skip
   declock replay --cluster shm:demo                     the compute nodes of a cluster that is running
   declock replay --cluster verbs://10.0.0.1:2379/demo --secret-file /etc/declock/secret --cns 2
                                                         compute nodes of its own, on this host
   declock replay --target memcached://127.0.0.1:11211   memcached with the same clients, to compare`

// embeddedPrefix begins the names of clusters that replay starts for itself.
const embeddedPrefix = "replay-"

// replayOptions are the flags of replay.
type replayOptions struct {
	net            node.Network
	at             scheme.Cluster // of --cluster; nil: an embedded one, or a target
	netArgs        []string
	started        Embedded       // what is started: a cluster, or compute nodes of a running one
	do             control.Replay // what all members do
	trace          string         // the argument; empty: generate
	own            bool           // --cns: compute nodes of our own in a running cluster
	ttl, onBadLine string
	noWarm, asJSON bool

	watch   func(f *fleet.Fleet, ended bool) // of MeasureReplay; nil: the outcome is printed
	outcome *fleet.Outcome
}

func (o *replayOptions) flags() []cli.Flag {
	e, do := &o.started, &o.do
	return append([]cli.Flag{
		&cli.StringFlag{Name: "preset", Usage: "cluster to generate a trace of: see \"declock trace presets\"", Value: traces.IOPSBound, Destination: &do.Preset},
		command.CountFlag(&do.Keys, "keys", 100_000, 1, traces.MaxKeys, "distinct keys of a generated trace"),
		command.CountFlag(&do.Requests, "ops", 5_000_000, 1, 1<<50, "operations of a generated trace, of all clients together"),
		command.CountFlag(&do.Seed, "seed", 1, 0, math.MaxUint64, "of the generated trace"),
		command.CountFlag(&e.cns, "cns", 4, 1, 253, "compute nodes (processes) to start; with --cluster: instead of using this machine's daemons"),
		e.fabricFlag("of the cluster that is started"),
		command.CountFlag(&e.Mns, "mns", 1, 1, scheme.MaxMN, "memory nodes to start, each with --size"),
		command.CountFlag(&do.Clients, "clients", 8, 1, 4000, "clients on each compute node"),
		command.CountFlag(&e.procs, "procs", fleet.DefaultProcs, 1, 1024, "GOMAXPROCS of each compute node that is started"),
		command.LockFlag(&e.policy),
		&cli.BoolFlag{Name: "verify", Usage: "values carry their key and version, and every read is checked", Destination: &do.Verify},
		&cli.BoolFlag{Name: "fill", Usage: "a get that misses is followed by a set, as users of a cache do", Destination: &do.Fill},
		&cli.BoolFlag{Name: "no-warm", Usage: "do not fill the cache before measuring", Destination: &o.noWarm},
		&cli.GenericFlag{Name: "speed", Usage: "max, or a factor of trace time", Value: (*speed)(&do.Speed)},
		command.ChoiceFlag(&o.ttl, "ttl", "trace", "expiry of objects", "trace", "none"),
		command.SizeFlag(&do.MaxValue, "max-value", "1MiB", "largest value; larger ones are cut"),
		command.SizeFlag(&e.Size, "size", "auto", "memory of the memory node that is started; auto: what the trace needs, at most half of what is free"),
		command.SizeFlag(&do.Limit, "limit", "none", "memory of each memory node that the store may take besides its index, if it is made now; none: all but a 64th"),
		&cli.BoolFlag{Name: "open-slots", Usage: "sets of keys that have been there for a while take no lock, in a store that is made now", Destination: &do.OpenSlots},
		command.HugeFlag(&e.Huge),
		command.ChoiceFlag(&o.onBadLine, "on-bad-line", "fail", "what a malformed line of the trace does", "fail", "skip"),
		command.ChoiceFlag(&do.Deal, "deal", "by-key", "which client does which record of a trace file", "by-key", "by-client", "in-turn"),
		command.CountFlag(&do.MaxErrors, "max-errors", 100, 0, 1<<60, "stop when a client has met so many; 0 is never"),
		&cli.StringFlag{Name: "target", Usage: "replay against `URL` instead: memcached://HOST:PORT; its processes take some 6 MiB of --dir", Destination: &do.Target},
		&cli.StringFlag{Name: "store", Usage: "name of the object store in a running cluster", Value: "replay", Destination: &do.Store},
		command.JSONFlag(&o.asJSON),
		&cli.StringFlag{Name: "cpuprofile", Usage: "write a CPU profile of each compute node to `DIR`", Destination: &e.profile},
	}, o.net.Flags("use the running cluster at `ADDRESS`, as "+scheme.Forms())...)
}

// speed is the value of --speed: a factor of trace time, or 0, which is max.
type speed float64

// Set implements cli.Generic.
func (s *speed) Set(text string) error {
	if text == "max" {
		*s = 0
		return nil
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x <= 0 {
		return fmt.Errorf("want max, or a factor of trace time above 0 as in 1 or 2.5")
	}
	*s = speed(x)
	return nil
}

func (s *speed) String() string {
	if *s == 0 {
		return "max"
	}
	return strconv.FormatFloat(float64(*s), 'g', -1, 64)
}

func replayCommand(env *command.Env) *cli.Command { return new(replayOptions).command(env) }

func (o *replayOptions) command(env *command.Env) *cli.Command {
	return command.Complete(&cli.Command{
		Name: "replay", Usage: "replay a cache trace and print what it measured", ArgsUsage: "[TRACE]", Category: "run",
		Description: replayDescription, Flags: o.flags(),
		Action: func(c *cli.Context) error {
			if err := o.check(c); err != nil {
				return err
			}
			return o.run(c.Context, env)
		},
	})
}

// MeasureReplay does what "declock replay ARGS" does, for other commands, and returns the outcome in the place of printing it. watch is called
// when all clients begin, and when the last has ended; the processes that were started live at both times.
func MeasureReplay(ctx context.Context, env *command.Env, args []string, watch func(f *fleet.Fleet, ended bool)) (Total, []replay.Row, error) {
	o := &replayOptions{watch: watch}
	a := command.New(env, "declock", "", "")
	a.Commands = []*cli.Command{o.command(env)}
	err := a.RunContext(ctx, append([]string{a.Name, "replay"}, args...))
	if o.outcome == nil {
		return Total{}, nil, err
	}
	total, rows := ReplayRows(o.outcome, o.started.policy, o.do.Target)
	return total, rows, err
}

// onlyFor are flags that mean something for some kinds of replay only.
var onlyFor = []struct {
	why   string
	when  func(o *replayOptions) bool
	flags []string
}{
	{"a running cluster has its own", func(o *replayOptions) bool { return o.net.Cluster != "" }, []string{"size", "huge", "target", "fabric", "mns"}},
	{"the compute nodes of a running cluster were started with theirs; --cns starts others", func(o *replayOptions) bool { return o.net.Cluster != "" && !o.own },
		[]string{"procs", "lock", "cpuprofile"}},
	{"there is no cluster in it", func(o *replayOptions) bool { return o.do.Target != "" }, []string{"lock", "size", "limit", "huge", "store", "open-slots", "fabric", "mns"}},
	{"it is for generated traces", func(o *replayOptions) bool { return o.trace != "" }, []string{"preset", "keys", "ops", "seed", "no-warm"}},
	{"it is for trace files", func(o *replayOptions) bool { return o.trace == "" }, []string{"on-bad-line", "deal"}},
	{"it is for running clusters", func(o *replayOptions) bool { return o.net.Cluster == "" }, append([]string{"store"}, overNetwork...)},
}

// overNetwork are the flags of scheme.Flags that only clusters over a network have.
var overNetwork = func() (names []string) {
	for name, of := range scheme.Flags {
		if of != nil && !slices.Contains(of, "shm") && name != "local" { // of a cluster that is started, too
			names = append(names, name)
		}
	}
	return names
}()

// check refuses what makes no sense, before anything is started.
func (o *replayOptions) check(c *cli.Context) error {
	if err := o.net.Settings.Load(c); err != nil {
		return err
	}
	o.trace, o.own = c.Args().First(), c.IsSet("cns")
	for _, f := range onlyFor {
		for _, name := range f.flags {
			if f.when(o) && c.IsSet(name) {
				return command.Usage(c, "--%s cannot be given here: %s", name, f.why)
			}
		}
	}
	if _, err := hier.ParsePolicy(o.started.policy); err != nil {
		return err
	}
	if err := o.started.onlySHM(c); err != nil {
		return err
	}
	if own := o.net.Cluster == "" && o.started.Fabric == "tcp"; own && !c.IsSet("local") {
		o.net.Options.Local = true // as declock up has it
	}
	if o.net.Options.Local && o.net.Cluster == "" && o.started.Fabric != "tcp" {
		return command.Usage(c, "--local needs --fabric tcp")
	}
	if o.net.Cluster != "" {
		var err error
		if o.at, err = o.net.Parse(c); err != nil {
			return err
		}
		o.netArgs = o.net.Args(c)
	}
	most := uint64(objstore.MaxValueBytes)
	if o.do.Target != "" {
		most = 1 << 30
	}
	if o.do.MaxValue > most {
		return exit.Errorf(exit.TooLarge, "--max-value %s: values have %d bytes at most", units.Bytes(o.do.MaxValue), most)
	}
	if o.do.Target != "" {
		if _, _, err := memcached.ParseTarget(o.do.Target); err != nil {
			return exit.With(exit.BadAddress, err)
		}
	}
	if o.trace != "" {
		return o.checkTrace()
	}
	p, err := traces.FindPreset(o.do.Preset)
	if err != nil {
		return err
	}
	o.do.Preset = p.Name
	_, err = traces.NewGenerator(traces.GenConfig{Preset: p, Keys: min(o.do.Keys, 1000), Clients: 1})
	return err
}

// checkTrace opens the trace once, for its errors to come before anything is started.
func (o *replayOptions) checkTrace() error {
	if o.trace == "-" {
		return nil
	}
	var err error
	if o.do.Path, err = filepath.Abs(o.trace); err != nil {
		return err
	}
	if readOnce(o.do.Path) {
		return nil // its errors come when it is spooled
	}
	return o.checkRecords(o.trace)
}

// spool makes a trace that can be read only once one that every compute node reads by itself. The file is to be closed at the end.
func (o *replayOptions) spool(ctx context.Context, stdin io.Reader) (f *os.File, err error) {
	switch {
	case o.trace == "-":
		f, err = spool(ctx, stdin, o.traceName())
	case o.trace != "" && readOnce(o.do.Path):
		f, err = spoolPath(ctx, o.do.Path, o.trace)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o.do.Path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	if err := o.checkRecords(o.traceName()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// traceName stands for the trace in messages.
func (o *replayOptions) traceName() string {
	if o.trace == "-" {
		return "standard input"
	}
	return o.trace
}

// checkRecords reads the first record of the trace.
func (o *replayOptions) checkRecords(name string) error {
	r, err := traces.Open(o.do.Path, traces.ReaderOptions{Name: name, SkipBad: o.onBadLine == "skip"})
	if err == nil {
		defer r.Close()
		var rec traces.Record
		if r.Next(&rec) {
			return nil
		}
		if err = r.Err(); err == nil {
			return exit.Errorf(exit.BadTrace, "%s has no records", name)
		}
	}
	return exit.Trace(err)
}

// run does the replay.
func (o *replayOptions) run(ctx context.Context, env *command.Env) error {
	spooled, err := o.spool(ctx, env.Stdin)
	if err != nil {
		return err
	}
	if spooled != nil {
		defer spooled.Close()
	}
	members, cluster, err := o.members(ctx, env)
	if err != nil {
		if ctx.Err() != nil {
			return interruptedEarly()
		}
		return err
	}
	policy := o.started.policy
	if o.at != nil && cluster == nil {
		policy = policyOf(ctx, o.at)
	}
	out, died, err := o.measure(ctx, env, members, cluster)
	for _, m := range members {
		_ = m.Client.Close()
	}
	switch {
	case out == nil || out.Members == 0:
	case o.watch != nil:
		o.outcome = out
	default:
		err = errors.Join(err, o.print(env, out, policy))
	}
	if cluster != nil {
		cluster.Stop()
	}
	return errors.Join(died, err, verdict(out))
}

// members starts or finds the processes that take part. cluster is what was started for that, or nil.
func (o *replayOptions) members(ctx context.Context, env *command.Env) (members []*fleet.Member, cluster *fleet.Fleet, err error) {
	if o.at != nil {
		return o.membersOf(ctx, env)
	}
	dir := o.net.Options.Dir
	for _, name := range RemoveKilled(dir, o.net.Options.RunDir) {
		fmt.Fprintf(env.Stderr, "declock: removed what cluster %s left, which had been killed\n", name)
	}
	e := &o.started
	e.Name, e.dir, e.RunDir, e.Local = EmbeddedName(), dir, o.net.Options.RunDir, o.net.Options.Local
	e.Size, e.MaxCN = o.memory(spareMemory(dir)), e.cns+2 // room for commands that look at it meanwhile
	if e.lockQueue, err = command.LockQueue(e.policy, uint64(e.cns*o.do.Clients)); err != nil {
		return nil, nil, err
	}
	if e.lockQueue > 0 {
		e.lockQueue = max(e.lockQueue, e.MaxCN)
	}
	if cluster, err = e.Launch(ctx, env.Stderr); err != nil {
		return nil, nil, err
	}
	if o.do.Target != "" { // not before it is sure that there will be a replay
		if err := flush(o.do.Target); err != nil {
			cluster.Stop()
			return nil, nil, err
		}
	}
	return connect(ctx, cluster)
}

// membersOf are the compute-node daemons of a running cluster on this machine; where there are
// none, or --cns was given, compute nodes that are started for this replay.
func (o *replayOptions) membersOf(ctx context.Context, env *command.Env) ([]*fleet.Member, *fleet.Fleet, error) {
	if !o.own {
		members, err := fleet.Connect(ctx, control.Sockets(o.at.RunDir()), true)
		if err != nil || len(members) > 0 {
			return members, nil, err
		}
		if info, err := o.at.Describe(ctx); err != nil || len(info.Memory) == 0 {
			return nil, nil, noMemory(o.at, info, err)
		}
		fmt.Fprintf(env.Stderr, "declock: no compute node of %s on this machine: starting %d for this replay\n", o.at.Address(), o.started.cns)
	}
	own, err := fleet.Launch(ctx, fleet.Config{
		Cluster: o.at, Network: o.netArgs, CNs: o.started.cns, Policy: o.started.policy, Procs: o.started.procs, Messages: env.Stderr, Profile: o.started.profile,
	})
	if err != nil {
		return nil, nil, err
	}
	return connect(ctx, own)
}

// noMemory is why a cluster cannot be used: it cannot be looked at, or has no memory node.
func noMemory(at scheme.Cluster, info *scheme.Info, err error) error {
	switch {
	case err != nil:
		return err
	case info.Broken != nil:
		return info.Broken
	}
	return exit.Errorf(exit.NoCluster, "cluster %s has no memory node: start one with declock-mn", at.Address())
}

// connect connects to compute nodes that were started for a replay.
func connect(ctx context.Context, f *fleet.Fleet) ([]*fleet.Member, *fleet.Fleet, error) {
	members, err := fleet.Connect(ctx, f.Sockets(), false)
	if err != nil {
		f.Stop()
		return nil, nil, err
	}
	return members, f, nil
}

// EmbeddedName is a name that no other cluster has.
func EmbeddedName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails: see crypto/rand
	return fmt.Sprintf("%s%d-%s", embeddedPrefix, os.Getpid(), hex.EncodeToString(b[:]))
}

// flush empties a memcached, as the store of an embedded cluster is empty.
func flush(target string) error {
	c, err := memcached.DialTarget(target, memcached.Options{})
	if err != nil {
		return exit.With(exit.NoTarget, err)
	}
	return exit.With(exit.NoTarget, errors.Join(c.FlushAll(), c.Close()))
}

const (
	minMemory    = 64 << 20
	traceMemory  = 1 << 30 // for a trace file, of which nothing is known
	targetMemory = 4 << 20 // for compute nodes that work on a target only
)

// memory returns the size of the memory node: what was asked for, or what a generated trace's
// population takes, so that nothing is evicted: about twice, and twice that if values grow. Of what this machine
// has to spare it takes half at most.
func (o *replayOptions) memory(spare uint64) uint64 {
	switch {
	case o.do.Target != "":
		return targetMemory
	case o.started.Size != 0:
		return o.started.Size
	}
	want := uint64(traceMemory)
	if p, err := traces.FindPreset(o.do.Preset); err == nil && o.trace == "" {
		object := uint64(p.KeySize+p.ValueSize) + 256 // with its header, its slot and its bucket's lock
		want = min(2*object, math.MaxUint64/2/o.do.Keys) * o.do.Keys
		if p.Ops[traces.OpAppend] > 0 || p.Ops[traces.OpPrepend] > 0 {
			want *= 2
		}
	}
	const unit = 1 << 20
	return max(minMemory, min(want+unit-1, spare/2)&^(unit-1))
}

// spareMemory returns how much memory this process can have for a cluster in dir.
func spareMemory(dir string) uint64 {
	spare := machine.Look().Now.Bytes
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) == nil {
		spare = min(spare, st.Bavail*uint64(st.Bsize))
	}
	return spare
}

// specs are what each member is to do.
func (o *replayOptions) specs(n int) []*control.Replay {
	var run [1]byte
	_, _ = rand.Read(run[:])
	base := o.do
	base.Total, base.NoTTL = base.Clients*n, o.ttl == "none"
	// Trace time begins now: so a later replay into the same store is later for it too.
	base.TimeBase, base.RunID = uint32(time.Now().Unix()), run[0]
	// No other program knows the name of an embedded cluster; on memcached or a running one others may work.
	base.Exclusive = o.at == nil && base.Target == "" && o.trace != "" && base.Deal == "by-key"
	if o.trace != "" {
		base.Preset, base.Name, base.SkipBad = "", o.traceName(), o.onBadLine == "skip"
		base.Objects = 1 << 17
	} else {
		base.Warm, base.Objects = !o.noWarm, base.Keys
	}
	specs := make([]*control.Replay, n)
	for i := range specs {
		s := base
		s.First = i * s.Clients
		specs[i] = &s
	}
	return specs
}

// measure replays, with a progress bar. died is set if the embedded memory node did.
func (o *replayOptions) measure(ctx context.Context, env *command.Env, members []*fleet.Member, cluster *fleet.Fleet) (out *fleet.Outcome, died, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan struct{})
	defer close(over)
	if cluster != nil {
		for _, mn := range cluster.MNs {
			go func() {
				select {
				case <-mn.Done():
					cancel(mn.Died())
				case <-over:
				}
			}()
		}
	}
	bar := newBar(env.Stderr, o)
	show := bar.show
	if o.watch != nil {
		began := false
		show = func(measuring bool, _ control.Progress) {
			if measuring && !began {
				began = true
				o.watch(cluster, false)
			}
		}
	}
	out, err = fleet.Replay(ctx, members, o.specs(len(members)), show)
	bar.line.Clear()
	if o.watch != nil {
		o.watch(cluster, true)
	}
	if cluster != nil {
		if died = cluster.MemoryLost(); died != nil && out != nil {
			out.Interrupted = false // not by the user
		}
	}
	return out, died, err
}

// verdict is the error of a replay that is over, besides what measure said.
func verdict(out *fleet.Outcome) error {
	if out == nil {
		return nil
	}
	switch {
	case out.Interrupted:
		return exit.Errorf(exit.Interrupted, "interrupted")
	case out.Err != nil && exit.Of(out.Err) != exit.TooManyErrs:
		return out.Err
	case out.Result.VerifyFailures > 0:
		return exit.Errorf(exit.VerifyFailed, "%d values were read that must not have been", out.Result.VerifyFailures)
	case out.Err != nil:
		return out.Err
	case len(out.Lost) > 0:
		return exit.Errorf(exit.NodeLost, "results are partial") // the lost ones have been named
	}
	return nil
}

// print prints the result.
func (o *replayOptions) print(env *command.Env, out *fleet.Outcome, policy string) error {
	total, rows := ReplayRows(out, policy, o.do.Target)
	total.Fill = o.do.Fill
	if o.asJSON {
		r := &report.Report{Experiment: "replay", Fabric: o.fabric(), Seed: o.do.Seed, Config: o.config(policy)}
		r.Rows = append([]any{total}, report.Rows(rows)...)
		if err := r.WriteJSON(env.Stdout); err != nil {
			return err
		}
		printLost(env.Stderr, out)
		return nil
	}
	what := o.trace
	if what == "" {
		what = fmt.Sprintf("%s, %d keys, seed %d", o.do.Preset, o.do.Keys, o.do.Seed)
	}
	where := o.do.Target
	if where == "" {
		where = fmt.Sprintf("%s, lock %s", o.fabric(), policy)
	}
	title := fmt.Sprintf("replay of %s: %d processes x %d clients, %s", what, out.Members, o.do.Clients, where)
	WriteReplay(env.Stdout, title, &total, rows)
	printMessages(env.Stderr, out)
	return nil
}

// maxPrinted bounds the messages that are printed.
const maxPrinted = 10

func printMessages(w io.Writer, out *fleet.Outcome) {
	if out.FirstBad != "" {
		fmt.Fprintf(w, "declock: %d lines skipped; the first: %s\n", out.Skipped, out.FirstBad)
	}
	for i, m := range out.Result.Messages {
		if i == maxPrinted {
			fmt.Fprintf(w, "declock: and %d messages more\n", len(out.Result.Messages)-i)
			break
		}
		fmt.Fprintf(w, "declock: %s\n", m)
	}
	for _, kind := range slices.Sorted(maps.Keys(out.Result.Kinds)) {
		fmt.Fprintf(w, "declock: %d times: %s\n", out.Result.Kinds[kind], kind)
	}
	printLost(w, out)
}

// printLost prints which compute nodes were lost.
func printLost(w io.Writer, out *fleet.Outcome) {
	for _, l := range out.Lost {
		fmt.Fprintf(w, "declock: %v\n", l)
	}
}

func (o *replayOptions) fabric() string {
	if o.do.Target != "" {
		return "memcached"
	}
	if o.at != nil {
		return o.at.Scheme()
	}
	return o.started.Fabric
}

func (o *replayOptions) config(policy string) map[string]any {
	c := map[string]any{
		"cns": o.started.cns, "clients_per_cn": o.do.Clients, "procs": o.started.procs, "verify": o.do.Verify, "fill": o.do.Fill,
		"speed": (*speed)(&o.do.Speed).String(), "ttl": o.ttl, "max_value": o.do.MaxValue, "max_errors": o.do.MaxErrors,
	}
	switch {
	case o.do.Target != "":
		c["target"] = o.do.Target
	case o.at != nil:
		c["cluster"], c["store"], c["lock"] = o.at.Address(), o.do.Store, policy
	default:
		c["mns"] = o.started.Mns
		c["lock"], c["memory"], c["huge"] = policy, o.started.Size, o.started.Huge
	}
	if o.trace != "" {
		c["trace"], c["deal"], c["on_bad_line"] = o.trace, o.do.Deal, o.onBadLine
	} else {
		c["preset"], c["keys"], c["ops"], c["warm"] = o.do.Preset, o.do.Keys, o.do.Requests, !o.noWarm
	}
	return c
}
