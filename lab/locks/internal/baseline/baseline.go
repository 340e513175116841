package baseline

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A Client is the part of a Locker that all baseline locks share.
type Client struct {
	Plain    bool // the locks have no word for tokens
	Ops      [fabric.MaxChain]fabric.Op
	Counters lock.Stats
	port     fabric.Port
}

// New returns a Client over a Port.
func New(p fabric.Port, plain bool) Client { return Client{Plain: plain, port: p} }

// Port implements lock.Locker.
func (c *Client) Port() fabric.Port { return c.port }

// Stats implements lock.Locker.
func (c *Client) Stats() *lock.Stats { return &c.Counters }

// Check returns the error of an Acquire that asks for what cannot be, of a lock without update mode.
func Check(h *lock.Hold, r *lock.Request) error {
	if r.Mode > lock.Exclusive {
		return fmt.Errorf("%w: no %v locks", lock.ErrMisuse, r.Mode)
	}
	return CheckUpdate(h, r)
}

// CheckUpdate is Check of a lock that has update mode.
func CheckUpdate(h *lock.Hold, r *lock.Request) error {
	if r.Mode > lock.Update {
		return fmt.Errorf("%w: %v", lock.ErrMisuse, r.Mode)
	}
	if h.Held {
		return fmt.Errorf("%w: Hold of %v is in use", lock.ErrMisuse, h.Lock)
	}
	if len(r.Reads) > lock.MaxPiggyback {
		return fmt.Errorf("%w: %d READs, at most %d", lock.ErrMisuse, len(r.Reads), lock.MaxPiggyback)
	}
	return nil
}

// Misuse returns the error of a Release of what is not held.
func Misuse(h *lock.Hold, before []fabric.Op) error {
	return fmt.Errorf("%w: %v, %d operations before release", lock.ErrMisuse, h.Lock, len(before))
}

// Corrupt returns the error of words of a lock that no client has written.
func Corrupt(a fabric.Addr, words ...uint64) error {
	return fmt.Errorf("%w: words at %v are %#x", lock.ErrCorrupt, a, words)
}

// Expired returns the error of a release after a lease, nil if it has not ended. since is when the holder held for certain.
func (c *Client) Expired(since, leaseNs fabric.Time) error {
	if elapsed := c.port.Now() - since; elapsed >= leaseNs {
		return &expired{elapsed, leaseNs}
	}
	return nil
}

// expired is the error of a release after a lease. Where leases are short nearly all releases have it: it is put into words when it is read.
type expired struct{ elapsed, leaseNs fabric.Time }

func (e *expired) Error() string {
	return fmt.Sprintf("%v: held for %d us, longer than the lease of %d", lock.ErrLost, e.elapsed/fabric.Microsecond, e.leaseNs/fabric.Microsecond)
}

func (e *expired) Unwrap() error { return lock.ErrLost }

// Unreleased is the error of a release, which is put into words when it is read.
type Unreleased struct {
	Name string // of the mechanism
	Mode lock.Mode
	Lock fabric.Addr
	Err  error
}

func (u *Unreleased) Error() string {
	return fmt.Sprintf("%s: release %v %v: %v", u.Name, u.Mode, u.Lock, u.Err)
}

// Unwrap returns what has failed.
func (u *Unreleased) Unwrap() error { return u.Err }

// TokenOffset is where the word of tokens is in a lock.
const TokenOffset = 8

// Layout returns the layout of a lock of one word, and one for tokens unless it is plain.
func Layout(plain bool) lock.Layout {
	if plain {
		return lock.Layout{Size: 8, Align: 8}
	}
	return lock.Layout{Size: TokenOffset + 8, Align: 8}
}

// First posts the first chain of an acquisition: the atomic, the token, the caller's READs. It returns
// what the atomic has found, and how many operations were executed for certain.
func (c *Client) First(h *lock.Hold, r *lock.Request, atomic fabric.Op) (old uint64, done int, err error) {
	c.Ops[0] = atomic
	done, err = c.fetch(h, r, 1)
	return c.Ops[0].Old, done, err
}

// Fetch fetches token and READs after a wait.
func (c *Client) Fetch(h *lock.Hold, r *lock.Request) error {
	if c.Plain && len(r.Reads) == 0 {
		return nil
	}
	_, err := c.fetch(h, r, 0)
	return err
}

// FetchBehind is Fetch of a lock whose word means nothing. READs of a plain one are behind one of that word: all are on its memory node, or refused.
func (c *Client) FetchBehind(h *lock.Hold, r *lock.Request) error {
	if !c.Plain || len(r.Reads) == 0 {
		return c.Fetch(h, r)
	}
	c.Ops[0] = fabric.Load(r.Lock)
	n := 1 + copy(c.Ops[1:], r.Reads)
	c.Counters.AcquireOps++
	err := c.port.Do(c.Ops[:n])
	copy(r.Reads, c.Ops[1:n])
	return err
}

// fetch posts the first n operations of Ops, and behind them what fetches the token, and the caller's READs.
func (c *Client) fetch(h *lock.Hold, r *lock.Request, n int) (done int, err error) {
	h.Token = 0
	if !c.Plain {
		c.Ops[n] = fabric.Load(r.Lock.Add(TokenOffset))
		if r.Mode != lock.Shared {
			c.Ops[n] = fabric.FAA(r.Lock.Add(TokenOffset), 1)
		}
		n++
	}
	all := n + copy(c.Ops[n:], r.Reads)
	err = c.port.Do(c.Ops[:all])
	c.Counters.AcquireOps += uint64(n)
	if done = fabric.Executed(err, all); done < n {
		return done, err
	}
	if !c.Plain {
		h.Token = lock.Token(c.Ops[n-1].Old)
		if r.Mode != lock.Shared {
			h.Token++
		}
	}
	copy(r.Reads, c.Ops[n:all])
	return done, err
}

// Retry executes one operation more of an acquisition, and returns what it has found.
func (c *Client) Retry(op fabric.Op) (uint64, error) {
	c.Ops[0] = op
	c.Counters.AcquireOps++
	c.Counters.Retries++
	err := c.port.Do(c.Ops[:1])
	return c.Ops[0].Old, err
}

// Look reads the word of a lock before an acquisition does anything else: that is no retry.
func (c *Client) Look(a fabric.Addr) (uint64, error) {
	c.Ops[0] = fabric.Load(a)
	c.Counters.AcquireOps++
	err := c.port.Do(c.Ops[:1])
	return c.Ops[0].Old, err
}

// Last executes the operations of before, and in the same chain those that end a hold. If one of before
// fails, those are executed all the same. It reports whether they were for certain; then they have their results.
func (c *Client) Last(before []fabric.Op, last ...fabric.Op) (done bool, err error) {
	return c.LastBy(c.port.Do, before, last...)
}

// LastBy is Last by another way than Port.Do.
func (c *Client) LastBy(do func([]fabric.Op) error, before []fabric.Op, last ...fabric.Op) (done bool, err error) {
	n := copy(c.Ops[:], before)
	all := n + copy(c.Ops[n:], last)
	err = do(c.Ops[:all])
	copy(before, c.Ops[:n])
	if err == nil {
		copy(last, c.Ops[n:all])
		return true, nil
	}
	if errors.Is(err, fabric.ErrUnknownOutcome) || fabric.Executed(err, all) >= n {
		return false, err
	}
	m := copy(c.Ops[:], last)
	if e := do(c.Ops[:m]); e != nil {
		return false, errors.Join(err, e)
	}
	copy(last, c.Ops[:m])
	return true, err
}

// Only a Pause that waits notices an interrupt, and one of a nanosecond may be
// over before it begins. So every lookEvery-th pause is one of lookNs.
const (
	lookEvery = 16
	lookNs    = fabric.Microsecond
)

// Soon returns the pause before the k-th try of a client that spins.
func Soon(k int) fabric.Time {
	if k%lookEvery == 0 {
		return lookNs
	}
	return 1
}

// Pause waits for some time before the next try, and by chance for up to jitterNs more; or says why there is none.
func (c *Client) Pause(r *lock.Request, ns, jitterNs fabric.Time) error {
	now := c.port.Now()
	until := now + ns
	if r.Deadline != 0 && now >= r.Deadline {
		return c.GaveUp(fabric.ErrDeadline)
	}
	if jitterNs > 0 {
		until += fabric.Time(c.port.Rand() % uint64(jitterNs))
	}
	if r.Deadline != 0 {
		until = min(until, r.Deadline)
	}
	return c.GaveUp(c.port.Pause(until))
}

// GaveUp translates what a Port's wait returns, and counts waits that the caller has ended.
func (c *Client) GaveUp(err error) error {
	switch {
	case errors.Is(err, fabric.ErrDeadline):
		err = lock.ErrTimeout
	case errors.Is(err, fabric.ErrInterrupted):
		err = lock.ErrCanceled
	default:
		return err
	}
	c.Counters.Cancels++
	return err
}

// Incarnation returns which of the nodes that have had a number is live with it, as a node knows; 0: none, or the fabric does not say (fabric.Members).
func Incarnation(n fabric.Node, id fabric.CNID) uint64 {
	m, ok := n.(interface{ Incarnation(fabric.CNID) uint64 })
	if !ok {
		return 0
	}
	return m.Incarnation(id)
}
