package app

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
	"github.com/declock/declock/region"
	"github.com/urfave/cli/v2"
)

// byteSize is the value of a flag that is a size; 0 is "auto" where that is allowed.
type byteSize struct {
	n    uint64
	auto bool // "auto" is allowed
	text string
}

// Set implements cli.Generic.
func (b *byteSize) Set(s string) error {
	if b.auto && s == "auto" {
		b.n, b.text = 0, s
		return nil
	}
	n, err := units.ParseBytes(s)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%q: it must be more than nothing", s)
	}
	b.n, b.text = n, s
	return nil
}

func (b *byteSize) String() string { return b.text }

// count is the value of a flag that is a whole number in a range; 5M and 1e6 are numbers.
type count struct {
	n        uint64
	min, max uint64
}

// Set implements cli.Generic.
func (c *count) Set(s string) error {
	n, err := units.ParseCount(s)
	switch {
	case err != nil:
		return err
	case n < c.min || n > c.max:
		return fmt.Errorf("it must be %d to %d", c.min, c.max)
	}
	c.n = n
	return nil
}

func (c *count) String() string { return strconv.FormatUint(c.n, 10) }

// speed is the value of --speed: max, or a factor of trace time.
type speed struct{ x float64 }

// Set implements cli.Generic.
func (s *speed) Set(text string) error {
	if text == "max" {
		s.x = 0
		return nil
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x <= 0 {
		return fmt.Errorf("want max, or a factor of trace time above 0 as in 1 or 2.5")
	}
	s.x = x
	return nil
}

func (s *speed) String() string {
	if s.x == 0 {
		return "max"
	}
	return strconv.FormatFloat(s.x, 'g', -1, 64)
}

// choice is the value of a flag that is one of some words.
type choice struct {
	value string
	of    []string
}

// Set implements cli.Generic.
func (c *choice) Set(s string) error {
	for _, w := range c.of {
		if w == s {
			c.value = s
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(c.of, ", "))
}

func (c *choice) String() string { return c.value }

func sizeFlag(v *byteSize, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: v}
}

func countFlag(v *count, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: v}
}

func choiceFlag(v *choice, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage + ": " + strings.Join(v.of, ", "), Value: v}
}

func dirFlag(v *string) cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "directory of clusters, on a memory file system", Value: shm.DefaultDir, Destination: v}
}

func clusterFlag(v *string, usage string) cli.Flag {
	return &cli.StringFlag{Name: "cluster", Usage: usage, Destination: v}
}

func lockFlag(v *string) cli.Flag {
	return &cli.StringFlag{Name: "lock", Usage: "how locks pass between clients: " + strings.Join(hier.PolicyNames(), ", ") + ", local-bound:N",
		Value: hier.DefaultPolicy, Destination: v}
}

func jsonFlag(v *bool) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON object instead of tables", Destination: v}
}

// maxLockQueue is the largest queue of a lock in a region.
const maxLockQueue = 1 << region.MaxCapacityLog2

// lockQueue returns how long lock queues must be for a policy and a number of clients; 0 is what memory nodes take by themselves.
func lockQueue(policy string, clients uint64) (int, error) {
	p, err := hier.ParsePolicy(policy)
	switch {
	case err != nil:
		return 0, err
	case p.Kind != hier.Flat:
		return 0, nil
	case clients > maxLockQueue:
		return 0, exit.Errorf(exit.Usage, "%d clients: without hierarchy (--lock %s) there can be %d at most", clients, policy, maxLockQueue)
	}
	return int(clients), nil
}

// checkPolicy refuses unknown policies before anything is started.
func checkPolicy(name string) error {
	_, err := hier.ParsePolicy(name)
	return err
}

// checkName refuses names that no cluster can have, by the rules of shm.
func checkName(name string) error {
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

func timeFlag(v *fabric.Time, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: timeValue{v}}
}
