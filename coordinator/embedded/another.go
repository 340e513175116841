//go:build noetcdserver && !shmonly

package embedded

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

	"github.com/declock/declock/fabric/member"
)

// anotherEnv names a program that is an etcd with the options, as JSON, in optionsEnv: it says "ready" and where, and ends when its standard input does.
const anotherEnv, optionsEnv = "DECLOCK_TEST_ETCD_PROGRAM", "DECLOCK_TEST_ETCD_OPTIONS"

// A Server is a running etcd of one member, in a process of its own: scripts/test looks for races in what uses an etcd, and compiles none for that.
type Server struct {
	cmd      *exec.Cmd
	until    io.Closer
	endpoint string
}

// Start starts the program, if one is named.
func Start(ctx context.Context, o Options) (*Server, error) {
	program := os.Getenv(anotherEnv)
	if program == "" {
		return nil, member.ErrLeftOut
	}
	options, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	s := &Server{cmd: exec.Command(program)}
	s.cmd.Env = append(os.Environ(), optionsEnv+"="+string(options))
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is not for it
	if s.until, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.cmd.Process.Kill() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if stop() {
		if at, ok := strings.CutPrefix(strings.TrimSpace(line), "ready "); ok {
			s.endpoint = at
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("etcd in another program: %q", line), ctx.Err(), s.Close())
}

// Endpoint returns the URL of the server, for clients on this machine.
func (s *Server) Endpoint() string { return s.endpoint }

// Close stops the server. Its data stay.
func (s *Server) Close() error { return errors.Join(s.until.Close(), s.cmd.Wait()) }
