package peer

import (
	"crypto/tls"
	"fmt"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

const (
	// MaxMN is how many memory nodes a cluster may have.
	MaxMN = 64

	defaultHeartbeat = time.Second
	defaultDeadAfter = 5 * time.Second
	minSilentAfter   = 50 * time.Millisecond
)

// A Config is what the options of nodes have in common, whatever the network. The fields are described where users see
// them: tcp.Options, verbs.Options.
type Config struct {
	Members                 member.Service
	Left                    func() error
	Copy                    func(p fabric.Port, mem fabric.MemID) error
	Listen, Advertise, Note string
	TLS                     *tls.Config
	Heartbeat, DeadAfter    time.Duration
	SilentAfter             time.Duration
	Report                  func(error)
}

// Check validates a configuration, and fills in defaults.
func (c *Config) Check() error {
	if c.Heartbeat == 0 {
		c.Heartbeat = defaultHeartbeat
	}
	if c.DeadAfter == 0 {
		c.DeadAfter = max(defaultDeadAfter, 3*c.Heartbeat)
	}
	if c.Left == nil {
		c.Left = func() error { return nil }
	}
	if c.Report == nil {
		c.Report = func(error) {}
	}
	switch {
	case c.Members == nil:
		return fmt.Errorf("%w: Members, the coordinator, is missing", ErrOptions)
	case c.Heartbeat < 0 || c.DeadAfter < 2*c.Heartbeat:
		return fmt.Errorf("%w: DeadAfter %v must be at least twice the Heartbeat %v", ErrOptions, c.DeadAfter, c.Heartbeat)
	case c.SilentAfter < 0 || c.SilentAfter > 0 && c.SilentAfter < minSilentAfter:
		return fmt.Errorf("%w: SilentAfter %v must be at least %v, or 0", ErrOptions, c.SilentAfter, minSilentAfter)
	}
	if c.TLS == nil {
		return nil
	}
	if err := CheckTLS(c.TLS); err != nil {
		return fmt.Errorf("%w: %w", ErrOptions, err)
	}
	return nil
}

// Limit returns after how many heartbeats without progress a connection is given up.
func (c *Config) Limit() int { return int(c.DeadAfter / c.Heartbeat) }
