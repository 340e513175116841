package peertest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Process is a child of a test: the test's program again, with more in its environment, by which its TestMain knows its role.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string
	gone  bool
}

// patience is how long a child may take for a line: it may have to wait for processors.
const patience = 2 * time.Minute

// StartProcess starts a child. It is killed at the end of the test.
func StartProcess(t testing.TB, env ...string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	t.Cleanup(p.Kill)
	return p
}

// Line returns the next line that the child prints, which must begin with a word; "" is any.
func (p *Process) Line(word string) string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok || !strings.HasPrefix(line, word) {
			p.t.Fatalf("the child says %q, want %q", line, word)
		}
		return line
	case <-time.After(patience):
		p.t.Fatalf("the child does not say %q", word)
	}
	return ""
}

// Signal sends the child a signal.
func (p *Process) Signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Errorf("signal %v: %v", s, err)
	}
}

// Kill ends the child as a crash would.
func (p *Process) Kill() {
	if !p.gone {
		p.gone = true
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

// Finish closes the child's standard input, and waits for its end.
func (p *Process) Finish() {
	p.t.Helper()
	p.gone = true
	_ = p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("child: %v", err)
	}
}
