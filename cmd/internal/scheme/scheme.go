package scheme

import (
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/overtcp"
)

// DefaultMaxCN is for how many compute nodes locks are laid out by default.
const DefaultMaxCN = 16

// MaxMN is how many memory nodes a cluster may have.
const MaxMN = 64

// Options say how this process takes part in a cluster. Which of them mean something is the scheme's.
type Options struct {
	overtcp.Options // of verbs too; the address has Etcd and Cluster

	Dir    string // where shm clusters are
	RunDir string // where control sockets of clusters of other fabrics are; empty: the user's
	HTTP   string // host:port at which this process has its status, for tools of other hosts; empty: none

	SecretFile string
	Device     string // of RDMA
	Port       int
	GID        string
	QueuePairs int
}

// Flags are the names of the flags of Options in the commands, with which schemes
// they are for; nil is all.
var Flags = map[string][]string{
	"dir": {"shm"}, "run-dir": nil,
	"listen": networks, "advertise": networks, "tls-ca": networks, "tls-cert": networks, "tls-key": networks,
	"insecure": networks, "dead-after": {"shm", "tcp", "verbs"}, "silent-after": {"tcp"}, "local": {"tcp"},
	"etcd-ca": networks, "etcd-cert": networks, "etcd-key": networks, "etcd-user": networks, "etcd-password-file": networks,
	"secret-file": {"verbs"}, "device": {"verbs"}, "port": {"verbs"}, "gid": {"verbs"}, "queue-pairs": {"verbs"},
	"leave": networks,
	"path":  {"shm", "tcp"}, "keep": {"shm"},
	"replicas": {"tcp"}, "min-in-sync": {"tcp"}, "label": {"tcp"}, "backup-room": {"tcp"},
}

var networks = []string{"tcp", "verbs"}

// Huge says whether memory is taken in huge pages.
type Huge string

// The policies for huge pages.
const (
	HugeOff     Huge = "off"
	HugeTry     Huge = "try"
	HugeRequire Huge = "require"
)

// Memory says what memory a memory node lends.
type Memory struct {
	ID    fabric.MemID
	Size  uint64 // bytes
	MaxCN int    // compute nodes that the cluster may have; 0: what it has, or DefaultMaxCN
	Huge  Huge
	Path  string // file or device that holds it
	Keep  bool   // it outlives the process

	Replicas int // copies that its number is to have; 0, 1: none besides its own
	// MinInSync is how many of them are to be in sync where its data is changed; 0, 1: its own is enough.
	MinInSync int
	Label     string // names what fails with it
	Room      uint64 // bytes for copies of other numbers; 0 with Replicas: DefaultRoom
}

// DefaultRoom returns how many bytes a memory node lends to copies of other numbers, if nothing else is said: twice those that it would have if each memory node had
// as many, so that the copies of one that has failed find room.
func (m *Memory) DefaultRoom() uint64 {
	if m.Room != 0 || m.Replicas < 2 {
		return m.Room
	}
	return 2 * uint64(m.Replicas-1) * m.Size
}

// A Detail is something about a memory node for people.
type Detail struct{ Name, Value string }

// A Server is a memory node that serves.
type Server interface {
	mn.Server
	// MaxCN returns how many compute nodes the cluster may have.
	MaxCN() int
	// Details returns what else is worth knowing.
	Details() []Detail
}

// A Cluster is a cluster by its address.
type Cluster interface {
	// Address returns the address, as others should write it.
	Address() string
	// Scheme returns the name of the fabric.
	Scheme() string
	// RunDir returns the directory of its compute nodes' control sockets on this machine.
	RunDir() string
	// Serve starts a memory node.
	Serve(ctx context.Context, m Memory) (Server, error)
	// Join makes this process a compute node.
	Join(ctx context.Context) (fabric.Node, error)
	// Visit is Join for a moment, by a process that may be another node of the cluster already.
	Visit(ctx context.Context) (fabric.Node, error)
	// Describe returns the nodes of the cluster. It changes nothing that lasts.
	Describe(ctx context.Context) (*Info, error)
	// Check returns what would keep a node from being started with the options of the cluster, as far as that can be found
	// without reaching for it. role checks what the node's certificate is for.
	Check(role Role) error
	// Certificates returns the files of certificates that nodes use.
	Certificates() []string
}

// States of a cluster that cannot be looked at.
const (
	Broken = "broken" // its files are not a cluster's
	Denied = "denied" // it belongs to another user, or others may change it
)

// A Forgetter is a Cluster with a coordinator, which expects memory nodes back.
type Forgetter interface {
	// Forget says that a memory node that is down is not coming back. It waits for the acknowledgement of all nodes that it has gone.
	Forget(ctx context.Context, id fabric.MemID) error
}

// A Mover is a Cluster whose memory-node numbers may have copies on several memory nodes, and whose coordinator knows where.
type Mover interface {
	// Move makes changes one after the other, as next says for each state, until there is nothing to do any more. It calls show with what is done, and with what it
	// waits for.
	Move(ctx context.Context, next func(*member.State) (member.Step, error), show func(step member.Step, s *member.State)) error
}

// An Info is the members of a cluster.
type Info struct {
	State   string // up, partial, dead, Broken, Denied
	Dir     string // with its files; empty: it has none
	View    uint64
	MaxCN   int // 0: not known
	Memory  []MemoryInfo
	Groups  []GroupInfo
	Compute []ComputeInfo
	Broken  error // why it cannot be used
}

// A GroupInfo describes a memory-node number that is replicated: where its copies are.
type GroupInfo struct {
	Number    string        `json:"number"`
	Replicas  int           `json:"replicas"`              // that it is to have
	MinInSync int           `json:"min_in_sync,omitempty"` // copies that are to be in sync where data is changed
	Term      uint32        `json:"term"`                  // of its locks: grows with each promotion
	Epoch     uint32        `json:"epoch"`
	Serving   bool          `json:"serving"`
	Copies    []ReplicaInfo `json:"copies"`            // the primary's first
	Drained   bool          `json:"drained,omitempty"` // the memory node with this number gets no copies
	Waits     string        `json:"waits,omitempty"`   // why it is not served, if etcd has lost its data, and what ends that
}

// A ReplicaInfo describes a copy.
type ReplicaInfo struct {
	Node  string `json:"node"` // the memory node, as a process
	Alive bool   `json:"alive"`
	Phase string `json:"phase"` // added, copying, in sync
}

// A MemoryInfo describes a memory node.
type MemoryInfo struct {
	Node    string `json:"node"`
	Pid     int    `json:"pid"` // 0: not known
	Alive   bool   `json:"alive"`
	Epoch   uint32 `json:"epoch"`
	Size    uint64 `json:"size"`
	Keep    bool   `json:"keep"`
	Path    string `json:"path"`              // its file on this machine, if it has one
	Address string `json:"address,omitempty"` // where other nodes reach it
	Error   string `json:"error,omitempty"`   // why its memory cannot be used
}

// A ComputeInfo describes a compute node.
type ComputeInfo struct {
	Node    string `json:"node"`
	Pid     int    `json:"pid"` // 0: not known
	Alive   bool   `json:"alive"`
	Joined  string `json:"joined"`            // empty: not known
	Address string `json:"address,omitempty"` // where other nodes reach it
	HTTP    string `json:"-"`                 // host:port that has its status; empty: none is known
}

// A Scheme is a fabric.
type Scheme struct {
	Name string
	Form string // of its addresses
	// Parse finds the cluster that the part of an address behind the colon names.
	Parse func(rest string, o Options) (Cluster, error)
}

var schemes = []Scheme{shmScheme, tcpScheme, verbsScheme}

// Forms are the forms of addresses, for messages.
func Forms() string {
	var list []string
	for _, s := range schemes {
		list = append(list, s.Form)
	}
	return strings.Join(list, " or ")
}

// Parse finds the cluster that an address names.
func Parse(address string, o Options) (Cluster, error) {
	name, rest, ok := strings.Cut(address, ":")
	if !ok {
		return nil, fmt.Errorf("%w: %q: want %s", declock.ErrAddress, address, Forms())
	}
	for _, s := range schemes {
		if s.Name == name {
			return s.Parse(rest, o)
		}
	}
	return nil, fmt.Errorf("%w: %q: no fabric %q: want %s", declock.ErrAddress, address, name, Forms())
}

// noMembers is the error of a cluster of which there is nothing.
func noMembers(address string) error {
	return exit.Errorf(exit.NoCluster, "no such cluster: %s has no nodes: start a memory node with declock-mn", address)
}

// A Role says what a certificate is not for; nil: it is right.
type Role func(*x509.Certificate) error

// MemoryRole is the role of a memory node.
func MemoryRole(id fabric.MemID) Role {
	return func(c *x509.Certificate) error { return tcp.MayServe(c, id) }
}

// ComputeRole is the role of compute nodes.
func ComputeRole(c *x509.Certificate) error { return tcp.MayCompute(c) }

// CheckFlag refuses a flag that means nothing for a cluster.
func CheckFlag(c Cluster, flag string) error {
	of, ok := Flags[flag]
	if !ok || of == nil || slices.Contains(of, c.Scheme()) {
		return nil
	}
	return exit.Errorf(exit.Usage, "--%s means nothing for %s: it is for %s", flag, c.Address(), strings.Join(of, " and "))
}
