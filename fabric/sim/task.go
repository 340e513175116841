package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"strings"

	"github.com/declock/declock/fabric"
)

// A Task is a client's code: a coroutine that the event loop resumes. It runs
// only while all others, and the loop, stand still.
type Task struct {
	next  func() (struct{}, bool)
	yield func(struct{}) bool
	stop  func()

	calls    uint32
	daemon   bool
	started  bool
	done     bool
	killed   bool // it must unwind at once
	unwound  bool // it has met the unwind panic
	returned bool // body has returned, rather than panicked or exited

	c     *Cluster
	node  *Node
	port  *Port
	index uint32
	name  string
	body  func(fabric.Port)

	acted bool // an operation of it has taken effect; in an untimed cluster

}

// unwind is the panic value that ends a killed coroutine. Code that recovers
// it and goes on meets it again at its next use of a Port, and fails the run when
// it returns (ErrSwallowed).
type unwind struct{ name string }

func (u unwind) String() string { return "sim: client " + u.name + " is being stopped" }

// maxIdleCalls is how many Port calls a client may make without time going by.
const maxIdleCalls = 1 << 24

// Name returns the name given to Go.
func (t *Task) Name() string { return t.name }

// Done reports whether the client's code has ended.
func (t *Task) Done() bool { return t.done }

func (t *Task) begin() {
	t.started = true
	if t.c.untimed == nil {
		t.next, t.stop = iter.Pull(t.run)
		return
	}
	co := t.c.untimed.coroutines.take()
	co.task = t
	t.next, t.stop = co.next, func() { co.next() } // it is killed
}

// Coroutines keeps coroutines whose tasks have ended for others, with their stacks: a search begins tens of thousands of
// tasks a second.
type Coroutines struct{ idle []*coroutine }

type coroutine struct {
	pool *Coroutines
	next func() (struct{}, bool)
	stop func()
	task *Task
}

// take returns a coroutine that runs a task when it is resumed.
func (p *Coroutines) take() *coroutine {
	if n := len(p.idle); n > 0 {
		co := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return co
	}
	co := &coroutine{pool: p}
	co.next, co.stop = iter.Pull(co.run)
	return co
}

// run runs one task after the other. (Not beyond one that calls runtime.Goexit.)
func (co *coroutine) run(yield func(struct{}) bool) {
	for again := true; again; again = yield(struct{}{}) {
		co.task.run(yield)
		co.task = nil
		co.pool.idle = append(co.pool.idle, co)
	}
}

// Close ends the coroutines.
func (p *Coroutines) Close() {
	for _, co := range p.idle {
		co.stop()
	}
	p.idle = nil
}

// run is the coroutine.
func (t *Task) run(yield func(struct{}) bool) {
	t.yield = yield
	defer t.finish()
	t.body(t.port)
	t.returned = true
}

// finish runs deferred at the coroutine's top: what ended the client's code?
func (t *Task) finish() {
	t.end()
	switch r := recover().(type) {
	case nil:
		if t.returned && t.unwound {
			t.c.Fail(fmt.Errorf("%w: client %s", ErrSwallowed, t.name))
		}
	case unwind:
	default:
		t.c.Fail(&PanicError{Client: t.name, Value: r, Stack: debug.Stack()})
	}
}

func (t *Task) end() {
	if !t.done {
		t.done = true
		t.body = nil
		if !t.daemon {
			t.c.live--
		}
	}
}

// goesOn is what a task does first when its yield returns.
func (t *Task) goesOn(ok bool) {
	t.calls = 0
	if !ok || t.killed {
		t.unwind()
	}
}

func (t *Task) unwind() {
	t.killed = true
	t.unwound = true
	panic(unwind{t.name})
}

// enter is called at the start of each Port method that does something.
func (t *Task) enter() {
	if t.killed {
		t.unwind()
	}
	if t.calls++; t.calls == maxIdleCalls {
		panic(fmt.Sprintf("sim: client %s made %d calls at %d ns without waiting", t.name, t.calls, t.c.now))
	}
}

// A PanicError is the error of a run in which a client panicked.
type PanicError struct {
	Client string
	Value  any
	Stack  []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("sim: client %s panicked: %v\n%s", e.Client, e.Value, e.Stack)
}

// Unwrap returns the panic's value, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// A DeadlockError is the error of a run in which clients wait for ever.
type DeadlockError struct {
	Time    fabric.Time
	Blocked []Blocked
}

// Blocked is a client that waits for what will not come.
type Blocked struct {
	Client string
	ID     fabric.ClientID
	For    string
	Since  fabric.Time
	Daemon bool
}

func (b Blocked) String() string {
	return fmt.Sprintf("%s (%v) waits for %s since %d ns", b.Client, b.ID, b.For, b.Since)
}

// maxNamed bounds the length of a DeadlockError's text.
const maxNamed = 32

func (e *DeadlockError) Error() string {
	var s strings.Builder
	fmt.Fprintf(&s, "sim: deadlock at %d ns, %d clients:", e.Time, len(e.Blocked))
	for i, b := range e.Blocked {
		if i == maxNamed {
			fmt.Fprintf(&s, "\n\tand %d more", len(e.Blocked)-i)
			break
		}
		fmt.Fprintf(&s, "\n\t%v", b)
	}
	return s.String()
}
