package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
)

// A Handler does what requests ask for.
type Handler interface {
	Status() *Status
	// Replay does a replay until it is over or ctx ends; both give a result. An error is
	// for a replay that could not begin.
	Replay(ctx context.Context, spec *Replay, job *Job) (*Result, error)
}

// A Server serves requests on a socket.
type Server struct {
	h      Handler
	ctx    context.Context
	cancel context.CancelFunc
	ln     net.Listener
	path   string
	slots  chan struct{}
	busy   sync.WaitGroup
}

// NewServer returns a server of a handler.
func NewServer(h Handler) *Server {
	s := &Server{h: h, slots: make(chan struct{}, maxConns)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Listen serves on a socket file, which it creates with mode 0600. What an
// earlier owner of the path left is replaced: the caller owns the path.
func (s *Server) Listen(path string) error {
	// Under another name first: a socket with the right name always answers.
	temp := path + newSuffix
	_ = os.Remove(temp)
	short, done, err := shortPath(temp)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer done()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
	if err != nil {
		return fmt.Errorf("control: listen at %s: %w", path, err)
	}
	ln.SetUnlinkOnClose(false) // the name is not the one it was made with
	if err := errors.Join(os.Chmod(temp, 0o600), os.Rename(temp, path)); err != nil {
		_ = ln.Close()
		_ = os.Remove(temp)
		return fmt.Errorf("control: %w", err)
	}
	s.ln, s.path = ln, path
	s.busy.Add(1)
	go s.accept()
	return nil
}

const newSuffix = ".new"

func (s *Server) accept() {
	defer s.busy.Done()
	for {
		c, err := s.ln.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors: some will be closed.
			select {
			case <-time.After(50 * time.Millisecond):
			case <-s.ctx.Done():
				return
			}
			continue
		}
		select {
		case s.slots <- struct{}{}:
			s.busy.Add(1)
			go func() {
				defer s.busy.Done()
				defer func() { <-s.slots }()
				s.Serve(c)
			}()
		default:
			_ = newLines(c).write(&Reply{Version: Version, Type: TypeError, Error: &Failure{Code: exit.Busy,
				Message: fmt.Sprintf("control: the compute node has %d connections already", maxConns)}})
			_ = c.Close()
		}
	}
}

// Close cancels what is under way, waits for it, and removes the socket.
func (s *Server) Close() {
	s.cancel()
	if s.ln != nil {
		_ = os.Remove(s.path)
		_ = s.ln.Close()
	}
	s.busy.Wait()
}

// requestTimeout is how long a connection may be silent before its request.
const requestTimeout = 10 * time.Second

// Serve serves one connection until its end, and closes it.
func (s *Server) Serve(c net.Conn) {
	defer c.Close()
	l := newLines(c)
	var r Request
	_ = c.SetReadDeadline(time.Now().Add(requestTimeout))
	if err := l.read(&r); err != nil {
		if !errors.Is(err, ErrClosed) {
			_ = l.write(&Reply{Version: Version, Type: TypeError, Error: FailureOf(err)})
		}
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	reply, err := s.answer(l, &r)
	if err != nil {
		reply = &Reply{Type: TypeError, Error: FailureOf(err)}
	}
	reply.Version = Version
	_ = l.write(reply) // a caller that has gone needs no answer
}

func (s *Server) answer(l *lines, r *Request) (*Reply, error) {
	switch {
	case r.Version != Version:
		return nil, exit.Errorf(exit.Mismatch, "control: the command speaks version %d, this daemon %d: use those of one release", r.Version, Version)
	case r.Op == OpStatus:
		return &Reply{Type: TypeStatus, Status: s.h.Status()}, nil
	case r.Op == OpReplay && r.Replay != nil:
		return s.replay(l, r.Replay)
	}
	return nil, exit.Errorf(exit.Mismatch, "control: unknown request %q", r.Op)
}

func (s *Server) replay(l *lines, spec *Replay) (*Reply, error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	j := &Job{l: l, start: make(chan struct{}, 1)}
	go func() { // ends with the connection
		defer cancel()
		for {
			var r Request
			if err := l.read(&r); err != nil || r.Op == OpCancel || r.Version != Version {
				return
			}
			if r.Op == OpStart {
				select {
				case j.start <- struct{}{}:
				default: // a second start means nothing
				}
			}
		}
	}()
	res, err := s.h.Replay(ctx, spec, j)
	if err != nil {
		return nil, err
	}
	return &Reply{Type: TypeResult, Result: res}, nil
}

// A Job is a replay's connection to the command that asked for it.
type Job struct {
	l     *lines
	start chan struct{}
}

// Warming reports how far the replay is before it measures.
func (j *Job) Warming(p Progress) { j.send(TypeWarming, p) }

// Progress reports how far the replay is.
func (j *Job) Progress(p Progress) { j.send(TypeProgress, p) }

// send may fail: then the connection is gone, and its reader cancels the replay.
func (j *Job) send(what string, p Progress) {
	_ = j.l.write(&Reply{Version: Version, Type: what, Progress: &p})
}

// Ready reports that everything is prepared, and waits for start. It returns false if ctx ends before.
func (j *Job) Ready(ctx context.Context, p Progress) bool {
	j.send(TypeReady, p)
	select {
	case <-j.start:
		return true
	case <-ctx.Done():
		return false
	}
}
