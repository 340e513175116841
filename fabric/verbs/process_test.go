//go:build cgo && !shmonly

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// Tests with several processes run this program again, in a role.
const (
	roleEnv        = "DECLOCK_VERBS_ROLE"
	coordinatorEnv = "DECLOCK_VERBS_COORDINATOR" // its address: see coordtest.Serve
)

var roles = map[string]func(n fabric.Node, out io.Writer) error{
	"adder":     adder,
	"writer":    writer,
	"contender": contenderRole,
}

func TestMain(m *testing.M) {
	list := sync.OnceValues(listOnce)
	devices = func() ([]Candidate, error) {
		all, err := list()
		return slices.Clone(all), err
	}
	role := os.Getenv(roleEnv)
	if role == "" {
		code := m.Run()
		if err := leftovers(); err != nil && code == 0 {
			fmt.Println("FAIL:", err)
			code = 1
		}
		os.Exit(code)
	}
	if role == "memlock" {
		memlockRole()
		return
	}
	if err := play(role); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

// play plays a role on a compute node.
func play(role string) error {
	members, err := coordtest.Dial(os.Getenv(coordinatorEnv))
	if err != nil {
		return err
	}
	n, err := Join(context.Background(), Options{Members: members, Secret: testSecret, QueuePairs: 2, Heartbeat: 500 * time.Millisecond,
		DeadAfter: 30 * time.Second, Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	return errors.Join(roles[role](n, os.Stdout), n.Close())
}

// endsEnv has the parent's list of devices, for children: see devices.
const endsEnv = "DECLOCK_VERBS_ENDS"

func listOnce() (all []Candidate, err error) {
	if known := os.Getenv(endsEnv); known != "" {
		return all, json.Unmarshal([]byte(known), &all)
	}
	if all, err = Devices(); err == nil {
		var known []byte
		if known, err = json.Marshal(all); err == nil {
			err = os.Setenv(endsEnv, string(known))
		}
	}
	return all, err
}

// leftovers says what this process still holds when all tests are over.
func leftovers() error {
	limit := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > 3 && time.Now().Before(limit) {
		time.Sleep(10 * time.Millisecond)
	}
	if n := runtime.NumGoroutine(); n > 3 {
		buf := make([]byte, 1<<16)
		return fmt.Errorf("%d goroutines are left:\n%s", n, buf[:runtime.Stack(buf, true)])
	}
	if os.Getenv(guestEnv) == "" {
		return nil
	}
	return leftResources()
}

// leftResources says which resources of the device this process holds.
func leftResources() error {
	for _, what := range []string{"qp", "cq", "mr", "pd", "ctx"} {
		n, out, err := countResources(what)
		if err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("resources are left:\n%s", out)
		}
	}
	return nil
}

// countResources counts what this process holds of the device, by the kernel's list, which it returns too.
func countResources(what string) (n int, list string, err error) {
	// The pid that the kernel tells is a thread's.
	comm, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		return 0, "", err
	}
	out, err := exec.Command("/usr/bin/rdma", "resource", "show", what).CombinedOutput()
	if err != nil {
		return 0, "", fmt.Errorf("rdma resource show %s: %w: %s", what, err, out)
	}
	return strings.Count(string(out), " comm "+strings.TrimSpace(string(comm))+" "), string(out), nil
}

// startChild starts a compute node in a process of its own.
func startChild(t *testing.T, role, at string) *peertest.Process {
	t.Helper()
	return peertest.StartProcess(t, roleEnv+"="+role, coordinatorEnv+"="+at)
}

var (
	counter = peertest.Word
	page    = fabric.At(0, 8192)
)

const adds = 500

// adder adds to the counter, and sends each value that it got to the agent of cn1.
func adder(n fabric.Node, out io.Writer) error {
	p, err := n.Open()
	if err != nil {
		return err
	}
	for i := range uint64(adds) {
		ops := []fabric.Op{fabric.FAA(counter, 1)}
		if err := p.Do(ops); err != nil {
			return err
		}
		m := fabric.Message{Kind: fabric.MsgUser, Body: [7]uint64{i, ops[0].Old}}
		if err := p.Send(fabric.AgentOf(1), &m); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "done")
	_, _ = io.ReadAll(os.Stdin) // stay: another must not get the number
	return nil
}

// Compute nodes in processes of their own add to one counter. Every value arrives once, the messages of
// each in order.
func TestProcessesShareMemoryAndMessages(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	at := coordtest.Serve(t, c.Members.Now())
	const processes = 3
	var children []*peertest.Process
	for range processes {
		children = append(children, startChild(t, "adder", at))
	}
	agent := c.Node(0).Agent()
	seen, next := map[uint64]bool{}, map[fabric.ClientID]uint64{}
	for len(seen) < processes*adds {
		m, err := agent.Recv(agent.Now() + 20*fabric.Second)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(seen), err)
		}
		if m.Kind == fabric.MsgView {
			continue
		}
		if m.Body[0] != next[m.From] || seen[m.Body[1]] {
			t.Fatalf("%v sent number %d (want %d), value %d (seen: %v)", m.From, m.Body[0], next[m.From], m.Body[1], seen[m.Body[1]])
		}
		next[m.From]++
		seen[m.Body[1]] = true
	}
	for _, c := range children {
		c.Line("done")
		c.Finish()
	}
	ops := []fabric.Op{fabric.Load(counter)}
	if err := agent.Do(ops); err != nil || ops[0].Old != processes*adds {
		t.Errorf("the counter is %d, %v", ops[0].Old, err)
	}
}

// writer writes to a page, over and over, until it cannot.
func writer(n fabric.Node, out io.Writer) error {
	p, err := n.Open()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "joined", uint8(n.ID()))
	buf := p.Alloc(4096)
	for i := uint64(0); ; i++ {
		buf[0] = byte(i)
		if err = p.Do([]fabric.Op{fabric.Write(page, buf), fabric.FAA(counter, 1)}); err != nil {
			break
		}
		if i == 100 {
			fmt.Fprintln(out, "writing")
		}
	}
	fmt.Fprintf(out, "first fenced=%v unknown=%v\n", errors.Is(err, fabric.ErrFenced), errors.Is(err, fabric.ErrUnknownOutcome))
	err = p.Do([]fabric.Op{fabric.FAA(counter, 1)})
	fmt.Fprintf(out, "second fenced=%v unknown=%v\n", errors.Is(err, fabric.ErrFenced), errors.Is(err, fabric.ErrUnknownOutcome))
	err = p.Send(fabric.AgentOf(1), &fabric.Message{Kind: fabric.MsgUser})
	fmt.Fprintf(out, "send fenced=%v\n", errors.Is(err, fabric.ErrFenced))
	return nil
}

// awaitView waits until the agent hears of a view without a node.
func awaitView(t *testing.T, n fabric.Node, gone fabric.CNID) {
	t.Helper()
	for {
		v := n.View()
		if !v.Live.Has(gone) {
			return
		}
		if _, err := n.Agent().Recv(n.Agent().Now() + 20*fabric.Second); err != nil {
			t.Fatalf("%v is still in the view: %v", gone, err)
		}
	}
}

func load2(t *testing.T, p fabric.Port) (word uint64, first byte) {
	t.Helper()
	buf := p.Alloc(8)
	ops := []fabric.Op{fabric.Load(counter), fabric.Read(page, buf)}
	if err := p.Do(ops); err != nil {
		t.Fatal(err)
	}
	return ops[0].Old, buf[0]
}

// A paused compute node is given up. When the others hear of it, nothing that it has sent or will send can
// reach memory; and when it wakes up, its next operation says that it is fenced.
func TestPausedProcessIsFenced(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	w := startChild(t, "writer", coordtest.Serve(t, c.Members.Now()))
	var id uint8
	fmt.Sscanf(w.Line("joined"), "joined %d", &id)
	w.Line("writing")
	w.Signal(syscall.SIGSTOP)
	c.crash(fabric.CNID(id)) // its lease has run out
	awaitView(t, c.Node(0), fabric.CNID(id))
	p := c.Node(0).Agent()
	word, first := load2(t, p)
	w.Signal(syscall.SIGCONT)
	begin := time.Now()
	if line := w.Line("first"); !strings.HasPrefix(line, "first fenced=true") {
		t.Error(line)
	}
	t.Logf("it knows after %v", time.Since(begin))
	if line := w.Line("second"); line != "second fenced=true unknown=false" {
		t.Error(line)
	}
	if line := w.Line("send"); line != "send fenced=true" {
		t.Error(line)
	}
	if again, first2 := load2(t, p); again != word || first2 != first {
		t.Errorf("a fenced node has changed memory: the counter from %d to %d, the page from %d to %d", word, again, first, first2)
	}
}

// When the others hear that a compute node which was killed is dead, its queue pairs are gone.
func TestKilledProcessLeaves(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	w := startChild(t, "writer", coordtest.Serve(t, c.Members.Now()))
	var id uint8
	fmt.Sscanf(w.Line("joined"), "joined %d", &id)
	w.Line("writing")
	w.Kill()
	c.crash(fabric.CNID(id))
	awaitView(t, c.Node(0), fabric.CNID(id))
	s := c.Servers[0]
	s.peer.Mu.Lock()
	defer s.peer.Mu.Unlock()
	if len(s.guests) != 1 {
		t.Errorf("%d compute nodes are attached, want 1", len(s.guests))
	}
}
