package verbs

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

const (
	// DefaultPort is the TCP port of a memory node's control service.
	DefaultPort = 7480
	// DefaultQueuePairs is how many queue pairs a compute node has to each memory node.
	DefaultQueuePairs = 4
	// MaxMN is how many memory nodes a cluster may have.
	MaxMN = peer.MaxMN

	maxQueuePairs = 64
	minSecret     = 16
	maxInbox      = 1 << 16
)

// HugePolicy says whether a memory node uses huge pages.
type HugePolicy uint8

const (
	HugeTry     HugePolicy = iota // huge pages if there are any
	HugeOff                       // 4 KiB pages
	HugeRequire                   // ErrNoHuge if there are none
)

// Options of Serve and Join. Device, Port, GID and the control addresses find
// themselves where they are left empty.
type Options struct {
	// Members is the coordinator, which has the membership.
	Members member.Service
	// Left, if it is not nil, is called when the node is closed and has left the cluster, to close Members, say: its error is Close's.
	Left func() error

	// Listen is the address of the own control service: Serve's default is
	// port DefaultPort of all addresses, Join's is any port of all addresses.
	Listen string
	// Advertise is how others reach it, host:port or host, if that is not Listen. Empty where
	// Listen names no host: the machine's first address that is not a loopback.
	Advertise string

	// Secret is what all members share; at least 16 bytes. Or (or both):
	Secret []byte
	// TLS is mutual: it has the own certificate, and the authorities of the others. Certificates say what a node may
	// be, see the package's documentation.
	TLS *tls.Config
	// Insecure must be true where there is neither.
	Insecure bool

	// Device, Port and GID choose the end of the network: the name of a
	// device, the number of its port, the index or the IP address of its GID.
	Device string
	Port   int
	GID    string
	// ServiceLevel and TrafficClass mark what is sent (priority flow control).
	ServiceLevel, TrafficClass uint8

	// QueuePairs is how many connections there are to each memory node. A
	// Port always uses the same one.
	QueuePairs int
	// Heartbeat is how often both ends of a control connection send a heartbeat; DeadAfter is when
	// one that says nothing is given up. The coordinator decides which nodes the cluster gives up.
	Heartbeat, DeadAfter time.Duration

	// What follows is for Serve.

	// Mem is the number of the memory node, less than MaxMN.
	Mem fabric.MemID
	// Size of the memory in bytes.
	Size uint64
	// Huge is the policy for huge pages.
	Huge HugePolicy
	// Report, if it is not nil, is called with errors in the background.
	Report func(error)

	// inboxLimit is how many messages for a client that does not take them make a sender wait; maxInbox if 0. For tests.
	inboxLimit int
	// regionLimit is the largest region of memory; what the device takes if 0. For tests.
	regionLimit uint64
}

// check validates what Serve and Join have in common and fills in defaults.
func (o *Options) check() error {
	if o.QueuePairs == 0 {
		o.QueuePairs = DefaultQueuePairs
	}
	if o.inboxLimit == 0 {
		o.inboxLimit = maxInbox
	}
	c := o.config()
	if err := c.Check(); err != nil {
		return err
	}
	o.Heartbeat, o.DeadAfter, o.Report, o.Left = c.Heartbeat, c.DeadAfter, c.Report, c.Left
	switch {
	case len(o.Secret) == 0 && o.TLS == nil && !o.Insecure:
		return fmt.Errorf("%w: no Secret and no TLS; Insecure says that this is meant", ErrOptions)
	case len(o.Secret) != 0 && len(o.Secret) < minSecret:
		return fmt.Errorf("%w: Secret has %d bytes, at least %d", ErrOptions, len(o.Secret), minSecret)
	case o.QueuePairs < 1 || o.QueuePairs > maxQueuePairs:
		return fmt.Errorf("%w: QueuePairs is %d, must be 1 to %d", ErrOptions, o.QueuePairs, maxQueuePairs)
	case o.Port < 0 || o.Port > 255:
		return fmt.Errorf("%w: Port is %d", ErrOptions, o.Port)
	case o.ServiceLevel > 15:
		return fmt.Errorf("%w: ServiceLevel is %d, at most 15", ErrOptions, o.ServiceLevel)
	}
	return nil
}

// config returns what verbs has in common with other networks.
func (o *Options) config() peer.Config {
	return peer.Config{Members: o.Members, Left: o.Left, Listen: o.Listen, Advertise: o.Advertise, TLS: o.TLS, Heartbeat: o.Heartbeat, DeadAfter: o.DeadAfter, Report: o.Report}
}

// Check checks the options of a compute node, without connecting to anything.
func (o Options) Check() error { return o.checkJoin() }

func (o *Options) checkJoin() error {
	if o.Listen == "" {
		o.Listen = ":0"
	}
	return o.check()
}

func (o *Options) checkServe() error {
	if o.Listen == "" {
		o.Listen = fmt.Sprintf(":%d", DefaultPort)
	}
	switch {
	case o.Mem >= MaxMN:
		return fmt.Errorf("%w: memory node %d, must be less than %d", ErrOptions, o.Mem, MaxMN)
	case o.Size == 0 || o.Size > fabric.MaxOffset:
		return fmt.Errorf("%w: Size is %d", ErrOptions, o.Size)
	case o.Huge > HugeRequire:
		return fmt.Errorf("%w: Huge is %d", ErrOptions, o.Huge)
	}
	return o.check()
}
