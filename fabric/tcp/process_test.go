package tcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/fabric/member"
)

// Tests with several processes start this binary again, as a child with a role. The coordinator is in the
// parent: see coordtest.Serve.
const childEnv = "DECLOCK_TCP_CHILD"

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		if err := child(spec); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type childSpec struct {
	Role        string
	Coordinator string
	Mem         fabric.MemID
	Size        uint64
	File        string
	Procs       int
	Local       bool
	DeadAfter   time.Duration
}

// child runs a role until its standard input ends.
func child(spec string) error {
	var s childSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	if s.Role == "loopback" {
		return loopback()
	}
	c, err := coordtest.Dial(s.Coordinator)
	if err != nil {
		return err
	}
	o := Options{Members: c, Insecure: true, Listen: "127.0.0.1:0", Mem: s.Mem, Size: s.Size, File: s.File, Local: s.Local, DeadAfter: s.DeadAfter, Heartbeat: s.DeadAfter / 5}
	if s.Role == "serve" {
		m, err := Serve(context.Background(), o)
		if err != nil {
			return err
		}
		fmt.Println("ready", uint64(m.peer.Own.Incarnation))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return m.Close()
	}
	n, err := Join(context.Background(), o)
	if err != nil {
		return err
	}
	p, err := n.Open()
	if err != nil {
		return err
	}
	fmt.Println("ready", uint64(n.(*node).Own.Incarnation), uint32(p.ID()))
	switch s.Role {
	case "echo":
		return errors.Join(echo(p), n.Close())
	case "adder":
		return adder(p, 0)
	case "slow adder":
		return adder(p, 5*fabric.Millisecond)
	case "reader":
		return reader(p)
	case "sleeper":
		return sleeper(p)
	}
	return fmt.Errorf("no role %q", s.Role)
}

// echo answers until it gets a message of another kind.
func echo(p fabric.Port) error {
	for {
		m, err := p.Recv(fabric.Forever)
		if err != nil {
			return err
		}
		if m.Kind != fabric.MsgUser {
			return nil
		}
		if err := p.Send(m.From, &m); err != nil {
			return err
		}
	}
}

// adder adds to word 64 for ever, with pauses, and says in word 72 how often it knows to have done so.
func adder(p fabric.Port, pause fabric.Time) error {
	for i := uint64(1); ; i++ {
		if err := p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1), fabric.Store(fabric.At(0, 72), i)}); err != nil {
			fmt.Println("stopped", errors.Is(err, fabric.ErrFenced), errors.Is(err, fabric.ErrUnknownOutcome), err)
			_, _ = io.Copy(io.Discard, os.Stdin)
			return nil
		}
		if pause > 0 {
			_ = p.Pause(p.Now() + pause)
		}
	}
}

// reader reads as much as it can in one chain, for ever.
func reader(p fabric.Port) error {
	ops := []fabric.Op{fabric.Read(fabric.At(0, 0), p.Alloc(readerSize))}
	for {
		if err := p.Do(ops); err != nil {
			fmt.Println("stopped", err)
			return err
		}
	}
}

const readerSize = maxLocal

// sleeper adds to word 64 for ever, and says how often it still could after it had stood still.
func sleeper(p fabric.Port) error {
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
	for last := time.Now(); ; last = time.Now() {
		err := p.Do(ops)
		if err == nil && time.Since(last) < 500*time.Millisecond {
			continue
		}
		n := 0 // the first may have been over before it stood still
		for err == nil {
			if err = p.Do(ops); err == nil {
				n++
			}
		}
		fmt.Println("after", n, err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		return nil
	}
}

// A process is a running child.
type process struct {
	*peertest.Process
	incarnation member.Incarnation
	id          fabric.ClientID
}

// start starts a child and waits until it is ready.
func start(t testing.TB, s childSpec) *process {
	t.Helper()
	spec, _ := json.Marshal(s)
	env := []string{childEnv + "=" + string(spec)}
	if s.Procs > 0 {
		env = append(env, fmt.Sprintf("GOMAXPROCS=%d", s.Procs))
	}
	p := &process{Process: peertest.StartProcess(t, env...)}
	var incarnation uint64
	var id uint32
	_, _ = fmt.Sscan(strings.TrimPrefix(p.Line("ready "), "ready "), &incarnation, &id)
	p.incarnation, p.id = member.Incarnation(incarnation), fabric.ClientID(id)
	return p
}

const patienceTime = 20 * fabric.Second

func TestMessagesAcrossProcesses(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.Serve(0, 1<<20)
	p := peertest.Open(t, c.Join())
	e := start(t, childSpec{Role: "echo", Coordinator: coordtest.Serve(t, c.Members.Now())})
	const window, count = 400, 5000
	for i, next := 0, 0; next < count; next++ {
		for ; i < count && i < next+window; i++ {
			if err := p.Send(e.id, &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		m, err := p.Recv(p.Now() + patienceTime)
		if err != nil || m.Body[0] != uint64(next) || m.From != e.id {
			t.Fatalf("answer %d: %+v, %v", next, m, err)
		}
	}
	if err := p.Send(e.id, &fabric.Message{Kind: fabric.MsgUser + 1}); err != nil {
		t.Fatal(err)
	}
	e.Finish()
	peertest.Await(t, "the echo is out of the view", func() bool { return !c.Nodes[0].View().Live.Has(e.id.CN()) })
}

// A process that is stopped, declared dead, and continued: nothing of what it does lands after the others
// have been told, and it hears that it was fenced.
func TestProcessThatWasStoppedIsFenced(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	c.Serve(0, 1<<20)
	n := c.Join()
	p := peertest.Open(t, n)
	a := start(t, childSpec{Role: "adder", Coordinator: coordtest.Serve(t, c.Members.Now())})
	peertest.Await(t, "it is at work", func() bool { return peertest.Do(t, p, fabric.Load(fabric.At(0, 72)))[0].Old > 100 })
	a.Signal(syscall.SIGSTOP)
	c.Members.Now().Kill(a.incarnation)
	// It cannot acknowledge, so it is dead to all when the memory node has shut it out.
	peertest.Await(t, "it is out of the view", func() bool { return !n.View().Live.Has(a.id.CN()) })
	before := peertest.Do(t, p, fabric.Load(fabric.At(0, 64)))[0].Old
	a.Signal(syscall.SIGCONT)
	if line := a.Line(""); !strings.HasPrefix(line, "stopped true") && !strings.HasPrefix(line, "stopped false true") {
		t.Errorf("the fenced process says %q", line)
	}
	if after := peertest.Do(t, p, fabric.Load(fabric.At(0, 64)))[0].Old; after != before {
		t.Errorf("the counter was %d when it was shut out and is %d", before, after)
	}
	a.Kill()
}

// A memory node that is killed and started again with its file has its memory and a new epoch.
func TestFileSurvivesTheProcess(t *testing.T) {
	c := newTestCluster(t)
	defer c.Close()
	addr := coordtest.Serve(t, c.Members.Now())
	s := childSpec{Role: "serve", Coordinator: addr, Size: 1 << 24, File: t.TempDir() + "/mn0"}
	m := start(t, s)
	n := c.Join()
	p := peertest.Open(t, n)
	peertest.Do(t, p, fabric.Store(fabric.At(0, 1<<23), 77))
	epoch := n.Memory()[0].Epoch
	m.Kill()
	err := p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)})
	if !errors.Is(err, fabric.ErrNodeDown) && !errors.Is(err, fabric.ErrUnknownOutcome) {
		t.Errorf("FAA on a memory node that was killed: %v", err)
	}
	c.Members.Now().Kill(m.incarnation)
	start(t, s)
	peertest.Await(t, "the memory node is back", func() bool { l := n.Memory(); return len(l) == 1 && l[0].Epoch > epoch })
	if err := p.Do([]fabric.Op{fabric.Load(fabric.At(0, 64))}); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("an old Port in the new epoch: %v", err)
	}
	q := peertest.Open(t, n)
	peertest.Await(t, "it can be reached", func() bool {
		ops := []fabric.Op{fabric.Load(fabric.At(0, 1<<23))}
		return q.Do(ops) == nil && ops[0].Old == 77
	})
}
