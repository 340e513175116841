//go:build linux

package declock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/mn"
)

// Tests with several processes start this binary again, as a child: ROLE DIR.
const childEnv = "DECLOCK_TEST_CHILD"

func TestMain(m *testing.M) {
	if role, dir, ok := strings.Cut(os.Getenv(childEnv), " "); ok {
		if err := child(role, dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killedCluster are the options of the cluster of these tests.
func killedCluster(dir string) shm.Options {
	return shm.Options{Name: "killed", Dir: dir, Size: 64 << 20, Sparse: true, Keep: true}
}

// child plays a role until its standard input ends.
func child(role, dir string) error {
	switch role {
	case "serve-without-keep":
		return serveWithoutKeep(dir)
	case "go-on":
		return goOn(dir)
	}
	ctx := context.Background()
	o := killedCluster(dir)
	if role == "serve" || role == "serve-lease" {
		if role == "serve-lease" {
			o.Lease = 500 * time.Millisecond
		}
		srv, err := shm.Serve(o)
		if err != nil {
			return err
		}
		n, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
		if err != nil {
			return err
		}
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return n.Close()
	}
	c, err := declock.Open(ctx, "shm:killed", declock.WithDir(dir))
	if err != nil {
		return err
	}
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		return err
	}
	s, err := c.Session()
	if err != nil {
		return err
	}
	switch role {
	case "idle":
		fmt.Println("ready")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return errors.Join(s.Close(), c.Close())
	case "wait":
		fmt.Println("ready") // it will be waiting soon
	}
	g, err := s.Lock(ctx, l.At(0))
	if err != nil {
		return err
	}
	fmt.Println("holds", uint64(g.Token()))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return errors.Join(g.Unlock(), s.Close(), c.Close())
}

// A process is a running child.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
}

func startChild(t *testing.T, role, dir string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+role+" "+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t, cmd, in, bufio.NewScanner(out)}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return p
}

// says waits for a line that begins with a word.
func (p *process) says(word string) {
	p.t.Helper()
	if !p.lines.Scan() || !strings.HasPrefix(p.lines.Text(), word) {
		p.t.Fatalf("a child says %q, wanted %q", p.lines.Text(), word)
	}
}

func (p *process) kill(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// end lets a child end by itself.
func (p *process) end() error {
	p.stdin.Close()
	return p.cmd.Wait()
}

// The lock of a process that was killed goes to the next waiter: within 50 ms, where the machine has nothing else to do.
func TestKilledHolder(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	var took []time.Duration
	for range 5 {
		holder := startChild(t, "hold", dir)
		holder.says("holds")
		waiter := startChild(t, "wait", dir)
		waiter.says("ready")
		holder.kill(syscall.SIGKILL)
		began := time.Now()
		waiter.says("holds")
		took = append(took, time.Since(began))
		if err := waiter.end(); err != nil {
			t.Errorf("the waiter: %v", err)
		}
	}
	slices.Sort(took)
	t.Logf("granted after %v", took)
	if took[0] > 5*time.Second {
		t.Errorf("the next waiter was granted after %v at best: not because of the death", took[0])
	}
}

// A process that is killed while it waits is skipped.
func TestKilledWaiter(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	holder := startChild(t, "hold", dir)
	holder.says("holds")
	first := startChild(t, "wait", dir)
	first.says("ready")
	second := startChild(t, "wait", dir)
	second.says("ready")
	first.kill(syscall.SIGKILL)
	if err := holder.end(); err != nil {
		t.Errorf("the holder: %v", err)
	}
	second.says("holds")
	if err := second.end(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// A reset needs an answer of every agent. One whose process is stopped, and killed, while a reset waits for it holds
// nobody up.
func TestKilledAgent(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	idle := startChild(t, "idle", dir)
	idle.says("ready")
	holder := startChild(t, "hold", dir)
	holder.says("holds")
	waiter := startChild(t, "wait", dir)
	waiter.says("ready")
	idle.kill(syscall.SIGSTOP)
	holder.kill(syscall.SIGKILL)
	idle.kill(syscall.SIGKILL)
	waiter.says("holds")
	if err := waiter.end(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// A process that starts after the death of a holder gets its lock as soon as one that waited.
func TestKilledHolderAndItsSuccessor(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	holder := startChild(t, "hold", dir)
	holder.says("holds")
	holder.kill(syscall.SIGKILL)
	_ = holder.cmd.Wait()
	successor := startChild(t, "wait", dir)
	successor.says("ready")
	began := time.Now()
	successor.says("holds")
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("granted after %v: not because of the death", took)
	}
	if err := successor.end(); err != nil {
		t.Errorf("the successor: %v", err)
	}
}

// A memory node whose process was killed comes back with its memory: who uses it goes on.
func TestKilledMemoryNode(t *testing.T) {
	dir := t.TempDir()
	server := startChild(t, "serve", dir)
	server.says("ready")
	ctx := context.Background()
	losses := make(chan lock.Loss, 1)
	c, err := declock.Open(ctx, "shm:killed", declock.WithDir(dir), declock.WithOnLoss(func(l lock.Loss) { losses <- l }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	holder, other := session(t, c), session(t, c)
	g, err := holder.Lock(ctx, l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	server.kill(syscall.SIGKILL)
	_ = server.cmd.Wait()
	startChild(t, "serve", dir).says("ready")
	// Nobody says anything to the memory node: the agent finds out by itself.
	select {
	case loss := <-losses:
		if loss.Token != g.Token() {
			t.Errorf("%+v", loss)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody was told that the lock is lost")
	}
	if err := g.Unlock(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	for _, s := range []*declock.Session{other, holder} {
		again, err := s.Lock(ctx, l.At(0))
		if err != nil {
			t.Fatal(err)
		}
		if again.Token() <= g.Token() {
			t.Errorf("token %#x after %#x", again.Token(), g.Token())
		}
		if err := again.Unlock(); err != nil {
			t.Error(err)
		}
	}
}

// A process that is stopped is not dead on one machine: it keeps its lock, and goes on when it is woken.
func TestStoppedHolderKeepsItsLock(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve", dir).says("ready")
	holder := startChild(t, "hold", dir)
	holder.says("holds")
	holder.kill(syscall.SIGSTOP)
	c, err := declock.Open(context.Background(), "shm:killed", declock.WithDir(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Locks(context.Background(), "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	s := session(t, c)
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if g, err := s.Lock(ctx, l.At(0)); !errors.Is(err, lock.ErrCanceled) {
		t.Errorf("a lock that a stopped process holds: %v", err)
		g.Unlock()
	}
	holder.kill(syscall.SIGCONT)
	if err := holder.end(); err != nil {
		t.Errorf("the holder, woken: %v", err)
	}
	g, err := s.Lock(context.Background(), l.At(0))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// With a lease, a process that is stopped for longer is killed by the memory node, and its lock goes to
// the next waiter. What it would have written when it went on is never written: it does not go on.
func TestStoppedHolderIsKilledAfterItsLease(t *testing.T) {
	dir := t.TempDir()
	startChild(t, "serve-lease", dir).says("ready")
	holder := startChild(t, "hold", dir)
	holder.says("holds")
	waiter := startChild(t, "wait", dir)
	waiter.says("ready")
	holder.kill(syscall.SIGSTOP)
	began := time.Now()
	waiter.says("holds")
	t.Logf("granted %v after the stop, with a lease of 500 ms", time.Since(began))
	var exit *exec.ExitError
	if err := holder.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the stopped holder: %v", err)
	}
	if err := waiter.end(); err != nil {
		t.Errorf("the waiter: %v", err)
	}
}
