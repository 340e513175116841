package fabrictest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/declock/declock/fabric"
)

// Config says what cluster a test needs.
type Config struct {
	Mem []uint64 // sizes of the memory nodes, in bytes: multiples of 4 KiB
	CNs int      // compute nodes
}

// A Harness makes clusters of one backend.
type Harness interface {
	// Start returns a new cluster; it fails or skips the test if it cannot.
	Start(t testing.TB, cfg Config) Cluster
}

// A Cluster is a cluster of one test. Memory is zero.
type Cluster interface {
	// Node returns a compute node, from 0.
	Node(i int) fabric.Node

	// Go runs body as the user of p, which belongs to one of the nodes, beside the other bodies. The
	// body may begin before Go returns or not before Wait.
	Go(p fabric.Port, body func(p fabric.Port))

	// Wait returns when all bodies have returned. More may be started then.
	Wait()

	// Close takes the cluster down.
	Close()
}

// A Killer can kill a compute node as a crash would: without a word to the
// others, which find out in their time. There are no bodies on it.
type Killer interface{ Kill(node int) }

// A MNKiller can stop a memory node.
type MNKiller interface{ KillMN(mn fabric.MemID) }

// A Restarter can restart a memory node: it comes back in a new epoch, and
// Restart returns when it can be used.
type Restarter interface{ RestartMN(mn fabric.MemID) }

// A Leaser can have a compute node lose its lease while it runs. JoinInLease cuts the node off from the coordinator, and has
// another node join. When all others know that one, the memory nodes are cut off from the coordinator, too, and the lease runs out. What
// they would have heard they hear after release (which a fabric in virtual time may do by itself, later). joined is
// called with the new node when Join has returned, or before the code of the node begins.
type Leaser interface {
	JoinInLease(node int, joined func(n fabric.Node)) (release func())
}

// A Revoker can make a memory node refuse the key of its memory.
type Revoker interface{ RevokeMN(mn fabric.MemID) }

// A Staller can make a memory node stand still, until Continue: what is posted meanwhile ends with ErrUnknownOutcome. (On
// a fabric where the caller executes operations itself there is no such outcome while both live.)
type Staller interface {
	Stall(mn fabric.MemID)
	Continue(mn fabric.MemID)
}

// An Allocator is a Cluster that allocates on its hot path, for a reason.
type Allocator interface{ Allocates() (reason string) }

// Goroutines implements Go and Wait of Cluster for backends that run in real
// time. The zero value is ready.
type Goroutines struct{ wg sync.WaitGroup }

// Go runs body in a goroutine.
func (g *Goroutines) Go(p fabric.Port, body func(p fabric.Port)) { g.wg.Go(func() { body(p) }) }

// Wait waits for all of them.
func (g *Goroutines) Wait() { g.wg.Wait() }

// patience is how long a body waits for what must come.
const patience = 20 * fabric.Second

// An env is one test's cluster.
type env struct {
	t  *testing.T
	cl Cluster
}

// client opens a Port on a node.
func (e *env) client(node int) *client {
	e.t.Helper()
	p, err := e.cl.Node(node).Open()
	if err != nil {
		e.t.Fatalf("Open on node %d: %v", node, err)
	}
	return e.clientOn(p)
}

// clientOn returns the client of a Port.
func (e *env) clientOn(p fabric.Port) *client { return &client{Port: p, t: e.t, env: e} }

// agent returns the agent of a node as a client.
func (e *env) agent(node int) *client { return e.clientOn(e.cl.Node(node).Agent()) }

// need returns the cluster as one that can do more, or skips the test.
func need[T any](e *env, what string) T {
	can, ok := e.cl.(T)
	if !ok {
		e.t.Skipf("this harness cannot %s", what)
	}
	return can
}

// run starts a body on a client.
func (e *env) run(c *client, body func(c *client)) {
	e.cl.Go(c.Port, func(fabric.Port) {
		defer func() {
			// No other panic is recovered: the simulator stops clients by one.
			if c.aborted {
				recover()
			}
		}()
		body(c)
	})
}

// complete runs a body on a client to its end.
func (e *env) complete(c *client, body func(c *client)) {
	e.run(c, body)
	e.cl.Wait()
}

// solo runs one body on node 0 to its end.
func (e *env) solo(body func(c *client)) { e.complete(e.client(0), body) }

// A client is a Port with helpers that fail the test.
type client struct {
	fabric.Port
	t       testing.TB
	env     *env
	aborted bool
}

// fatal ends the body, in whatever goroutine or coroutine it runs.
func (c *client) fatal(format string, args ...any) {
	c.t.Helper()
	c.t.Errorf("%v: %s", c.ID(), fmt.Sprintf(format, args...))
	c.aborted = true
	panic(fmt.Sprintf("fabrictest: %v gives up", c.ID()))
}

func (c *client) must(err error, what string) {
	c.t.Helper()
	if err != nil {
		c.fatal("%s: %v", what, err)
	}
}

// fails checks that an error is the one that is wanted.
func (c *client) fails(err, want error, what string, args ...any) {
	c.t.Helper()
	if !errors.Is(err, want) {
		c.fatal("%s: %v, want %v", fmt.Sprintf(what, args...), err, want)
	}
}

// do executes a chain that must succeed.
func (c *client) do(ops ...fabric.Op) []fabric.Op {
	c.t.Helper()
	c.must(c.Do(ops), "Do")
	return ops
}

// post posts a chain, which must succeed.
func (c *client) post(ops ...fabric.Op) fabric.Pending {
	c.t.Helper()
	p, err := c.Post(ops)
	c.must(err, "Post")
	return p
}

// wait waits for a chain that must have succeeded.
func (c *client) wait(p fabric.Pending) {
	c.t.Helper()
	c.must(c.Wait(p), "Wait")
}

// refused executes a chain that must fail at an operation (-1: any or none) with an error.
func (c *client) refused(want error, index int, ops ...fabric.Op) {
	c.t.Helper()
	err := c.Do(ops)
	c.fails(err, want, "chain %v", ops)
	if index < 0 {
		return
	}
	var ce *fabric.ChainError
	if !errors.As(err, &ce) || ce.Index != index {
		c.fatal("chain %v: error %v does not name operation %d", ops, err, index)
	}
	if ce.Op.Kind != ops[index].Kind || ce.Op.Addr != ops[index].Addr {
		c.fatal("error %v names %v, want %v", err, ce.Op, ops[index])
	}
	executed := index
	for _, unposted := range []error{fabric.ErrBadChain, fabric.ErrBadBuffer, fabric.ErrMisaligned, fabric.ErrUnsupported} {
		if want == unposted {
			executed = 0
		}
	}
	if n := fabric.Executed(err, len(ops)); n != executed {
		c.fatal("by error %v, %d operations were executed, want %d", err, n, executed)
	}
}

func (c *client) load(a fabric.Addr) uint64 {
	c.t.Helper()
	return c.do(fabric.Load(a))[0].Old
}

// add adds to a word, which must have held a value.
func (c *client) add(a fabric.Addr, d, old uint64) {
	c.t.Helper()
	if got := c.do(fabric.FAA(a, d))[0].Old; got != old {
		c.fatal("FAA of %#x on %v returned %#x, want %#x", d, a, got, old)
	}
}

func (c *client) store(a fabric.Addr, v uint64) {
	c.t.Helper()
	c.do(fabric.Store(a, v))
}

func (c *client) want(a fabric.Addr, v uint64) {
	c.t.Helper()
	if got := c.load(a); got != v {
		c.fatal("%v is %#x, want %#x", a, got, v)
	}
}

// read and write go through a buffer of the Port.
func (c *client) read(a fabric.Addr, n int) []byte {
	c.t.Helper()
	buf := c.Alloc(n)
	defer c.Free(buf)
	c.do(fabric.Read(a, buf))
	return append([]byte(nil), buf...)
}

func (c *client) write(a fabric.Addr, data []byte) {
	c.t.Helper()
	buf := c.Alloc(len(data))
	defer c.Free(buf)
	copy(buf, data)
	c.do(fabric.Write(a, buf))
}

// gets returns the next message, which must come and begin with a word.
func (c *client) gets(word uint64) fabric.Message {
	c.t.Helper()
	m := c.recv()
	if m.Body[0] != word {
		c.fatal("message %+v, want %d", m, word)
	}
	return m
}

// recv returns the next message, which must come. Views are not news here.
func (c *client) recv() fabric.Message {
	c.t.Helper()
	for {
		m, err := c.Recv(c.Now() + patience)
		c.must(err, "Recv")
		if m.Kind != fabric.MsgView {
			return m
		}
	}
}

// quiet checks that no message comes for a while.
func (c *client) quiet(d fabric.Time) {
	c.t.Helper()
	until := c.Now() + d
	for {
		m, err := c.Recv(until)
		switch {
		case errors.Is(err, fabric.ErrDeadline):
			return
		case err != nil:
			c.fatal("Recv: %v", err)
		case m.Kind != fabric.MsgView:
			c.fatal("unexpected message %+v", m)
		}
	}
}

func (c *client) send(to fabric.ClientID, body ...uint64) {
	c.t.Helper()
	m := fabric.Message{Kind: fabric.MsgUser}
	copy(m.Body[:], body)
	c.must(c.Send(to, &m), fmt.Sprintf("Send to %v", to))
}

func (c *client) pause(d fabric.Time) {
	c.t.Helper()
	c.must(c.Pause(c.Now()+d), "Pause")
}

// until polls a word until it has a value.
func (c *client) until(a fabric.Addr, v uint64) {
	c.t.Helper()
	limit := c.Now() + patience
	for d := 10 * fabric.Microsecond; c.load(a) != v; d += d / 8 {
		if c.Now() > limit {
			c.fatal("%v does not become %#x", a, v)
		}
		c.pause(min(d, fabric.Millisecond))
	}
}
