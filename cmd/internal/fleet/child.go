package fleet

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
)

const (
	// startTimeout is how long a child may take to become ready: zeroing much memory takes seconds.
	startTimeout = 2 * time.Minute
	// stopTimeout is how long a child may take to leave before it is killed.
	stopTimeout = 15 * time.Second
	// keptStderr bounds what is kept of a child's messages.
	keptStderr = 8 << 10
)

// A Child is a process of this executable.
type Child struct {
	Name  string
	Ready map[string]string // of its ready line: key=value
	cmd   *exec.Cmd
	stdin io.Closer // the write end of its standard input
	said  *tail
	done  chan struct{} // closed when it has ended
	err   error         // why; read it after done

	mu      sync.Mutex
	stopped bool // by us
}

// Start starts this executable as a daemon, and waits for its ready line. messages gets what it writes
// to standard error later, line by line, with its name before.
func Start(ctx context.Context, name string, args []string, messages io.Writer) (*Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find this program, to start %s: %w", name, err)
	}
	c := &Child{Name: name, cmd: exec.Command(self, args...), said: new(tail), done: make(chan struct{})}
	c.cmd.Stderr = c.said
	if os.Getenv("GOGC") == "" {
		// The daemons allocate next to nothing on their hot paths: what there is to collect can wait.
		c.cmd.Env = append(os.Environ(), "GOGC=400")
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c.cmd.Stdout = in
	err = c.cmd.Start()
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		c.err = c.cmd.Wait()
		_ = out.Close()
		close(c.done)
	}()
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(out).ReadString('\n')
		line <- text
	}()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	select {
	case text := <-line:
		if ready, ok := parseReady(text); ok {
			c.Ready = ready
			if node := ready["node"]; node != "" { // what others call it
				c.Name = strings.TrimRight(c.Name, " 0123456789") + " " + node
			}
			c.said.pass(c.Name, messages)
			return c, nil
		}
		<-c.done // it has ended, or closed its output: then it is about to
		return nil, c.failure("did not start")
	case <-ctx.Done():
		c.Stop()
		return nil, ctx.Err()
	case <-timeout.C:
		c.Stop()
		return nil, fmt.Errorf("%s is not ready after %v", name, startTimeout)
	}
}

// parseReady reads "ready key=value key="quoted value" ...".
func parseReady(line string) (map[string]string, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if !ok {
		return nil, false
	}
	ready := map[string]string{}
	for rest != "" {
		key, after, ok := strings.Cut(rest, "=")
		if !ok {
			return nil, false
		}
		var value string
		if q, quoted := strings.CutPrefix(after, `"`); quoted {
			value, rest, _ = strings.Cut(q, `"`)
		} else {
			value, rest, _ = strings.Cut(after, " ")
		}
		ready[key] = value
		rest = strings.TrimSpace(rest)
	}
	return ready, true
}

// failure is the error of a child that has ended.
func (c *Child) failure(what string) error {
	code := exit.Other
	var e *exec.ExitError
	if errors.As(c.err, &e) {
		if e.ExitCode() > 0 {
			code = exit.Code(e.ExitCode())
		} else if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() && s.Signal() == syscall.SIGINT {
			code = exit.Interrupted // Ctrl-C reaches the whole group, and may reach a child before it listens
		}
	}
	why := c.said.last()
	if why == "" {
		why = "it said nothing"
		if c.err != nil {
			why = c.err.Error()
		}
	}
	return exit.Errorf(code, "%s %s: %s", c.Name, what, why)
}

// Pid returns the process's number.
func (c *Child) Pid() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Died returns how the child ended, if it did so without being asked to.
func (c *Child) Died() error {
	select {
	case <-c.done:
	default:
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	how := "it ended"
	if c.err != nil {
		how = c.err.Error()
	}
	return exit.Errorf(exit.NodeLost, "%s (process %d) ended unexpectedly: %s", c.Name, c.Pid(), how)
}

// Stop asks the child to leave, and kills it if it does not in time. It returns when it has ended.
func (c *Child) Stop() {
	c.mu.Lock()
	if !c.stopped {
		select {
		case <-c.done: // it ended before
		default:
			c.stopped = true
		}
	}
	c.mu.Unlock()
	_ = c.stdin.Close()
	_ = c.cmd.Process.Signal(syscall.SIGCONT) // a stopped process leaves too
	select {
	case <-c.done:
	case <-time.After(stopTimeout):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// A tail passes lines on with a name before them, and keeps the end of what was written.
type tail struct {
	name string

	mu   sync.Mutex
	to   io.Writer // nil: none
	kept []byte
	line []byte // not ended yet
}

// pass makes lines go to w from now on, with a name before them.
func (t *tail) pass(name string, w io.Writer) {
	t.mu.Lock()
	t.name, t.to = name, w
	t.mu.Unlock()
}

// Write implements io.Writer. Lines go out whole.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	if n := len(t.kept) - keptStderr; n > 0 {
		t.kept = append(t.kept[:0], t.kept[n:]...)
	}
	t.line = append(t.line, p...)
	for {
		i := bytes.IndexByte(t.line, '\n')
		if i < 0 {
			break
		}
		if t.to != nil {
			fmt.Fprintf(t.to, "%s: %s\n", t.name, t.line[:i])
		}
		t.line = t.line[i+1:]
	}
	return len(p), nil
}

// last returns the end of what was written, without the program's name.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.kept))
	_, after, ok := strings.Cut(text, ": ")
	if ok && strings.HasPrefix(text, "declock") {
		text = after
	}
	return text
}
