package control

import (
	"errors"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/front"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces/replay"
)

// Hidden commands by which a program starts itself as a node.
const (
	MNCommand = "__mn"
	CNCommand = "__cn"
)

const (
	// Version of the protocol. Daemons and commands of different versions refuse each other.
	Version = 3
	// MaxLine bounds a line. The largest is a result with its histograms.
	MaxLine = 16 << 20
	// maxConns bounds the connections of a daemon.
	maxConns = 32
)

// Operations of a Request.
const (
	OpStatus = "status"
	OpReplay = "replay"
	OpStart  = "start"
	OpCancel = "cancel"
)

// A Request is a line to a daemon.
type Request struct {
	Version int     `json:"v"`
	Op      string  `json:"op"`
	Replay  *Replay `json:"replay,omitempty"`
}

// Types of a Reply.
const (
	TypeStatus   = "status"
	TypeWarming  = "warming"
	TypeReady    = "ready"
	TypeProgress = "progress"
	TypeResult   = "result"
	TypeError    = "error"
)

// A Reply is a line from a daemon.
type Reply struct {
	Version  int       `json:"v"`
	Type     string    `json:"type"`
	Status   *Status   `json:"status,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Result   *Result   `json:"result,omitempty"`
	Error    *Failure  `json:"error,omitempty"`
}

// A Failure is an error with its exit code.
type Failure struct {
	Code    exit.Code `json:"code"`
	Message string    `json:"message"`
}

// FailureOf returns the failure of an error, with what to do about it; nil for none.
func FailureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{Code: exit.Of(err), Message: exit.Message(err)}
}

// Err returns the error of a failure; nil for none.
func (f *Failure) Err() error {
	if f == nil {
		return nil
	}
	return exit.With(f.Code, errors.New(f.Message))
}

// A Replay is a daemon's part of a replay. Exactly one of Preset and Path is set.
type Replay struct {
	// Preset and what follows describe a trace that each client generates its part of.
	Preset   string `json:"preset,omitempty"`
	Keys     uint64 `json:"keys,omitempty"`
	Requests uint64 `json:"requests,omitempty"` // of all clients of all daemons
	Seed     uint64 `json:"seed,omitempty"`

	// Path of a trace file, and how it is dealt to clients.
	Path    string `json:"path,omitempty"`
	Name    string `json:"name,omitempty"` // of the trace in messages
	SkipBad bool   `json:"skip_bad,omitempty"`
	Deal    string `json:"deal,omitempty"`

	// Clients of this daemon are the numbers First to First+Clients-1 of Total.
	Clients int `json:"clients"`
	First   int `json:"first"`
	Total   int `json:"total"`

	// Exclusive promises that no other program uses the store; see replay.Options.
	Exclusive bool `json:"exclusive,omitempty"`
	// Target is memcached://HOST:PORT, or empty for the cluster's store.
	Target   string `json:"target,omitempty"`
	Store    string `json:"store,omitempty"`
	Objects  uint64 `json:"objects,omitempty"`
	MaxValue uint64 `json:"max_value,omitempty"`
	Limit    uint64 `json:"limit,omitempty"` // memory of the store on each memory node, if it is made; 0: none
	// OpenSlots makes a store in which sets of keys that have been there for a while need no lock.
	OpenSlots bool `json:"open_slots,omitempty"`

	// Warm fills the cache with the population of a generated trace before measuring.
	Warm      bool    `json:"warm,omitempty"`
	Verify    bool    `json:"verify,omitempty"`
	Fill      bool    `json:"fill,omitempty"`
	NoTTL     bool    `json:"no_ttl,omitempty"`
	Speed     float64 `json:"speed,omitempty"`
	MaxErrors uint64  `json:"max_errors,omitempty"`
	TimeBase  uint32  `json:"time_base,omitempty"`
	RunID     uint8   `json:"run_id,omitempty"`
}

// Progress is what the clients of a daemon have done so far.
type Progress struct {
	Warmed uint64 `json:"warmed,omitempty"`
	Ops    uint64 `json:"ops,omitempty"`
	Reads  uint64 `json:"reads,omitempty"`
	Hits   uint64 `json:"hits,omitempty"`
	Errors uint64 `json:"errors,omitempty"`
}

// Counters are what the clients of a compute node counted.
type Counters struct {
	Locks lock.Stats     `json:"locks"`
	NIC   fabric.Stats   `json:"nic"`
	Store objstore.Stats `json:"store"`
	// Gets and Stores are operations on stores that were timed, one in some: those that read, and those that may change something.
	Gets   front.Timed `json:"timed_gets"`
	Stores front.Timed `json:"timed_stores"`
}

// A Result is what a daemon's part of a replay measured. Counters are those
// of the measured phase. Error is set if it ended before its time; what was measured counts all the same.
type Result struct {
	Replay   *replay.Result `json:"replay"`
	Counters Counters       `json:"counters"`
	Resets   cql.AgentStats `json:"resets"`
	// Skipped counts malformed lines, FirstBad is the first of them.
	Skipped  int64    `json:"skipped,omitempty"`
	FirstBad string   `json:"first_bad,omitempty"`
	Error    *Failure `json:"error,omitempty"`
}

// A Status describes a compute node.
type Status struct {
	Node     string         `json:"node"`
	Address  string         `json:"address"`
	Pid      int            `json:"pid"`
	Policy   string         `json:"policy"`
	Procs    int            `json:"procs"`
	UptimeS  float64        `json:"uptime_s"`
	Live     []string       `json:"live"` // compute nodes, as this one sees it
	View     uint64         `json:"view"` // epoch
	Job      *Progress      `json:"job,omitempty"`
	Counters Counters       `json:"counters"`
	Resets   cql.AgentStats `json:"resets"`
	Memory   []Memory       `json:"memory"`
	Hot      []HotLock      `json:"hot,omitempty"` // the locks that are acquired most here, the hottest first
	// Seen is what the process does, clients of its own included.
	Seen Seen `json:"seen"`
	// Coordinator is how the node reaches the coordinator; nil: its cluster has none.
	Coordinator *Coordinator `json:"coordinator,omitempty"`
	// Copying is what the node copies to a new backup; nil: nothing.
	Copying *Copying `json:"copying,omitempty"`
	// Resetting are the locks in whose resets the node takes part.
	Resetting []string `json:"resetting,omitempty"`
	// Repairs are the copies that are not in sync, and Fencing the compute nodes that have gone and are not shut out of memory yet.
	Repairs []Repair `json:"repairs,omitempty"`
	Fencing []string `json:"fencing,omitempty"`
	// Ways are how operations on the memory nodes are executed; nil: the fabric has one way only.
	Ways []Way `json:"ways,omitempty"`
}

// A Way is how a compute node's operations on a memory node, or on a copy that it has of a replicated number, are executed.
type Way struct {
	Memory string `json:"memory"`
	Copy   uint32 `json:"copy,omitempty"` // number of a backup; 0: what serves the number
	Local  bool   `json:"local"`          // by the compute node's own CPU; else over the network
	Why    string `json:"why,omitempty"`  // over the network
	Chains uint64 `json:"chains"`         // executed locally since the memory was lent
}

// A Copying is a copy of a replicated memory-node number that is under way.
type Copying struct {
	Number string `json:"number"`
	Done   uint64 `json:"done"` // buckets of stores
	All    uint64 `json:"all"`
}

// Percent returns how much has been copied.
func (c *Copying) Percent() float64 { return 100 * float64(c.Done) / float64(max(c.All, 1)) }

// Seen is what a compute node has counted since it joined, whoever its clients are.
type Seen struct {
	Counters
	Acquisitions uint64 `json:"acquisitions"` // that were timed: one in some
	AcquireNs    uint64 `json:"acquire_ns"`   // that these took together
	Sessions     int    `json:"sessions"`
	Held         int    `json:"held"`         // holders of locks now
	Waiters      int    `json:"waiters"`      // for locks now
	LocalChains  uint64 `json:"local_chains"` // chains of operations that the node's own CPU has executed in memory of this machine (docs/local.md)
}

// A Coordinator is how a node reaches the coordinator of its cluster: etcd.
type Coordinator struct {
	SilentS float64 `json:"silent_s"`        // since it last answered
	Error   string  `json:"error,omitempty"` // why it does not answer
}

// A HotLock is a lock that is acquired often; see cn.HotLock.
type HotLock struct {
	Lock      string  `json:"lock"`
	Share     float64 `json:"share"`
	Error     float64 `json:"error"`
	AcquireUs float64 `json:"acquire_us"`
	Of        string  `json:"of,omitempty"` // what it is a lock of: kind and name
	Held      int     `json:"held"`         // by clients of this node, now
	Waiting   int     `json:"waiting"`      // clients of this node
	Queued    uint64  `json:"queued"`       // compute nodes that hold it or wait for it, as its memory says
	Writers   uint64  `json:"writers"`      // of them, exclusively
}

// A Repair is a copy of a replicated memory-node number that is not in sync.
type Repair struct {
	Number string `json:"number"`
	On     string `json:"on"` // the memory node
	Phase  string `json:"phase"`
}

// Memory describes a memory node as a compute node sees it.
type Memory struct {
	Node         string  `json:"node"`
	Size         uint64  `json:"size"`
	Used         uint64  `json:"used"` // taken for locks, indexes and extents; deleting objects does not give it back
	Epoch        uint32  `json:"epoch"`
	UUID         string  `json:"uuid,omitempty"`
	LockCapacity uint64  `json:"lock_capacity,omitempty"` // queue entries of a lock
	Layout       uint32  `json:"layout,omitempty"`        // layout version
	Entries      []Entry `json:"entries,omitempty"`
	Error        string  `json:"error,omitempty"`
}

// An Entry is an entry of a root directory.
type Entry struct {
	Name    string          `json:"name"`
	Kind    string          `json:"kind"`
	Address string          `json:"address"`
	Length  uint64          `json:"length"`
	Creator string          `json:"creator"`
	Taken   uint64          `json:"taken"`           // bytes of the memory node, with the entry's own
	Limit   uint64          `json:"limit,omitempty"` // of what a store or tree takes besides its own; 0: none
	Usage   *objstore.Usage `json:"usage,omitempty"` // of an object store
}
