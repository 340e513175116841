// Package switched is what FissLock and NetLock have in common: locks that a programmable switch grants, and a server those for which it has no memory.
package switched

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/internal/baseline"
	"github.com/declock/declock/lab/locks/server"
	"github.com/declock/declock/lock"
)

// ErrOutside: the switch has no memory for the lock.
var ErrOutside = errors.New("outside")

// A Client is embedded in each Locker.
type Client struct {
	baseline.Client
	// Server is the Locker of locks for which the switch has no memory.
	Server *server.Locker
	// Name is the lock's, for errors.
	Name string
}

// Acquire acquires a lock of the switch by ask, which says ErrOutside if that has none, or of the server. A lock of the switch is given back by release if its token cannot be fetched.
func (c *Client) Acquire(h *lock.Hold, r *lock.Request, ask func(*lock.Hold, *lock.Request) error, release func(*lock.Hold)) error {
	if err := baseline.Check(h, r); err != nil {
		return err
	}
	*h = lock.Hold{Lock: r.Lock, Mode: r.Mode}
	err := ask(h, r)
	if errors.Is(err, ErrOutside) {
		return c.acquireAtServer(h, r)
	}
	if err == nil {
		if err = c.FetchBehind(h, r); err != nil {
			release(h)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: acquire %v %v: %w", c.Name, r.Mode, r.Lock, err)
	}
	h.Aux, h.Held = c, true
	c.Counters.Acquires++
	return nil
}

// acquireAtServer acquires a lock that a server has. Token and READs are fetched as of any other.
func (c *Client) acquireAtServer(h *lock.Hold, r *lock.Request) error {
	ask := *r
	ask.Reads = nil
	if err := c.atServer(func() error { return c.Server.Acquire(h, &ask) }); err != nil {
		return err
	}
	if err := c.FetchBehind(h, r); err != nil {
		return errors.Join(fmt.Errorf("%s: acquire %v %v: %w", c.Name, r.Mode, r.Lock, err), c.atServer(func() error { return c.Server.Release(h, nil) }))
	}
	return nil
}

// atServer counts as its own what the server's Locker does.
func (c *Client) atServer(do func() error) error {
	c.Server.Counters = c.Counters
	err := do()
	c.Counters = c.Server.Counters
	return err
}

// Release releases a lock, by release if it is the switch's.
func (c *Client) Release(h *lock.Hold, before []fabric.Op, release func(*lock.Hold)) error {
	if by, ok := h.Aux.(*server.Locker); h.Held && ok && by == c.Server && len(before) <= lock.MaxPiggyback {
		return c.atServer(func() error { return c.Server.Release(h, before) })
	}
	if by, ok := h.Aux.(*Client); !h.Held || !ok || by != c || len(before) > lock.MaxPiggyback {
		return baseline.Misuse(h, before)
	}
	h.Held, h.Aux = false, nil
	err := c.Port().Do(before)
	release(h)
	if err != nil {
		return fmt.Errorf("%s: release %v %v: %w", c.Name, h.Mode, h.Lock, err)
	}
	return nil
}

// Serve handles the messages of an agent until its Port is closed or interrupted. The machine's server is served beside, and when the time has come resend, which returns when to do so again.
func Serve(port fabric.Port, s *server.Agent, resend func() fabric.Time, handle func(*fabric.Message) error) error {
	var m fabric.Message
	for next := fabric.Forever; ; {
		if next == fabric.Forever || port.Now() >= next {
			next = resend()
		}
		err := s.Serve()
		if err == nil {
			m, err = port.Recv(min(next, s.Next()))
		}
		if err == nil {
			err = handle(&m)
		}
		switch {
		case errors.Is(err, fabric.ErrClosed), errors.Is(err, fabric.ErrInterrupted):
			return nil
		case err != nil && !errors.Is(err, fabric.ErrDeadline):
			return err
		}
	}
}

// A Timer is when a packet is sent anew that has not been answered: later each time, or else copies fill the queues of a machine.
type Timer struct {
	Due   fabric.Time
	Tries uint8
}

// maxDoublings bounds the time until a packet is sent anew: to 64 times the first.
const maxDoublings = 6

// Start sets the timer as a packet is sent.
func (t *Timer) Start(now, resendNs fabric.Time) {
	t.Due = now + resendNs<<t.Tries
	t.Tries = min(t.Tries+1, maxDoublings)
}
