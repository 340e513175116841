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
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/fleet"
	"github.com/declock/declock/cmd/internal/machine"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/memcached"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

const replayDescription = `It replays TRACE (the 7-column CSV of the Twitter cache traces; plain, .gz or .zst, "-" is standard
input; that and pipes are copied to an unlinked temporary file first) or, without TRACE, a trace that it generates. By default it starts a memory
node and compute nodes on this machine, fills the cache with the population of a generated trace (not measured), replays, prints a table,
and takes everything down. Ctrl-C stops it and prints what was measured so far (exit code 130).

Examples:
   declock replay
   declock replay --preset cluster53 --keys 20000 --ops 1M --lock declock-tf
   declock replay cluster14.sort.zst --verify --on-bad-line skip
   declock replay --cluster shm:demo                     the compute nodes of a cluster that is running
   declock replay --cluster verbs://10.0.0.1:2379/demo --secret-file /etc/declock/secret --cns 2
                                                         compute nodes of its own, on this host
   declock replay --target memcached://127.0.0.1:11211   memcached with the same clients, to compare`

// EmbeddedPrefix begins the names of clusters that replay starts for itself.
const EmbeddedPrefix = "replay-"

// replayOptions are the flags of replay.
type replayOptions struct {
	net                                                  node.Network
	at                                                   scheme.Cluster // of --cluster; nil: an embedded one, or a target
	netArgs                                              []string
	target, preset, policy, store, profile               string
	trace                                                string // the argument; empty: generate
	path                                                 string // where compute nodes read it
	own                                                  bool   // --cns: compute nodes of our own in a running cluster
	cns, mns, clients, procs, keys, ops, seed, maxErrors command.Count
	maxValue, size, limit                                command.ByteSize
	speed                                                command.Speed
	ttl, onBadLine, deal, huge, overFabric               command.Choice
	verify, fill, noWarm, json                           bool
}

func newReplayOptions() *replayOptions {
	return &replayOptions{
		overFabric: fabricChoice(), mns: command.Count{N: 1, Min: 1, Max: scheme.MaxMN},
		cns: command.Count{N: 4, Min: 1, Max: 253}, clients: command.Count{N: 8, Min: 1, Max: 4000}, procs: command.Count{N: fleet.DefaultProcs, Min: 1, Max: 1024},
		keys: command.Count{N: 100_000, Min: 1, Max: traces.MaxKeys}, ops: command.Count{N: 5_000_000, Min: 1, Max: 1 << 50},
		seed: command.Count{N: 1, Max: 1<<64 - 1}, maxErrors: command.Count{N: 100, Max: 1 << 60},
		maxValue: command.ByteSize{N: 1 << 20, Text: "1MiB"}, size: command.ByteSize{Auto: true, Text: "auto"}, limit: command.ByteSize{Text: "none"},
		ttl: command.OneOf("trace", "trace", "none"), onBadLine: command.OneOf("fail", "fail", "skip"),
		deal: command.OneOf("by-key", "by-key", "by-client", "in-turn"), huge: command.OneOf("try", "off", "try", "require"),
	}
}

func (o *replayOptions) flags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "preset", Usage: "cluster to generate a trace of: see \"declock trace presets\"", Value: traces.IOPSBound, Destination: &o.preset},
		command.CountFlag(&o.keys, "keys", "distinct keys of a generated trace"),
		command.CountFlag(&o.ops, "ops", "operations of a generated trace, of all clients together"),
		command.CountFlag(&o.seed, "seed", "of the generated trace"),
		command.CountFlag(&o.cns, "cns", "compute nodes (processes) to start; with --cluster: instead of using this machine's daemons"),
		command.ChoiceFlag(&o.overFabric, "fabric", "of the cluster that is started"),
		command.CountFlag(&o.mns, "mns", "memory nodes to start, each with --size"),
		command.CountFlag(&o.clients, "clients", "clients on each compute node"),
		command.CountFlag(&o.procs, "procs", "GOMAXPROCS of each compute node that is started"),
		command.LockFlag(&o.policy),
		&cli.BoolFlag{Name: "verify", Usage: "values carry their key and version, and every read is checked", Destination: &o.verify},
		&cli.BoolFlag{Name: "fill", Usage: "a get that misses is followed by a set, as users of a cache do", Destination: &o.fill},
		&cli.BoolFlag{Name: "no-warm", Usage: "do not fill the cache before measuring", Destination: &o.noWarm},
		&cli.GenericFlag{Name: "speed", Usage: "max, or a factor of trace time", Value: &o.speed},
		command.ChoiceFlag(&o.ttl, "ttl", "expiry of objects"),
		command.SizeFlag(&o.maxValue, "max-value", "largest value; larger ones are cut"),
		command.SizeFlag(&o.size, "size", "memory of the memory node that is started; auto: what the trace needs, at most half of what is free"),
		command.SizeFlag(&o.limit, "limit", "memory of each memory node that the store may take besides its index, if it is made now; none: all but a 64th"),
		command.ChoiceFlag(&o.huge, "huge", "huge pages"),
		command.ChoiceFlag(&o.onBadLine, "on-bad-line", "what a malformed line of the trace does"),
		command.ChoiceFlag(&o.deal, "deal", "which client does which record of a trace file"),
		command.CountFlag(&o.maxErrors, "max-errors", "stop when a client has met so many; 0 is never"),
		&cli.StringFlag{Name: "target", Usage: "replay against `URL` instead: memcached://HOST:PORT", Destination: &o.target},
		&cli.StringFlag{Name: "store", Usage: "name of the object store in a running cluster", Value: "replay", Destination: &o.store},
		command.JSONFlag(&o.json),
		&cli.StringFlag{Name: "cpuprofile", Usage: "write a CPU profile of each compute node to `DIR`", Destination: &o.profile},
	}, o.net.Flags("use the running cluster at `ADDRESS`, as "+scheme.Forms())...)
}

func replayCommand(env *command.Env) *cli.Command {
	o := newReplayOptions()
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

// onlyFor are flags that mean something for some kinds of replay only.
var onlyFor = []struct {
	why   string
	when  func(o *replayOptions) bool
	flags []string
}{
	{"a running cluster has its own", func(o *replayOptions) bool { return o.net.Cluster != "" }, []string{"size", "huge", "target", "fabric", "mns"}},
	{"the compute nodes of a running cluster were started with theirs; --cns starts others", func(o *replayOptions) bool { return o.net.Cluster != "" && !o.own },
		[]string{"procs", "lock", "cpuprofile"}},
	{"there is no cluster in it", func(o *replayOptions) bool { return o.target != "" }, []string{"lock", "size", "limit", "huge", "store", "dir", "fabric", "mns"}},
	{"it is for generated traces", func(o *replayOptions) bool { return o.trace != "" }, []string{"preset", "keys", "ops", "seed", "no-warm"}},
	{"it is for trace files", func(o *replayOptions) bool { return o.trace == "" }, []string{"on-bad-line", "deal"}},
	{"it is for running clusters", func(o *replayOptions) bool { return o.net.Cluster == "" }, append([]string{"store"}, overNetwork...)},
}

// overNetwork are the flags of scheme.Flags that only clusters over a network have.
var overNetwork = func() (names []string) {
	for name, of := range scheme.Flags {
		if of != nil && !slices.Contains(of, "shm") {
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
	if err := command.CheckPolicy(o.policy); err != nil {
		return err
	}
	if err := onlySHM(c, o.overFabric.Value); err != nil {
		return err
	}
	if o.net.Cluster != "" {
		var err error
		if o.at, err = o.net.Parse(c); err != nil {
			return err
		}
		o.netArgs = o.net.Args(c)
	}
	most := uint64(objstore.MaxValueBytes)
	if o.target != "" {
		most = 1 << 30
	}
	if o.maxValue.N > most {
		return exit.Errorf(exit.TooLarge, "--max-value %s: values have %d bytes at most", o.maxValue.Text, most)
	}
	if o.target != "" {
		if _, _, err := memcached.ParseTarget(o.target); err != nil {
			return exit.With(exit.BadAddress, err)
		}
	}
	if o.trace != "" {
		return o.checkTrace()
	}
	p, err := traces.FindPreset(o.preset)
	if err != nil {
		return err
	}
	o.preset = p.Name
	_, err = traces.NewGenerator(traces.GenConfig{Preset: p, Keys: min(o.keys.N, 1000), Clients: 1})
	return err
}

// checkTrace opens the trace once, for its errors to come before anything is started.
func (o *replayOptions) checkTrace() error {
	if o.trace == "-" {
		return nil
	}
	var err error
	if o.path, err = filepath.Abs(o.trace); err != nil {
		return err
	}
	if readOnce(o.path) {
		return nil // its errors come when it is spooled
	}
	return o.checkRecords(o.trace)
}

// spool makes a trace that can be read only once one that every compute node reads by itself. The file is to be closed at the end.
func (o *replayOptions) spool(ctx context.Context, stdin io.Reader) (f *os.File, err error) {
	switch {
	case o.trace == "-":
		f, err = spool(ctx, stdin, o.traceName())
	case o.trace != "" && readOnce(o.path):
		f, err = spoolPath(ctx, o.path, o.trace)
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	o.path = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
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
	r, err := traces.Open(o.path, traces.ReaderOptions{Name: name, SkipBad: o.onBadLine.Value == "skip"})
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
	if exit.Of(err) == exit.BadTrace {
		return err
	}
	return exit.With(exit.NoTrace, err)
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
	policy := o.policy
	if o.at != nil && cluster == nil {
		policy = policyOf(ctx, o.at)
	}
	out, died, err := o.measure(ctx, env, members, cluster)
	for _, m := range members {
		m.Stop()
	}
	if out != nil && out.Members > 0 {
		err = errors.Join(err, o.print(env, out, policy))
	}
	if cluster != nil {
		cluster.Stop()
	}
	return errors.Join(died, err, verdict(out))
}

// members starts or finds the processes that take part. cluster is what was started for that, or nil.
func (o *replayOptions) members(ctx context.Context, env *command.Env) (members []*fleet.Member, cluster *fleet.Fleet, err error) {
	switch {
	case o.target != "":
		if err := flush(o.target); err != nil {
			return nil, nil, err
		}
		members, err = fleet.Drivers(int(o.cns.N), int(o.procs.N), env.Stderr)
		return members, nil, err
	case o.at != nil:
		return o.membersOf(ctx, env)
	}
	dir := o.net.Options.Dir
	for _, name := range RemoveDead(dir, o.net.Options.RunDir, EmbeddedPrefix) {
		fmt.Fprintf(env.Stderr, "declock: removed what cluster %s left, which had been killed\n", name)
	}
	e := Embedded{Fabric: o.overFabric.Value, Name: EmbeddedName(), dir: dir, RunDir: o.net.Options.RunDir, Mns: int(o.mns.N), cns: int(o.cns.N), Size: o.memory(spareMemory(dir)), Huge: o.huge.Value, policy: o.policy,
		procs: int(o.procs.N), MaxCN: int(o.cns.N) + 2, profile: o.profile} // room for commands that look at it meanwhile
	o.size.N = e.Size
	if e.lockQueue, err = command.LockQueue(o.policy, o.cns.N*o.clients.N); err != nil {
		return nil, nil, err
	}
	if e.lockQueue > 0 {
		e.lockQueue = max(e.lockQueue, e.MaxCN)
	}
	if cluster, err = e.Launch(ctx, env.Stderr); err != nil {
		return nil, nil, err
	}
	return connect(ctx, cluster)
}

// membersOf are the compute-node daemons of a running cluster on this machine; where there are
// none, or --cns was given, compute nodes that are started for this replay.
func (o *replayOptions) membersOf(ctx context.Context, env *command.Env) ([]*fleet.Member, *fleet.Fleet, error) {
	if !o.own {
		members, err := fleet.Join(ctx, o.at)
		if err != nil || len(members) > 0 {
			fleet.SortMembers(members)
			return members, nil, err
		}
		if info, err := o.at.Describe(ctx); err != nil || len(info.Memory) == 0 {
			return nil, nil, noMemory(o.at, info, err)
		}
		fmt.Fprintf(env.Stderr, "declock: no compute node of %s on this machine: starting %d for this replay\n", o.at.Address(), o.cns.N)
	}
	own, err := fleet.Launch(ctx, fleet.Config{
		Cluster: o.at, Network: o.netArgs, CNs: int(o.cns.N), Policy: o.policy, Procs: int(o.procs.N), Messages: env.Stderr, Profile: o.profile,
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
	members, err := f.Connect(ctx)
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
	return fmt.Sprintf("%s%d-%s", EmbeddedPrefix, os.Getpid(), hex.EncodeToString(b[:]))
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
	minMemory   = 64 << 20
	traceMemory = 1 << 30 // for a trace file, of which nothing is known
)

// memory returns the size of the memory node: what was asked for, or what a generated trace's
// population takes, so that nothing is evicted: about twice, and twice that if values grow. Of what this machine
// has to spare it takes half at most.
func (o *replayOptions) memory(spare uint64) uint64 {
	if o.size.N != 0 {
		return o.size.N
	}
	want := uint64(traceMemory)
	if p, err := traces.FindPreset(o.preset); err == nil && o.trace == "" {
		object := uint64(p.KeySize+p.ValueSize) + 256 // with its header, its slot and its bucket's lock
		want = min(2*object, math.MaxUint64/2/o.keys.N) * o.keys.N
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
	base := control.Replay{
		Clients: int(o.clients.N), Total: int(o.clients.N) * n, Target: o.target, Store: o.store, MaxValue: o.maxValue.N, Limit: o.limit.N,
		Verify: o.verify, Fill: o.fill, NoTTL: o.ttl.Value == "none", Speed: o.speed.X, MaxErrors: o.maxErrors.N,
		// Trace time begins now: so a later replay into the same store is later for it too.
		TimeBase: uint32(time.Now().Unix()), RunID: run[0],
		// No other program knows the name of an embedded cluster; on memcached or a running one others may work.
		Exclusive: o.at == nil && o.target == "" && o.trace != "" && o.deal.Value == "by-key",
	}
	if o.trace != "" {
		base.Path, base.Name, base.SkipBad, base.Deal = o.path, o.traceName(), o.onBadLine.Value == "skip", o.deal.Value
		base.Objects = 1 << 17
	} else {
		base.Preset, base.Keys, base.Requests, base.Seed, base.Warm = o.preset, o.keys.N, o.ops.N, o.seed.N, !o.noWarm
		base.Objects = o.keys.N
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
	out, err = fleet.Replay(ctx, members, o.specs(len(members)), bar.show)
	bar.finish()
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
	total, rows := ReplayRows(out, policy, o.target)
	total.Fill = o.fill
	if o.json {
		r := &report.Report{Experiment: "replay", Fabric: o.fabric(), Seed: o.seed.N, Config: o.config(policy)}
		r.Rows = append([]any{total}, report.Rows(rows)...)
		if err := r.WriteJSON(env.Stdout); err != nil {
			return err
		}
		printLost(env.Stderr, out)
		return nil
	}
	what := o.trace
	if what == "" {
		what = fmt.Sprintf("%s, %d keys, seed %d", o.preset, o.keys.N, o.seed.N)
	}
	where := o.target
	if where == "" {
		where = fmt.Sprintf("%s, lock %s", o.fabric(), policy)
	}
	title := fmt.Sprintf("replay of %s: %d processes x %d clients, %s", what, out.Members, o.clients.N, where)
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
	if o.target != "" {
		return "memcached"
	}
	if o.at != nil {
		return o.at.Scheme()
	}
	return o.overFabric.Value
}

func (o *replayOptions) config(policy string) map[string]any {
	c := map[string]any{
		"cns": o.cns.N, "clients_per_cn": o.clients.N, "procs": o.procs.N, "verify": o.verify, "fill": o.fill,
		"speed": o.speed.String(), "ttl": o.ttl.Value, "max_value": o.maxValue.N, "max_errors": o.maxErrors.N,
	}
	switch {
	case o.target != "":
		c["target"] = o.target
	case o.at != nil:
		c["cluster"], c["store"], c["lock"] = o.at.Address(), o.store, policy
	default:
		c["mns"] = o.mns.N
		c["lock"], c["memory"], c["huge"] = policy, o.size.N, o.huge.Value
	}
	if o.trace != "" {
		c["trace"], c["deal"], c["on_bad_line"] = o.trace, o.deal.Value, o.onBadLine.Value
	} else {
		c["preset"], c["keys"], c["ops"], c["warm"] = o.preset, o.keys.N, o.ops.N, !o.noWarm
	}
	return c
}
