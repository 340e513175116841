package processtest

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

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

// A memory node whose process was killed comes back with its memory: its users go on.
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
	// No message reaches the memory node: the agent finds out by itself.
	select {
	case loss := <-losses:
		if loss.Token != g.Token() {
			t.Errorf("%+v", loss)
		}
	case <-time.After(time.Minute):
		t.Fatal("no session was notified that the lock is lost")
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
