package shm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

// Tests with several processes start this binary again, as a child with a role.
const childEnv = "DECLOCK_SHM_CHILD"

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
	Role string
	O    Options
}

// child runs a role until its standard input ends.
func child(spec string) error {
	var s childSpec
	if err := json.Unmarshal([]byte(spec), &s); err != nil {
		return err
	}
	switch s.Role {
	case "serve":
		m, err := Serve(s.O)
		if err != nil {
			return err
		}
		fmt.Println("ready", m.Epoch())
		_, _ = io.Copy(io.Discard, os.Stdin)
		return m.Close()
	case "work":
		return work(s.O)
	case "join", "echo":
		n, err := Join(context.Background(), s.O)
		if err != nil {
			return err
		}
		p, err := n.Open()
		if err != nil {
			return err
		}
		fmt.Println("ready", uint32(p.ID()), int64(p.Now()))
		if s.Role == "echo" {
			return errors.Join(echo(p), n.Close())
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
		return n.Close()
	}
	return fmt.Errorf("no role %q", s.Role)
}

// A process is a running child.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	// ready is what it said when it was: numbers.
	ready []int64
	gone  bool
}

// start starts a child and waits until it is ready.
func start(t testing.TB, role string, o Options) *process {
	t.Helper()
	p, err := tryStart(t, role, o)
	if err != nil {
		t.Fatalf("%s: %v", role, err)
	}
	return p
}

func tryStart(t testing.TB, role string, o Options) (*process, error) {
	t.Helper()
	spec, _ := json.Marshal(childSpec{role, o})
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	p.cmd.Stderr = os.Stderr
	p.stdin, _ = p.cmd.StdinPipe()
	out, _ := p.cmd.StdoutPipe()
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(p.kill)
	line, _ := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != "ready" {
		p.kill()
		return nil, errors.New(line)
	}
	for _, w := range words[1:] {
		var n int64
		fmt.Sscan(w, &n)
		p.ready = append(p.ready, n)
	}
	return p, nil
}

func (p *process) client() fabric.ClientID { return fabric.ClientID(p.ready[0]) }

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// kill ends the child as a crash would.
func (p *process) kill() {
	if !p.gone {
		p.gone = true
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// finish lets the child end in good order.
func (p *process) finish() {
	p.t.Helper()
	p.gone = true
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("child: %v", err)
	}
}

const patience = 10 * fabric.Second

// awaitView waits until the agent has been notified of a view, and the view is as
// wanted. It returns how long that took.
func awaitView(t testing.TB, n *node, what string, ok func(fabric.View) bool) time.Duration {
	t.Helper()
	begin := n.Now()
	for {
		m, err := n.Agent().Recv(begin + patience)
		if err != nil {
			t.Fatalf("%s: %v; the view is %+v", what, err, n.View())
		}
		if m.Kind == fabric.MsgView && ok(n.View()) {
			return time.Duration(n.Now() - begin)
		}
	}
}

func TestMessagesAcrossProcesses(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	p := open(t, n)
	c := start(t, "echo", o)
	const window, count = 400, 5000 // more than a ring holds
	for i, next := 0, 0; next < count; {
		for ; i < count && i < next+window; i++ {
			if err := p.Send(c.client(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(i)}}); err != nil {
				t.Fatal(err)
			}
		}
		m, err := p.Recv(p.Now() + patience)
		if err != nil || m.Body[0] != uint64(next) || m.From != c.client() {
			t.Fatalf("answer %d: %+v, %v", next, m, err)
		}
		next++
	}
	if err := p.Send(c.client(), &fabric.Message{Kind: fabric.MsgUser + 1}); err != nil {
		t.Fatal(err)
	}
	c.finish()
	if v := n.View(); v.Live.Has(c.client().CN()) {
		t.Error("a node that has left is in the view")
	}
}

func TestClocksOfProcessesAgree(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	before := n.Now()
	c := start(t, "join", o)
	if at := fabric.Time(c.ready[1]); at < before || at > n.Now() {
		t.Errorf("the other process said %d, between %d and %d here", at, before, n.Now())
	}
	if wall := fabric.Time(time.Now().UnixNano()); n.Now()-wall > fabric.Second || wall-n.Now() > fabric.Second {
		t.Errorf("the clock says %d, the wall %d", n.Now(), wall)
	}
	c.finish()
}

func TestKilledProcessIsNoticed(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	c := start(t, "join", o)
	id := c.client().CN()
	awaitView(t, n, "join", func(v fabric.View) bool { return v.Live.Has(id) })
	first := n.c.cn(id).counter.Load()
	if err := n.Agent().Send(c.client(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
		t.Fatal(err)
	}
	c.kill()
	took := awaitView(t, n, "kill -9", func(v fabric.View) bool { return !v.Live.Has(id) })
	t.Logf("noticed after %v", took)
	if took > 2*time.Second {
		t.Errorf("noticed only after %v", took)
	}
	if err := n.Agent().Send(c.client(), &fabric.Message{Kind: fabric.MsgUser}); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("Send to the dead: %v", err)
	}
	// Its number is taken again; what was sent to it is not delivered.
	d := start(t, "echo", o)
	if d.client() != c.client() {
		t.Fatalf("the next is %v, not %v", d.client(), c.client())
	}
	awaitView(t, n, "join again", func(v fabric.View) bool { return v.Live.Has(id) })
	if again := n.c.cn(id).counter.Load(); again <= first {
		t.Errorf("incarnation %d after %d", again, first)
	}
	p := open(t, n)
	if err := p.Send(d.client(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{42}}); err != nil {
		t.Fatal(err)
	}
	if m, err := p.Recv(p.Now() + patience); err != nil || m.Body[0] != 42 {
		t.Fatalf("answer: %+v, %v", m, err)
	}
	if _, err := n.Agent().Recv(n.Now() + 10*fabric.Millisecond); err == nil {
		t.Error("the new incarnation has answered a message to the old one")
	}
}

func TestNoticedWithoutPidfd(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	c := start(t, "join", o)
	id := c.client().CN()
	n := join(t, o)
	// As if it were in another PID namespace: only the lock tells.
	key := watchKey{cn: id, number: n.c.cn(id).counter.Load()}
	n.viewMu.Lock()
	n.watches.stop(key)
	f, _, err := openCompute(n.c.cnPath(id))
	if err != nil {
		t.Fatal(err)
	}
	n.watches.start(key, n.c.cn(id).pid.Load(), pidNamespace()+1, f, func() { n.peerEnded(id, key.number) })
	n.viewMu.Unlock()
	c.kill()
	took := awaitView(t, n, "kill -9", func(v fabric.View) bool { return !v.Live.Has(id) })
	t.Logf("noticed after %v", took)
}

func TestStoppedServerDoesNotMatter(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: testSize}
	s := start(t, "serve", o)
	n := join(t, o)
	p := open(t, n)
	s.signal(syscall.SIGSTOP)
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 0), 1)}
	if err := p.Do(ops); err != nil {
		t.Fatal(err)
	}
	if err := open(t, join(t, o)).Do(ops); err != nil {
		t.Fatalf("a node that joined while the server was stopped: %v", err)
	}
	if ops[0].Old != 1 {
		t.Errorf("the counter was %d", ops[0].Old)
	}
	s.signal(syscall.SIGCONT)
	s.finish()
	if err := p.Do(ops); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("after the server closed: %v", err)
	}
}

func TestKilledServer(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
			o := Options{Name: "x", Dir: testDir(t), Size: testSize}
			if keep {
				t.Cleanup(func() {
					if err := Remove(o.Dir, o.Name); err != nil {
						t.Error(err)
					}
				})
			}
			s := start(t, "serve", o)
			n := join(t, o)
			p := open(t, n)
			ops := []fabric.Op{fabric.FAA(fabric.At(0, 0), 1)}
			if err := p.Do(ops); err != nil {
				t.Fatal(err)
			}
			s.kill()
			var err error
			for limit := n.Now() + patience; !errors.Is(err, fabric.ErrNodeDown) && n.Now() < limit; {
				err = p.Do(ops)
			}
			if !errors.Is(err, fabric.ErrNodeDown) {
				t.Fatalf("the server is dead: %v", err)
			}
			o.Keep = keep
			m := serve(t, o)
			if m.Epoch() != uint32(s.ready[0])+1 {
				t.Errorf("epoch %d after %d", m.Epoch(), s.ready[0])
			}
			if err := p.Do(ops); !errors.Is(err, fabric.ErrStaleEpoch) {
				t.Errorf("an old port in the new epoch: %v", err)
			}
			load := []fabric.Op{fabric.Load(fabric.At(0, 0))}
			if err := open(t, n).Do(load); err != nil {
				t.Fatal(err)
			}
			if kept := load[0].Old != 0; kept != keep {
				t.Errorf("kept memory: %v, want %v", kept, keep)
			}
		})
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: testSize}
	s := start(t, "serve", o)
	for _, keep := range []bool{false, true} {
		o.Keep = keep
		if _, err := Serve(o); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "process") {
			t.Errorf("keep=%v: %v", keep, err)
		}
	}
	if _, err := tryStart(t, "serve", o); err == nil || !strings.Contains(err.Error(), ErrInUse.Error()) {
		t.Errorf("another process: %v", err)
	}
	s.finish()
}

func TestStoppedPeerBlocksNoOther(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	c := start(t, "echo", o)
	p := open(t, join(t, o))
	c.signal(syscall.SIGSTOP)
	const count = 5000
	for i := range count {
		if err := p.Send(c.client(), &fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{uint64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	c.signal(syscall.SIGCONT)
	for i := range count {
		m, err := p.Recv(p.Now() + patience)
		if err != nil || m.Body[0] != uint64(i) {
			t.Fatalf("answer %d: %+v, %v", i, m, err)
		}
	}
}

func TestLeftovers(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: testSize}
	for _, first := range []string{"join", "serve"} {
		s := start(t, "serve", o)
		c := start(t, "join", o)
		if err := Remove(o.Dir, o.Name); !errors.Is(err, ErrInUse) {
			t.Errorf("Remove of a live cluster: %v", err)
		}
		s.kill()
		c.kill()
		info, err := Inspect(o.Dir, o.Name)
		if err != nil || info.Alive() || len(info.Memory) != 1 || len(info.Compute) != 1 {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if names, err := List(o.Dir); err != nil || len(names) != 1 || names[0] != o.Name {
			t.Errorf("List: %v, %v", names, err)
		}
		if first == "join" {
			if _, err := Join(context.Background(), o); !errors.Is(err, ErrNoCluster) {
				t.Errorf("Join of a dead cluster: %v", err)
			}
			if names, _ := List(o.Dir); len(names) != 0 {
				t.Errorf("Join has left %v", names)
			}
		}
	}
	o.MaxCN = 3 // a new cluster, not the dead one
	serve(t, o)
	if n := join(t, o); n.ID() != 1 || n.c.maxCN != 3 {
		t.Errorf("joined as %v of %d", n.ID(), n.c.maxCN)
	}
}

func TestIdleNodeBurnsNothing(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	var ports []fabric.Port
	for range 3 {
		n := join(t, o)
		p := open(t, n)
		ports = append(ports, p)
		for range 8 {
			q := open(t, n)
			go func() { _, _ = q.Recv(fabric.Forever) }()
		}
	}
	if err := ports[0].Pause(ports[0].Now() + 50*fabric.Millisecond); err != nil {
		t.Fatal(err)
	}
	before := cpuTime(t)
	if err := ports[0].Pause(ports[0].Now() + fabric.Second); err != nil {
		t.Fatal(err)
	}
	used := cpuTime(t) - before
	t.Logf("CPU time of an idle second: %v", used)
	if used > 10*time.Millisecond {
		t.Errorf("an idle second cost %v of CPU", used)
	}
}

func cpuTime(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkCrossProcessPingPong(b *testing.B) {
	o := Options{Name: "bench", Dir: testDir(b)}
	serve(b, o)
	c := start(b, "echo", o)
	p := open(b, join(b, o))
	m := fabric.Message{Kind: fabric.MsgUser}
	for b.Loop() {
		if err := p.Send(c.client(), &m); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Recv(p.Now() + patience); err != nil {
			b.Fatal(err)
		}
	}
}
