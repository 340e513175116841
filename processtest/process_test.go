// Package processtest tests the library in several processes, which are killed and stopped. It uses the public interface only.
package processtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/mn"
)

// Tests start this binary again as a child: ROLE DIR.
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

// child plays a role until its standard input ends.
func child(role, dir string) error {
	o := shm.Options{Name: "killed", Dir: dir, Size: 64 << 20, Sparse: true, Keep: true}
	switch role {
	case "serve":
		return serve(o)
	case "serve-lease":
		o.Lease = 500 * time.Millisecond
		return serve(o)
	case "serve-without-keep":
		o.Keep = false // its memory does not outlive its process
		return serve(o)
	case "go-on":
		return goOn(dir)
	case "put":
		return put(dir)
	}
	return hold(role, dir)
}

// serve is a memory node.
func serve(o shm.Options) error {
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

// hold acquires the lock and holds it; in the role idle it does not.
func hold(role, dir string) error {
	ctx := context.Background()
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
	if role == "holdname" {
		names, failed := c.Names(ctx, "names", 0)
		if failed != nil {
			return failed
		}
		if err := errors.Join(err, g.Unlock()); err != nil {
			return err
		}
		g, err = names.Lock(ctx, "orders/17")
	}
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

func session(t *testing.T, c *declock.Cluster) *declock.Session {
	t.Helper()
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	return s
}
