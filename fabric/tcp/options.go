package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

const (
	// DefaultPort is the port on which memory nodes listen.
	DefaultPort = 7490
	// MaxMN is how many memory nodes a cluster may have.
	MaxMN = peer.MaxMN

	// MaxReplicas is how many copies a number may have.
	MaxReplicas = 3

	maxNote      = 128
	maxLanes     = 16
	maxWorkers   = 64
	minHeartbeat = 10 * time.Millisecond
)

// Options of Serve and Join.
type Options struct {
	// Members is the coordinator, which has the membership.
	Members member.Service
	// Left, if it is not nil, is called when the node is closed and has left the cluster, to close Members, say: its error is Close's.
	Left func() error

	// Copy, if it is not nil, makes the backups of a replicated number have what is at the primary, over a Port: a compute node of Join calls it when there is a new one. It takes no
	// locks. What takes some is given to the node: CopyWith.
	Copy func(p fabric.Port, mem fabric.MemID) error

	// Listen is the address on which others are let in: Serve's default is port DefaultPort
	// of all addresses, Join's is any port of all addresses. Without TLS, unless Advertise is given, it is those ports of the
	// loopback: other hosts are not let in by default.
	Listen string
	// Advertise is how others reach it, host:port or host, if that is not Listen. Empty where
	// Listen names no host: the machine's first address that is not a loopback.
	Advertise string

	// Note is for tools, at most 128 bytes: the coordinator has it, and the fabric makes nothing of it. See ParseAddress.
	Note string

	// TLS is mutual: it has the own certificate, and the authorities of the others. Certificates say what a node may
	// be, see the package's documentation.
	TLS *tls.Config
	// Insecure must be true where there is no TLS: any program that reaches the address of Listen can read and change memory.
	Insecure bool

	// Heartbeat is how often connections are checked; DeadAfter is when one on which
	// nothing moves that should is given up.
	Heartbeat, DeadAfter time.Duration
	// SilentAfter is, for Join, when a memory node of which others have copies is suspected that does not answer an operation: unless it says to the coordinator that it lives, another takes its
	// place. 0: when its lease ends.
	SilentAfter time.Duration
	// Report, if it is not nil, is called with errors in the background. It must not block.
	Report func(error)

	// Lanes is, for Join, how many connections there are to each memory node. A Port always uses the
	// same one. 0: one for every four processors, at most four.
	Lanes int

	// Local is, for Serve, whether compute nodes of this machine, and of the user of this process, may execute operations on the memory by their own CPU, and for Join
	// whether to do so. Memory that a File keeps is not lent. See the package's documentation.
	Local bool

	alone bool // it listens on the loopback because nothing else was said

	// What follows is for Serve.

	// Mem is the number of the memory node, less than MaxMN.
	Mem fabric.MemID
	// Size of the memory in bytes. 0 is right where File exists.
	Size uint64
	// File is where the memory is kept: what an earlier server left there is served again, with a new epoch.
	// The file takes its size at once. Empty: memory starts zeroed, ends with the server, and takes room only where
	// it has been touched.
	File string
	// Replicas is how many copies the number is to have (docs/replication.md): 0 or 1 is none besides its own; 2 or 3 without a File.
	Replicas int
	// MinInSync is how many copies are to be in sync where data of the number is changed: at most Replicas. 0 or 1: its own is enough.
	MinInSync int
	// Label names what fails with this memory node, such as its rack: copies are put on memory nodes with different ones, if there are any.
	Label string
	// Room is how many bytes are lent to copies of other numbers. They take room only where they are touched.
	Room uint64
	// Huge asks the kernel for huge pages, where it has them to give.
	Huge bool
	// Workers is how many goroutines execute operations. 0: one for every two processors, at most eight.
	Workers int
}

// Check checks the options that Serve and Join have in common, without opening anything.
func (o Options) Check() error { return o.check() }

// check validates what Serve and Join have in common and fills in defaults.
func (o *Options) check() error {
	c := o.config()
	if err := c.Check(); err != nil {
		return err
	}
	o.Heartbeat, o.DeadAfter, o.Report, o.Left = c.Heartbeat, c.DeadAfter, c.Report, c.Left
	switch {
	case o.TLS == nil && !o.Insecure:
		return fmt.Errorf("%w: no TLS, and not Insecure, which lets any program in", ErrOptions)
	case o.TLS != nil && o.Insecure:
		return fmt.Errorf("%w: TLS and Insecure", ErrOptions)
	case o.Heartbeat < minHeartbeat:
		return fmt.Errorf("%w: DeadAfter %v must be at least twice the Heartbeat %v, and that at least %v", ErrOptions, o.DeadAfter, o.Heartbeat, minHeartbeat)
	case len(o.Note) > maxNote:
		return fmt.Errorf("%w: a note of %d bytes, at most %d", ErrOptions, len(o.Note), maxNote)
	case o.Listen != "" && !isHostPort(o.Listen):
		return fmt.Errorf("%w: Listen is %q, want host:port or :port", ErrOptions, o.Listen)
	case o.Lanes < 0 || o.Lanes > maxLanes:
		return fmt.Errorf("%w: Lanes is %d, must be at most %d", ErrOptions, o.Lanes, maxLanes)
	}
	return nil
}

// config returns what tcp has in common with other networks.
func (o *Options) config() peer.Config {
	return peer.Config{Members: o.Members, Left: o.Left, Copy: o.Copy, Listen: o.Listen, Advertise: o.Advertise, Note: o.Note, TLS: o.TLS, Heartbeat: o.Heartbeat, DeadAfter: o.DeadAfter, SilentAfter: o.SilentAfter, Report: o.Report}
}

// ParseAddress returns what a member's address says to tools: where other nodes reach it, and its Options.Note.
func ParseAddress(s string) (hostPort, note string) {
	c := peer.ParseContact(s)
	return c.HostPort, c.Note
}

// MayServe returns why a certificate is not for memory node id; nil: it is.
func MayServe(c *x509.Certificate, id fabric.MemID) error { return peer.MayServe(c, id) }

// MayCompute returns why a certificate is not for compute nodes; nil: it is.
func MayCompute(c *x509.Certificate) error { return peer.MayCompute(c) }

// listen fills in where to listen.
func (o *Options) listen(port int) {
	if o.Listen != "" {
		return
	}
	host := ""
	if o.Insecure && o.Advertise == "" {
		host, o.alone = "127.0.0.1", true
	}
	o.Listen = net.JoinHostPort(host, strconv.Itoa(port))
}

// checkReach refuses a cluster that is on other hosts, too, for a node that listens on the loopback by default: its members
// would try their own loopbacks.
func (o *Options) checkReach(st *member.State) error {
	if !o.alone {
		return nil
	}
	var addrs []string
	for _, m := range st.MNs {
		addrs = append(addrs, m.Addr)
	}
	for _, n := range st.CNs {
		addrs = append(addrs, n.Addr)
	}
	for _, a := range addrs {
		hostPort, _ := ParseAddress(a)
		host, _, err := net.SplitHostPort(hostPort)
		if ip := net.ParseIP(host); err == nil && host != "localhost" && !ip.IsLoopback() {
			return fmt.Errorf("%w: without TLS this node listens on %s only, where %s, which is a member, cannot reach it: "+
				"say where to listen on this host (--listen HOST:0) to let that network in", ErrOptions, o.Listen, hostPort)
		}
	}
	return nil
}

func isHostPort(s string) bool {
	_, _, err := net.SplitHostPort(s)
	return err == nil
}

func (o *Options) checkJoin() error {
	o.listen(0)
	if o.Lanes == 0 {
		o.Lanes = min(max(runtime.GOMAXPROCS(0)/4, 1), 4)
	}
	return o.check()
}

func (o *Options) checkServe() error {
	o.listen(DefaultPort)
	if o.Workers == 0 {
		o.Workers = min(max(runtime.GOMAXPROCS(0)/2, 1), 8)
	}
	switch {
	case o.Mem >= MaxMN:
		return fmt.Errorf("%w: memory node %d, must be less than %d", ErrOptions, o.Mem, MaxMN)
	case o.Size == 0 && o.File == "":
		return fmt.Errorf("%w: Size is 0", ErrOptions)
	case o.Size > fabric.MaxOffset:
		return fmt.Errorf("%w: %d bytes of memory, at most %d have addresses", ErrOptions, o.Size, uint64(fabric.MaxOffset))
	case o.Replicas < 0 || o.Replicas > MaxReplicas:
		return fmt.Errorf("%w: Replicas is %d, must be at most %d", ErrOptions, o.Replicas, MaxReplicas)
	case o.MinInSync < 0 || o.MinInSync > max(1, o.Replicas):
		return fmt.Errorf("%w: MinInSync is %d, and there are to be %d copies", ErrOptions, o.MinInSync, max(1, o.Replicas))
	case o.Replicas > 1 && o.File != "":
		return fmt.Errorf("%w: memory in a file (%s) cannot be replicated yet: leave File out, or Replicas", ErrOptions, o.File)
	case len(o.Label) > maxNote:
		return fmt.Errorf("%w: a label of %d bytes, at most %d", ErrOptions, len(o.Label), maxNote)
	case o.Workers < 0 || o.Workers > maxWorkers:
		return fmt.Errorf("%w: Workers is %d, must be at most %d", ErrOptions, o.Workers, maxWorkers)
	}
	return o.check()
}
