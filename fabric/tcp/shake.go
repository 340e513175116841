//go:build linux

package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// shakeTimeout bounds the shaking of hands.
const shakeTimeout = 5 * time.Second

// codes name the errors that a hello may be answered with.
var codes = map[code]error{
	codeFenced: fabric.ErrFenced, codeBehind: errBehind, codeStale: fabric.ErrStaleEpoch, codeProtocol: ErrProtocol,
	codeVersion: ErrVersion, codeAuth: ErrAuth, codeClosed: fabric.ErrNodeDown,
}

func codeOf(err error) code {
	for c := codeFenced; c <= codeClosed; c++ {
		if errors.Is(err, codes[c]) {
			return c
		}
	}
	return codeClosed
}

// A refusal is how a peer answered a hello, if not with yes.
type refusal struct {
	err error
	reply
}

func (r *refusal) Error() string { return fmt.Sprintf("%v (the peer says: %s)", r.err, r.text) }
func (r *refusal) Unwrap() error { return r.err }

// final tells whether it is no use to try again.
func final(err error) bool {
	return errors.Is(err, fabric.ErrFenced) || errors.Is(err, fabric.ErrStaleEpoch) || errors.Is(err, ErrAuth) ||
		errors.Is(err, ErrVersion) || errors.Is(err, ErrProtocol)
}

// A callee is who is called: where he is, and what his certificate must say.
type callee struct {
	peer.Contact
	role string // the name of a role
	is   func(*x509.Certificate) error
}

// dial connects to a member and says hello. ringing tells whether the stream gets a bell of its own.
func dial(ctx context.Context, o *Options, to callee, h hello, ringing bool) (*stream, reply, error) {
	ctx, cancel := context.WithTimeout(ctx, min(shakeTimeout, o.DeadAfter))
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", to.HostPort)
	if err != nil {
		return nil, reply{}, fmt.Errorf("%w: %w", ErrLost, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	conn := &switchConn{c}
	s := &stream{}
	fail := func(err error) (*stream, reply, error) {
		_ = c.Close()
		return nil, reply{}, fmt.Errorf("connection to %s: %w", to.HostPort, err)
	}
	if o.TLS != nil {
		cfg := o.TLS.Clone()
		cfg.ServerName = to.role
		s.tls = tls.Client(conn, cfg)
		if err := s.tls.HandshakeContext(ctx); err != nil {
			return fail(authError(err))
		}
		cert := s.tls.ConnectionState().PeerCertificates[0]
		if err := errors.Join(to.is(cert), to.Owns(cert)); err != nil {
			return fail(denied(err))
		}
	}
	h.min, h.max = versionMin, versionMax
	r, err := s.greet(conn, &h)
	if err != nil {
		return fail(err)
	}
	if !stop() {
		return fail(fmt.Errorf("%w: %w", ErrLost, ctx.Err()))
	}
	if err := s.settle(conn, o.DeadAfter, ringing); err != nil {
		return fail(err)
	}
	return s, r, nil
}

// denied says that a certificate does not allow what was tried; nil if there is no reason.
func denied(why error) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrAuth, why)
}

// authError tells a certificate that was refused from a connection that broke.
func authError(err error) error {
	if peer.CertificateRefused(err) {
		return denied(err)
	}
	return fmt.Errorf("%w: shaking hands: %w (or TLS on one side only)", ErrLost, err)
}

// over returns what to read and write while hands are shaken.
func (s *stream) over(conn *switchConn) net.Conn {
	if s.tls != nil {
		return s.tls
	}
	return conn
}

// greet says hello and takes the answer.
func (s *stream) greet(conn *switchConn, h *hello) (r reply, err error) {
	c := s.over(conn)
	b := h.encode()
	if _, err := c.Write(b[:]); err != nil {
		return r, authError(err)
	}
	var answer [replySize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return r, authError(err)
	}
	n, err := r.decode(&answer)
	if err != nil {
		return r, err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return r, authError(err)
	}
	r.text = string(text)
	if r.code == codeOK {
		if r.version < h.min || r.version > h.max {
			return r, fmt.Errorf("%w: it speaks %d, here %d to %d", ErrVersion, r.version, h.min, h.max)
		}
		return r, nil
	}
	cause, ok := codes[r.code]
	if !ok {
		cause = ErrProtocol
	}
	return r, &refusal{cause, r}
}

// settle makes a sock of the connection, when hands are shaken.
func (s *stream) settle(conn *switchConn, deadAfter time.Duration, ringing bool) (err error) {
	if s.sock, err = newSock(conn.Conn.(*net.TCPConn), deadAfter); err != nil {
		return err
	}
	if ringing {
		if s.bell, err = newBell(); err != nil {
			s.close()
			return err
		}
	}
	conn.Conn = s.sock
	return nil
}

// A guest is a connection that wants in: it has said hello.
type guest struct {
	hello
	cert *x509.Certificate // nil without TLS
}

// An acceptor lets connections in.
type acceptor struct {
	o        *Options
	listener net.Listener
	// admit answers a hello. If it returns a function, that takes over the stream
	// when the answer has been sent; called with nil, the stream is lost.
	admit func(g guest) (reply, func(*stream), error)

	tasks sync.WaitGroup
	crowd peer.Crowd // of those that shake hands

	mu       sync.Mutex
	reported time.Time // the last time that somebody was reported
	untold   int       // who was not, since
}

func newAcceptor(o *Options, admit func(g guest) (reply, func(*stream), error)) (*acceptor, error) {
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return &acceptor{o: o, listener: l, admit: admit}, nil
}

func (a *acceptor) start() {
	a.tasks.Go(func() {
		for {
			c, err := a.listener.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				time.Sleep(10 * time.Millisecond) // no descriptors left, perhaps
				continue
			}
			if !a.crowd.Enter(c) {
				_ = c.Close()
				continue
			}
			a.tasks.Go(func() {
				err := a.shake(c)
				a.crowd.Leave(c)
				if err != nil {
					_ = c.Close()
				}
				if err != nil && !a.crowd.Closed() {
					a.report(fmt.Errorf("connection from %v: %w", c.RemoteAddr(), err))
				}
			})
		}
	})
}

// reportEvery bounds how often strangers are reported.
const reportEvery = 200 * time.Millisecond

// report tells of who was not let in: whoever knocks decides how often that happens.
func (a *acceptor) report(err error) {
	a.mu.Lock()
	if now := time.Now(); now.Sub(a.reported) < reportEvery {
		a.untold++
		a.mu.Unlock()
		return
	} else if a.untold > 0 {
		err = fmt.Errorf("%w (and %d more that were not let in)", err, a.untold)
		a.reported, a.untold = now, 0
	} else {
		a.reported = now
	}
	a.mu.Unlock()
	a.o.Report(err)
}

// shake shakes hands with who has connected.
func (a *acceptor) shake(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(shakeTimeout))
	conn := &switchConn{c}
	s := &stream{}
	var g guest
	if a.o.TLS != nil {
		s.tls = tls.Server(conn, a.o.TLS)
		if err := s.tls.Handshake(); err != nil {
			return authError(err)
		}
		g.cert = s.tls.ConnectionState().PeerCertificates[0]
	}
	var b [helloSize]byte
	if _, err := io.ReadFull(s.over(conn), b[:]); err != nil {
		return fmt.Errorf("%w: no hello: %w (or TLS on one side only)", ErrLost, err)
	}
	r, take, err := a.answer(&g, &b)
	if err != nil {
		r.code, r.text = codeOf(err), err.Error()
	}
	if _, e := s.over(conn).Write(r.encode()); err == nil && e != nil {
		err = fmt.Errorf("%w: %w", ErrLost, e)
	}
	if err == nil && !a.crowd.Leave(c) {
		err = fmt.Errorf("%w: too many connections shake hands", ErrLost)
	}
	if err == nil {
		_ = c.SetDeadline(time.Time{})
		err = s.settle(conn, a.o.DeadAfter, false)
	}
	if take == nil {
		return err
	}
	if err != nil {
		take(nil)
		return err
	}
	take(s)
	return nil
}

func (a *acceptor) answer(g *guest, b *[helloSize]byte) (r reply, take func(*stream), err error) {
	if err := g.decode(b); err != nil {
		return r, nil, err
	}
	v, err := g.version()
	if err == nil && g.cert != nil {
		err = denied(peer.MayCompute(g.cert))
	}
	if err == nil {
		r, take, err = a.admit(*g)
	}
	r.version = v
	return r, take, err
}

// close stops listening, and waits for who shakes hands.
func (a *acceptor) close() {
	_ = a.listener.Close()
	a.crowd.Close()
	a.tasks.Wait()
}
