package bench

import (
	"context"
	"errors"
	"reflect"
	"runtime"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// A simulation is what runs on a simulated cluster have in common.
type simulation struct {
	c   *sim.Cluster
	err error // the first of a client or agent
}

// fail takes note of the first error.
func (s *simulation) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// join has a compute node take part in a lock, and starts its agent.
func (s *simulation) join(sys *locks.System, node *sim.Node) (*locks.Node, error) {
	n, err := sys.Join(node)
	if err == nil {
		s.startAgent(n, node)
	}
	return n, err
}

// startAgent starts the agent of a compute node, if the lock has one.
func (s *simulation) startAgent(n *locks.Node, node *sim.Node) {
	if n.HasAgent() {
		s.c.GoAgent(node, func(fabric.Port) { s.fail(n.Run(s.fail)) })
	}
}

// parts is into how many parts a window is cut, to see in between whether the run is to stop.
const parts = 64

// window lets virtual time go by to the end of a window, and returns what was counted within it.
func (s *simulation) window(ctx context.Context, begin, length fabric.Time, count func(*counters)) (after counters, err error) {
	if err := errors.Join(s.c.RunUntil(begin), s.err); err != nil {
		return after, err
	}
	var before counters
	count(&before)
	for i := range fabric.Time(parts) {
		if ctx.Err() != nil {
			return after, context.Cause(ctx)
		}
		if err := errors.Join(s.c.RunUntil(begin+length*(i+1)/parts), s.err); err != nil {
			return after, err
		}
		runtime.Gosched()
	}
	count(&after)
	after.subtract(&before)
	return after, nil
}

// counters are what all clients of a run have counted.
type counters struct {
	Locks lock.Stats
	Ports fabric.Stats
	Trees btree.Stats
}

// add adds what a client has counted.
func (c *counters) add(l lock.Locker) {
	c.Locks.Add(l.Stats())
	c.Ports.Add(l.Port().Stats())
}

// subtract takes off what was counted before.
func (c *counters) subtract(before *counters) {
	subtract(reflect.ValueOf(c).Elem(), reflect.ValueOf(before).Elem())
}

// subtract subtracts all numbers of a value from those of another of its type.
func subtract(v, before reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			subtract(v.Field(i), before.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			subtract(v.Index(i), before.Index(i))
		}
	default:
		v.SetUint(v.Uint() - before.Uint())
	}
}
