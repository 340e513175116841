package tcp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
)

// handshakeTimeout bounds the shaking of hands.
const handshakeTimeout = 5 * time.Second

// codes name the errors that a hello may be answered with.
var codes = map[code]error{
	codeFenced: fabric.ErrFenced, codeBehind: peer.ErrBehind, codeStale: fabric.ErrStaleEpoch, codeProtocol: ErrProtocol,
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

// A refusal is the answer of a peer that does not let this node in.
type refusal struct {
	err error
	reply
}

func (r *refusal) Error() string { return fmt.Sprintf("%v (the peer says: %s)", r.err, r.text) }
func (r *refusal) Unwrap() error { return r.err }

// final reports whether it is no use to try again.
func final(err error) bool {
	return peer.Fatal(err) || errors.Is(err, fabric.ErrStaleEpoch)
}

// dial connects to a member and says hello. With wakes the stream gets a wakeup of its own.
func dial(ctx context.Context, o *peer.Config, to peer.Callee, h hello, wakes bool) (*stream, reply, error) {
	ctx, cancel := context.WithTimeout(ctx, min(handshakeTimeout, o.DeadAfter))
	defer cancel()
	c, err := to.Dial(ctx)
	if err != nil {
		return nil, reply{}, err
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
		s.tls = tls.Client(conn, to.TLS(o.TLS))
		if err := s.tls.HandshakeContext(ctx); err != nil {
			return fail(peer.Broken("shaking hands", err))
		}
		if err := to.Accept(s.tls.ConnectionState().PeerCertificates[0]); err != nil {
			return fail(err)
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
	if err := s.settle(conn, o.DeadAfter, wakes); err != nil {
		return fail(err)
	}
	return s, r, nil
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
		return r, peer.Broken("shaking hands", err)
	}
	var answer [replySize]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return r, peer.Broken("shaking hands", err)
	}
	n, err := r.decode(&answer)
	if err != nil {
		return r, err
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(c, text); err != nil {
		return r, peer.Broken("shaking hands", err)
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
func (s *stream) settle(conn *switchConn, deadAfter time.Duration, wakes bool) (err error) {
	if s.sock, err = newSock(conn.Conn.(*net.TCPConn), deadAfter); err != nil {
		return err
	}
	if wakes {
		if s.wakeup, err = newWakeup(); err != nil {
			s.close()
			return err
		}
	}
	if conn.Conn = s.sock; s.tls != nil {
		s.cipher = &ciphertext{sock: s.sock}
		conn.Conn = s.cipher
	}
	return nil
}

// A guest is a connection that has sent its hello and is not admitted yet.
type guest struct {
	hello
	cert *x509.Certificate // nil without TLS
}

func (g *guest) caller() *peer.Caller {
	return &peer.Caller{ID: fabric.CNID(g.cn), From: member.Incarnation(g.from), To: member.Incarnation(g.to), Revision: g.revision, Cert: g.cert}
}

// An acceptor lets connections in.
type acceptor struct {
	o    *peer.Config
	door *peer.Door
	// admit answers a hello. If it returns a function, that takes over the stream
	// when the answer has been sent; called with nil, the stream is lost.
	admit func(g guest) (reply, func(*stream), error)
}

func newAcceptor(o *peer.Config, admit func(g guest) (reply, func(*stream), error)) (*acceptor, error) {
	d, err := peer.NewDoor(o, "connection")
	if err != nil {
		return nil, err
	}
	return &acceptor{o: o, door: d, admit: admit}, nil
}

func (a *acceptor) start() { a.door.Open(a.shake) }

// shake shakes hands with a node that has connected.
func (a *acceptor) shake(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(handshakeTimeout))
	conn := &switchConn{c}
	s := &stream{}
	var g guest
	if a.o.TLS != nil {
		s.tls = tls.Server(conn, a.o.TLS)
		if err := s.tls.Handshake(); err != nil {
			return peer.Broken("shaking hands", err)
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
	if err == nil {
		err = a.door.Known(c)
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
		err = peer.Denied(peer.MayCompute(g.cert))
	}
	if err == nil {
		r, take, err = a.admit(*g)
	}
	r.version = v
	return r, take, err
}
