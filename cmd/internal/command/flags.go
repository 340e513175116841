package command

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/memory"
	"github.com/urfave/cli/v2"
)

// ByteSize is the value of a flag that is a size; 0 is "auto" where that is allowed.
type ByteSize struct {
	N    uint64
	Auto bool // "auto" is allowed
	Text string
}

// Set implements cli.Generic.
func (b *ByteSize) Set(s string) error {
	if b.Auto && s == "auto" {
		b.N, b.Text = 0, s
		return nil
	}
	n, err := units.ParseBytes(s)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%q: it must be more than nothing", s)
	}
	b.N, b.Text = n, s
	return nil
}

func (b *ByteSize) String() string { return b.Text }

// Count is the value of a flag that is a whole number in a range; 5M and 1e6 are numbers.
type Count struct {
	N        uint64
	Min, Max uint64
}

// Set implements cli.Generic.
func (c *Count) Set(s string) error {
	n, err := units.ParseCount(s)
	switch {
	case err != nil:
		return err
	case n < c.Min || n > c.Max:
		return fmt.Errorf("it must be %d to %d", c.Min, c.Max)
	}
	c.N = n
	return nil
}

func (c *Count) String() string { return strconv.FormatUint(c.N, 10) }

// Speed is the value of --speed: max, or a factor of trace time.
type Speed struct{ X float64 }

// Set implements cli.Generic.
func (s *Speed) Set(text string) error {
	if text == "max" {
		s.X = 0
		return nil
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x <= 0 {
		return fmt.Errorf("want max, or a factor of trace time above 0 as in 1 or 2.5")
	}
	s.X = x
	return nil
}

func (s *Speed) String() string {
	if s.X == 0 {
		return "max"
	}
	return strconv.FormatFloat(s.X, 'g', -1, 64)
}

// Choice is the value of a flag that is one of some words.
type Choice struct {
	Value string
	Of    []string
}

// OneOf returns a flag that takes one word of a list; value is the one by default.
func OneOf(value string, list ...string) Choice { return Choice{value, list} }

// Set implements cli.Generic.
func (c *Choice) Set(s string) error {
	for _, w := range c.Of {
		if w == s {
			c.Value = s
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(c.Of, ", "))
}

func (c *Choice) String() string { return c.Value }

// SizeFlag returns a flag that takes a size in bytes, as in 1GiB.
func SizeFlag(v *ByteSize, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: v}
}

// CountFlag returns a flag that takes a whole number.
func CountFlag(v *Count, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: v}
}

// ChoiceFlag returns a flag that takes one of some words, which its usage lists.
func ChoiceFlag(v *Choice, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + ": " + strings.Join(v.Of, ", "), Value: v}
}

// DirFlag returns --dir: where clusters over shared memory are.
func DirFlag(v *string) cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "directory of clusters, on a memory file system", Value: shm.DefaultDir, Destination: v}
}

// ClusterFlag returns --cluster: the address of a cluster.
func ClusterFlag(v *string, usage string) cli.Flag {
	return &cli.StringFlag{Name: "cluster", Usage: usage, Destination: v}
}

// LockFlag returns --lock: a policy of package hier.
func LockFlag(v *string) cli.Flag {
	return &cli.StringFlag{Name: "lock", Usage: "how locks pass between clients: " + strings.Join(hier.PolicyNames(), ", ") + ", local-bound:N",
		Value: hier.DefaultPolicy, Destination: v}
}

// JSONFlag returns --json.
func JSONFlag(v *bool) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of tables", Destination: v}
}

// MaxLockQueue is the largest queue of a lock in a region.
const MaxLockQueue = 1 << memory.MaxCapacityLog2

// LockQueue returns how long lock queues must be for a policy and a number of clients; 0 is what memory nodes take by themselves.
func LockQueue(policy string, clients uint64) (int, error) {
	p, err := hier.ParsePolicy(policy)
	switch {
	case err != nil:
		return 0, err
	case p.Kind != hier.Flat:
		return 0, nil
	case clients > MaxLockQueue:
		return 0, exit.Errorf(exit.Usage, "%d clients: without hierarchy (--lock %s) there can be %d at most", clients, policy, MaxLockQueue)
	}
	return int(clients), nil
}

// CheckPolicy refuses unknown policies before anything is started.
func CheckPolicy(name string) error {
	_, err := hier.ParsePolicy(name)
	return err
}

// CheckName refuses names that no cluster can have, by the rules of shm.
func CheckName(name string) error {
	_, err := shm.Inspect("", name)
	if exit.Of(err) == exit.BadAddress {
		return err
	}
	return nil
}

// timeValue is the value of a flag that is a duration.
type timeValue struct{ t *fabric.Time }

// Set implements cli.Generic.
func (v timeValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no duration: want 10ms, 1s or the like", s)
	case d < 0:
		return fmt.Errorf("%q is negative", s)
	}
	*v.t = fabric.Time(d)
	return nil
}

func (v timeValue) String() string {
	if v.t == nil {
		return ""
	}
	return time.Duration(*v.t).String()
}

// TimeFlag returns a flag that takes a time in virtual nanoseconds, written as a duration.
func TimeFlag(v *fabric.Time, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: timeValue{v}}
}
