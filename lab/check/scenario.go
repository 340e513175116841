package check

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
)

// ErrScenario: a scenario line that cannot be run.
var ErrScenario = errors.New("check: bad scenario")

// A Scenario is a run, whole: what it prints as is all that is needed to run it again.
// Times are in nanoseconds of virtual time, shares in percent.
type Scenario struct {
	Gen   string `key:"gen"` // the generator that drew it
	Class Class  `key:"class"`
	Seed  uint64 `key:"seed"` // of everything that is drawn while it runs

	CNs     int `key:"cns"`
	Clients int `key:"clients"` // of each compute node
	MNs     int `key:"mns"`
	// Copies is how many replicas each memory-node number has, on these and on Spares more memory nodes. 0: they are not replicated.
	Copies int `key:"copies"`
	Spares int `key:"spares"`
	// Repair: 1: new backups take the place of those that are lost, what there was is copied to them, and no memory node loses the last copy of a number.
	Repair int `key:"repair"`
	// Segment is the length of segments, of values of the object store that are larger; 0: no value has segments.
	Segment int `key:"segment"`
	// Open: 1: slots of the object store open, and sets of their keys take no lock.
	Open int `key:"open"`

	Lock   string `key:"lock"` // one of the baseline locks; "": DecLock, under Policy
	Policy string `key:"policy"`
	// SharingNs replaces the bound of shared tenure, at most, of policies that have one. 0: theirs.
	SharingNs fabric.Time `key:"sharing"`
	Capacity  uint8       `key:"cap"` // bits: the queue has 2^cap entries
	Version   uint8       `key:"ver"` // bits

	NIC   string `key:"nic"`   // preset
	Scale int    `key:"scale"` // of the latency of messages, in percent
	Tear  int    `key:"tear"`  // READs and WRITEs that tear
	Grain int    `key:"grain"` // where they tear: 8 or 64
	// TearNs is from the first part of what tears to the last, at most. 0: the simulator's default.
	TearNs fabric.Time `key:"window"`

	EpochNs fabric.Time `key:"epoch"` // what all clocks show at first
	SkewNs  fabric.Time `key:"skew"`  // clocks are off by up to so much
	DriftPM int64       `key:"drift"` // and drift by up to so many millionths
	SyncNs  fabric.Time `key:"sync"`  // between clock synchronisations, 0: never

	Locks    int         `key:"locks"`
	Rounds   int         `key:"rounds"` // of each client
	Reads    int         `key:"reads"`
	Writers  int         `key:"writers"` // so many nodes only write, the others only read; 0: as Reads says
	Busy     int         `key:"busy"`    // so many of those that read do not think between rounds; 0: as ThinkNs says
	Try      int         `key:"try"`
	Deadline int         `key:"deadline"`
	Cancel   int         `key:"cancel"`
	HoldNs   fabric.Time `key:"hold"`    // at most
	ThinkNs  fabric.Time `key:"think"`   // at most, between rounds
	Kept     int         `key:"kept"`    // 1: locks keep their cells on the compute nodes (lock.Keeper)
	Bad      int         `key:"bad"`     // percent of releases with an operation before them that fails
	Own      int         `key:"own"`     // percent of exclusive holders that write their cell before they release, not with the release
	Plain    int         `key:"plain"`   // each so many-th compute node forms no trains; 0: none is so
	Severed  int         `key:"severed"` // nothing passes from the first compute node to the second as long as all works; 2: nor back
	WaitNs   fabric.Time `key:"wait"`    // at most, until a deadline or a cancellation

	// Of the baseline locks: how long a holder may hold, 0: 10 ms; when counters are reset, 0: as published.
	LeaseNs  fabric.Time `key:"lease"`
	CountMax int         `key:"countmax"`
	// Update is the percentage of acquisitions for update, and Upgrade of those how many are upgraded. A client asks for leases of up to so many Slots.
	Update  int `key:"update"`
	Upgrade int `key:"upgrade"`
	Slots   int `key:"slots"`

	// Switch: 1: a programmable switch is on the path, else a compute node plays it. Of its packets so many percent are lost, come twice, and late, by up to PacketNs.
	Switch   int         `key:"switch"`
	Dropped  int         `key:"dropped"`
	Copied   int         `key:"copied"`
	Delayed  int         `key:"delayed"`
	PacketNs fabric.Time `key:"packetns"`
	// Fails is how often the switch fails, and is replaced by one with empty registers.
	Fails int `key:"fails"`
	// Between: 1: the same becomes of messages between compute nodes.
	Between int `key:"between"`
	// Registers is for how many locks the switch has registers; those of others are servers'. 0: for all.
	Registers int `key:"registers"`

	// Local: 1: each lock of fiss or parlock is at a compute node, whose clients take it without a message.
	Local int `key:"local"`

	// Near is how many compute nodes are on machines of memory nodes, from the first on, one after the other; then atomics of the NIC are none to CPUs.
	Near int `key:"near"`

	Keys   int `key:"keys"`   // of the object store; 0: locks only
	Hot    int `key:"hot"`    // percentage of its operations that set or delete the first key
	Values int `key:"values"` // bytes at most
	Paper  int `key:"paper"`  // 1: operations as in the paper's store
	// Room is how many bytes there are for objects on each memory node: what has no room evicts others; 0: there is enough. Of a tree: for nodes and values.
	Room    int `key:"room"`
	NoEvict int `key:"noevict"` // 1: what has no room is refused
	// SecondNs is what the store takes for a second, and Expiring the percentage of what is stored or touched that expires after some.
	SecondNs fabric.Time `key:"second"`
	Expiring int         `key:"expiring"`
	Tree     int         `key:"tree"` // 1: the keys are in a B+tree
	// Side is how many names there are of other stores and trees beside, which are made, used and dropped, over and over.
	Side int `key:"side"`

	RecheckNs fabric.Time `key:"recheck"` // of waiters, 0: never, so that a lost grant is lost
	ResetNs   fabric.Time `key:"reset"`   // likewise
	DetectNs  fabric.Time `key:"detect"`  // from crash to fence
	Joins     int         `key:"joins"`   // so many compute nodes join while the others work
	JoinNs    fabric.Time `key:"joinat"`  // when the first of them does; 0: that is drawn, like those of the others
	NewsNs    fabric.Time `key:"news"`    // until a node hears of a change of the membership, at most; 0: all at once
	Leaves    int         `key:"leaves"`  // so many times a compute node leaves in order, and mostly another joins then
	Sit       int         `key:"sit"`     // 1: one client holds lock 0, shared, until all others are done; 2: one that has lost it with its memory node does
	Late      string      `key:"late"`    // operations of crashed nodes: draw, drop or keep
	Old       int         `key:"old"`     // percent of requests by the address that a lock had in another memory
	// StrayNs is by how much messages between clients of the same nodes may overtake each other. 0: they do not.
	StrayNs fabric.Time `key:"stray"`
	// BreakNs is how long a chain may be held up until its connection breaks and
	// its outcome is unknown. 0: it never does.
	BreakNs fabric.Time `key:"break"`
	// BrokenLateNs is how much later than a cut what such a chain was to do takes effect, at most. 0: it never does.
	BrokenLateNs fabric.Time `key:"brokenlate"`
	// GraceNs is for how long an interrupted client waits for an operation at most. 0: until it is done.
	GraceNs fabric.Time `key:"grace"`
	// PatienceNs is how long all may take once the faults are over, or else they are stuck. 0: seconds.
	PatienceNs fabric.Time `key:"patience"`

	// SpanNs ends a run of clients that do not end by themselves: of Starve.
	SpanNs fabric.Time `key:"span"`

	Plan sim.Plan `key:"plan"`
}

// String returns the scenario as one line that ParseScenario reads.
func (s Scenario) String() string {
	var b strings.Builder
	v := reflect.ValueOf(s)
	for i := range v.NumField() {
		text := fmt.Sprint(v.Field(i).Interface())
		if f := v.Field(i); f.Kind() == reflect.Int64 {
			text = strconv.FormatInt(f.Int(), 10)
		}
		if text == "" || text == "0" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if strings.ContainsRune(text, ' ') {
			text = strconv.Quote(text)
		}
		fmt.Fprintf(&b, "%s=%s", v.Type().Field(i).Tag.Get("key"), text)
	}
	return b.String()
}

// ParseScenario parses what Scenario.String prints. What is not named is 0.
func ParseScenario(line string) (Scenario, error) {
	var s Scenario
	rest := strings.TrimSpace(line)
	for rest != "" {
		name, tail, ok := strings.Cut(rest, "=")
		if !ok {
			return s, fmt.Errorf("%w: %q is no key=value", ErrScenario, rest)
		}
		var text string
		if strings.HasPrefix(tail, `"`) {
			quoted, err := strconv.QuotedPrefix(tail)
			if err != nil {
				return s, fmt.Errorf("%w: %s: %v", ErrScenario, name, err)
			}
			text, _ = strconv.Unquote(quoted)
			rest = strings.TrimSpace(tail[len(quoted):])
		} else {
			text, rest, _ = strings.Cut(tail, " ")
			rest = strings.TrimSpace(rest)
		}
		if err := s.set(name, text); err != nil {
			return s, err
		}
	}
	return s, s.Validate()
}

func (s *Scenario) set(name, text string) error {
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		if v.Type().Field(i).Tag.Get("key") != name {
			continue
		}
		f := v.Field(i)
		var err error
		switch f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Int, reflect.Int64:
			var n int64
			n, err = strconv.ParseInt(text, 0, 64)
			f.SetInt(n)
		case reflect.Uint8, reflect.Uint64:
			var n uint64
			n, err = strconv.ParseUint(text, 0, f.Type().Bits())
			f.SetUint(n)
		default:
			s.Plan, err = sim.ParsePlan(text)
		}
		if err != nil {
			return fmt.Errorf("%w: %s=%s: %w", ErrScenario, name, text, err)
		}
		return nil
	}
	return fmt.Errorf("%w: no key %q", ErrScenario, name)
}

// policy returns the policy of the scenario's nodes.
func (s *Scenario) policy() (hier.Policy, error) {
	if s.Lock != "" {
		if baselineOf(s.Lock) == nil {
			return hier.Policy{}, fmt.Errorf("no lock %q: there are %v", s.Lock, baselineNames(func(*baselineLock) bool { return true }))
		}
		return hier.Policy{}, nil
	}
	p, err := hier.ParsePolicy(s.named())
	if err == nil && s.SharingNs > 0 && p.SharingNs > 0 {
		p.SharingNs, p.SharingMaxNs = min(p.SharingNs, s.SharingNs), s.SharingNs
	}
	return p, err
}

// named returns the name of the policy: to generators before g13 declock was without trains.
func (s *Scenario) named() string {
	name, features, _ := strings.Cut(s.Policy, "+")
	if gen, err := strconv.Atoi(strings.TrimPrefix(s.Gen, "g")); name != "declock" || err != nil || gen >= 13 {
		return s.Policy
	}
	return strings.TrimSuffix("declock+no-train+"+features, "+")
}

// Bounds of scenarios: none is meant to take longer than seconds.
const (
	maxCNs     = 32
	maxClients = 256
	maxRounds  = 1 << 20
)

// Validate says what is wrong with the scenario, if anything.
func (s *Scenario) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrScenario, fmt.Sprintf(format, args...))
	}
	switch {
	case s.CNs < 1 || s.CNs > maxCNs || s.Clients < 1 || s.Clients > maxClients || s.MNs < 1 || s.MNs > 8:
		return bad("%d compute nodes with %d clients, %d memory nodes", s.CNs, s.Clients, s.MNs)
	case s.Copies < 0 || s.Copies == 1 || s.Spares < 0 || s.Spares > 8 || s.Spares > 0 && s.Copies == 0 || s.Copies > s.MNs+s.Spares || s.Copies > 0 && s.Lock != "":
		return bad("%d copies, %d memory nodes, %d spares, lock %q", s.Copies, s.MNs, s.Spares, s.Lock)
	case s.Repair < 0 || s.Repair > 1 || s.Repair > 0 && (s.Copies == 0 || s.Keys == 0):
		return bad("repair=%d with %d copies, %d keys", s.Repair, s.Copies, s.Keys)
	case s.Segment < 0 || s.Segment > 0 && (s.Segment%64 != 0 || s.Segment*s.Segment/8 < maxValue || s.Segment > maxValue || s.Keys == 0 || s.Tree > 0):
		return bad("segments of %d bytes with %d keys, tree %d", s.Segment, s.Keys, s.Tree)
	case s.Keys == 0 && s.Locks < 1 || s.Locks > 1<<16 || s.Keys > 1<<16 || s.Rounds < 1 || s.Rounds > maxRounds:
		return bad("%d locks, %d keys, %d rounds", s.Locks, s.Keys, s.Rounds)
	case s.Keys > 0 && s.CNs*s.Clients > 32:
		return bad("%d clients of the object store: linearizability is judged for at most 32", s.CNs*s.Clients)
	case s.Joins < 0 || s.Joins > maxCNs || s.Joins > 0 && (s.Keys > 0 || s.Lock != "" && s.Lock != "fiss"):
		return bad("%d nodes join, %d keys, lock %q", s.Joins, s.Keys, s.Lock)
	case s.Leaves < 0 || s.Leaves > 32 || s.Leaves > 0 && (s.Keys > 0 || s.Lock != "" && s.Lock != "fiss"):
		return bad("nodes leave %d times, %d keys, lock %q", s.Leaves, s.Keys, s.Lock)
	case s.Sit == 1 && (s.CNs != 1 || s.Locks != 1 || s.Keys > 0 || s.Lock != "" || s.Policy == "cql" || strings.HasPrefix(s.Policy, "local-bound")):
		return bad("one client holds the lock until all others are done, with %d compute nodes, %d locks, %d keys, policy %s", s.CNs, s.Locks, s.Keys, s.Policy)
	case s.Sit < 0 || s.Sit > 2 || s.Sit == 2 && (s.Keys > 0 || s.Lock != ""):
		return bad("sit=%d with %d keys, lock %q", s.Sit, s.Keys, s.Lock)
	case s.Severed < 0 || s.Severed > 2 || s.Severed > 0 && s.CNs < 2:
		return bad("severed=%d with %d compute nodes", s.Severed, s.CNs)
	case s.Writers < 0 || s.Writers > s.CNs:
		return bad("%d nodes that write, of %d", s.Writers, s.CNs)
	case s.Values < 0 || s.Values > maxValue:
		return bad("values of %d bytes, at most %d", s.Values, maxValue)
	}
	if s.Room < 0 || s.SecondNs < 0 || s.Expiring < 0 || s.Expiring > 0 && s.SecondNs == 0 || s.Room+int(s.SecondNs) > 0 && s.Keys == 0 || s.SecondNs > 0 && s.Tree > 0 {
		return bad("%d bytes for objects, of which %d %% expire, in seconds of %d ns: %d keys", s.Room, s.Expiring, s.SecondNs, s.Keys)
	}
	if s.Side < 0 || s.Side > 8 || s.Side > 0 && (s.Keys == 0 || s.loses()) {
		return bad("%d names beside the main store or tree, %d keys, memory is lost: %v", s.Side, s.Keys, s.loses())
	}
	if _, err := s.policy(); err != nil {
		return bad("%v", err)
	}
	if s.Switch < 0 || s.Switch > 1 || s.Switch > 0 && s.Lock != "fiss" && s.Lock != "netlock" || s.Fails < 0 || s.Fails > 0 && (s.Switch == 0 || s.Lock != "fiss") {
		return bad("%d switches that fail %d times, lock %q", s.Switch, s.Fails, s.Lock)
	}
	if s.Local < 0 || s.Local > 1 || s.Local > 0 && s.Lock != "fiss" && s.Lock != "parlock" || s.Local > 0 && s.Joins+s.Leaves > 0 {
		return bad("local=%d with lock %q, %d nodes that join, %d that leave", s.Local, s.Lock, s.Joins, s.Leaves)
	}
	if s.Bad < 0 || s.Bad > 100 || s.Bad > 0 && s.Keys > 0 {
		return bad("%d %% of releases with an operation that fails, %d keys", s.Bad, s.Keys)
	}
	if s.Lock != "" && (s.Keys > 0 || s.Kept != 0 || s.CountMax < 0 || s.CountMax > 1<<15) {
		return bad("lock %s with %d keys, kept %d, countmax %d", s.Lock, s.Keys, s.Kept, s.CountMax)
	}
	if f := baselineOf(s.Lock); s.Update < 0 || s.Upgrade < 0 || s.Slots < 0 || s.Slots > 100 || s.Update > 0 && (f == nil || !f.updates) || s.Slots > 0 && (f == nil || !f.slots) {
		return bad("lock %q with update %d, upgrade %d, %d slots", s.Lock, s.Update, s.Upgrade, s.Slots)
	}
	y := s.layout()
	if err := y.Validate(); err != nil {
		return bad("%v", err)
	}
	if s.Lock == "" && s.participants() >= 2<<s.Capacity {
		return bad("%d participants are more than a queue of %d entries counts", s.participants(), 1<<s.Capacity)
	}
	if _, err := s.simConfig(); err != nil {
		return bad("%v", err)
	}
	return s.validatePlan()
}

func (s *Scenario) layout() cql.Layout {
	return cql.Layout{CapacityBits: s.Capacity, VersionBits: s.Version}
}

var lateNames = map[string]sim.LateOps{"": sim.LateDraw, "draw": sim.LateDraw, "drop": sim.LateDrop, "keep": sim.LateKeep}

// maxEvents bounds a run.
const maxEvents = 1e6

// simConfig returns the simulator's configuration.
func (s *Scenario) simConfig() (sim.Config, error) {
	nic, err := sim.Preset(s.NIC)
	if err != nil {
		return sim.Config{}, err
	}
	if s.Scale != 0 {
		nic.MessageScale = float64(s.Scale) / 100
	}
	late, ok := lateNames[s.Late]
	if !ok {
		return sim.Config{}, fmt.Errorf("no fate of late operations %q", s.Late)
	}
	cfg := sim.Config{
		Seed: s.Seed, NIC: nic, MaxEvents: maxEvents, Late: late, DetectDelay: s.DetectNs, NewsDelay: s.NewsNs, BreakAfter: s.BreakNs, BrokenLate: s.BrokenLateNs, Grace: s.GraceNs, Stray: s.StrayNs, KeepLast: s.Repair > 0,
		SplitAtomics: s.Near > 0,
		Tear:         sim.Tear{Prob: float64(s.Tear) / 100, Grain: s.Grain, Window: s.TearNs},
	}
	if s.SpanNs > 0 {
		cfg.MaxEvents = 0
	}
	if s.Side > 0 { // what is dropped is let go after seconds
		cfg.MaxEvents *= 4
	}
	r := sim.NewRand(s.Seed, streamClocks)
	for range s.CNs {
		k := sim.Clock{Offset: s.EpochNs}
		if s.SkewNs > 0 {
			k.Offset += fabric.Time(r.Uint64n(uint64(s.SkewNs)))
		}
		if s.DriftPM > 0 {
			k.Drift = (int64(r.Uint64n(uint64(2*s.DriftPM+1))) - s.DriftPM) * 1000
		}
		cfg.Clocks = append(cfg.Clocks, k)
	}
	return cfg, cfg.Validate()
}

// Streams of random numbers of a scenario's seed that the simulator does not use.
const (
	streamClocks = 1<<32 + iota
	streamDraw
	streamKept
	streamBad
	streamPaper
	streamNews
	streamJoins
	streamStray
	streamVariant
	streamFormat
	streamBroken
	streamLeaves = 1<<32 + 1<<16 + iota*64 // and some behind it
	streamSit
	streamGrace
	streamRoom
	streamTrains
	streamSwitch
)
