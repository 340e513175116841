package command

import (
	"fmt"
	"slices"
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

// A size is the value of a flag that is a size in bytes.
type size struct {
	to   *uint64
	text string
	none string // stands for 0
}

// Set implements cli.Generic.
func (v *size) Set(s string) error {
	if v.none != "" && s == v.none {
		*v.to, v.text = 0, s
		return nil
	}
	n, err := units.ParseBytes(s)
	switch {
	case err != nil:
		return err
	case n == 0:
		return fmt.Errorf("%q: it must be more than nothing", s)
	}
	*v.to, v.text = n, s
	return nil
}

func (v *size) String() string { return v.text }

// SizeFlag returns a flag that takes a size in bytes, as in 1GiB. A default that is none stands for 0, and can be given too.
func SizeFlag(v *uint64, name, value, usage string) cli.Flag {
	s := &size{to: v, none: value}
	if n, err := units.ParseBytes(value); err == nil {
		*v, s.none = n, ""
	}
	s.text = value
	return &cli.GenericFlag{Name: name, Usage: usage, Value: s}
}

// A number is the type of a flag that is a whole number.
type number interface {
	~int | ~int64 | ~uint16 | ~uint64
}

// A count is the value of a flag that is a whole number in a range; 5M and 1e6 are numbers.
type count[T number] struct {
	to          *T
	least, most T
}

// Set implements cli.Generic.
func (v *count[T]) Set(s string) error {
	n, err := units.ParseCount(s)
	switch {
	case err != nil:
		return err
	case n < uint64(v.least) || n > uint64(v.most):
		return fmt.Errorf("it must be %d to %d", uint64(v.least), uint64(v.most))
	}
	*v.to = T(n)
	return nil
}

func (v *count[T]) String() string { return fmt.Sprint(uint64(*v.to)) }

// CountFlag returns a flag that takes a whole number from least to most.
func CountFlag[T number](v *T, name string, value, least, most T, usage string) cli.Flag {
	*v = value
	return &cli.GenericFlag{Name: name, Usage: usage, Value: &count[T]{v, least, most}}
}

// A choice is the value of a flag that is one of some words.
type choice[T ~string] struct {
	to *T
	of []string
}

// Set implements cli.Generic.
func (v *choice[T]) Set(s string) error {
	if !slices.Contains(v.of, s) {
		return fmt.Errorf("want one of %s", strings.Join(v.of, ", "))
	}
	*v.to = T(s)
	return nil
}

func (v *choice[T]) String() string { return string(*v.to) }

// ChoiceFlag returns a flag that takes one of some words, which its usage lists.
func ChoiceFlag[T ~string](v *T, name string, value T, usage string, of ...string) cli.Flag {
	*v = value
	return &cli.GenericFlag{Name: name, Usage: usage + ": " + strings.Join(of, ", "), Value: &choice[T]{v, of}}
}

// HugeFlag returns --huge: whether memory is taken in huge pages.
func HugeFlag[T ~string](v *T) cli.Flag {
	return ChoiceFlag(v, "huge", "try", "huge pages", "off", "try", "require")
}

// DirFlag returns --dir: where clusters over shared memory are.
func DirFlag(v *string) cli.Flag {
	return &cli.StringFlag{Name: "dir", Usage: "directory of clusters, on a memory file system", Value: shm.DefaultDir, Destination: v}
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

// CheckName refuses names that no cluster can have, by the rules of shm.
func CheckName(name string) error {
	_, err := shm.Inspect("", name)
	if exit.Of(err) == exit.BadAddress {
		return err
	}
	return nil
}

// A span is the value of a flag that is a time, written as a duration.
type span struct{ *fabric.Time }

// Set implements cli.Generic.
func (v span) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is no duration: want 10ms, 1s or the like", s)
	case d < 0:
		return fmt.Errorf("%q is negative", s)
	}
	*v.Time = fabric.Time(d)
	return nil
}

func (v span) String() string { return time.Duration(*v.Time).String() }

// TimeFlag returns a flag that takes a time in virtual nanoseconds, written as a duration.
func TimeFlag(v *fabric.Time, name, usage string) cli.Flag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: span{v}}
}
