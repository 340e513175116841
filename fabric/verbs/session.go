package verbs

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// The control protocol. Both sides begin with a hello:
//
//	+----------+---------+-----------+
//	| magic, 8 | version | nonce, 32 |
//	+----------+---------+-----------+
//
// then the server and, when it has checked that, the client prove that they know the
// secret: 32 bytes, HMAC-SHA256 over both nonces. What follows is frames, each with
// a MAC by a key of this connection and direction over its number and what it holds:
//
//	+-----------+---------------+---------+
//	| length, 4 | JSON (length) | MAC, 16 |
//	+-----------+---------------+---------+
//
// Without a secret (TLS, or Insecure) the key is empty.
const (
	helloMagic   = "DECLOCKV"
	helloVersion = 1
	helloSize    = len(helloMagic) + 4 + nonceSize
	nonceSize    = 32
	macSize      = 16
	maxFrame     = 64 << 10
	maxRequests  = 16 // of one session that are answered at a time

	helloTimeout = 5 * time.Second
)

// A frame is a request, or the answer to one. A frame of length 0 is a heartbeat.
type frame struct {
	N     uint64          `json:"n,omitempty"`    // number of the request
	Reply bool            `json:"re,omitempty"`   // to the request with that number
	Kind  string          `json:"kind,omitempty"` // of request
	Code  string          `json:"code,omitempty"` // of error; empty for success
	Text  string          `json:"text,omitempty"` // of error
	Body  json.RawMessage `json:"body,omitempty"`
}

// codes name the errors that a peer may answer with.
var codes = map[string]error{
	"fenced": fabric.ErrFenced, "down": fabric.ErrNodeDown, "epoch": fabric.ErrStaleEpoch,
	"auth": ErrAuth, "protocol": ErrProtocol, "lost": ErrLost, "error": ErrLost,
}

func codeOf(err error) string {
	for _, code := range []string{"fenced", "down", "epoch", "auth", "protocol", "lost"} {
		if errors.Is(err, codes[code]) {
			return code
		}
	}
	return "error"
}

// A handler answers requests. The answer is encoded as JSON.
type handler func(s *session, kind string, body json.RawMessage) (any, error)

// unasked is the handler of the calling side: the called node asks nothing.
func unasked(_ *session, kind string, _ json.RawMessage) (any, error) {
	return nil, fmt.Errorf("%w: %q is not asked here", ErrProtocol, kind)
}

// A session is one connection of the control protocol. The calling node asks.
type session struct {
	conn   net.Conn
	o      *Options
	cert   *x509.Certificate // of the peer; nil without TLS
	handle handler
	out    hasher
	in     hasher
	done   chan struct{} // closed when the session has ended
	tasks  sync.WaitGroup
	room   chan struct{} // a token for each request that is being answered

	writeMu sync.Mutex
	writes  []byte // what is being written

	mu     sync.Mutex
	calls  map[uint64]chan frame
	next   uint64
	err    error
	closed bool
}

// A hasher makes and checks the MACs of one direction.
type hasher struct {
	mac hash.Hash
	n   uint64
	num [8]byte
	out [sha256.Size]byte
}

func newHasher(key []byte) hasher { return hasher{mac: hmac.New(sha256.New, key)} }

// sum returns the MAC of the next frame. It is good until the next call.
func (h *hasher) sum(data []byte) []byte {
	h.mac.Reset()
	h.n++
	binary.LittleEndian.PutUint64(h.num[:], h.n)
	h.mac.Write(h.num[:])
	h.mac.Write(data)
	return h.mac.Sum(h.out[:0])[:macSize]
}

func prove(secret []byte, what string, nonces []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(what))
	m.Write(nonces)
	return m.Sum(nil)
}

// dial opens a session as its client.
func dial(ctx context.Context, to peer.Callee, o *Options) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := to.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if o.TLS != nil {
		conn = tls.Client(conn, to.TLS(o.TLS))
	}
	s := newSession(conn, o, unasked)
	err = s.greet(true)
	if err == nil && s.cert != nil {
		err = to.Accept(s.cert)
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("control connection to %s: %w", to.HostPort, err)
	}
	return s, nil
}

func newSession(conn net.Conn, o *Options, h handler) *session {
	return &session{conn: conn, o: o, handle: h, done: make(chan struct{}), room: make(chan struct{}, maxRequests), calls: map[uint64]chan frame{}}
}

// greet exchanges hellos and proofs, and makes the keys.
func (s *session) greet(client bool) error {
	_ = s.conn.SetDeadline(time.Now().Add(helloTimeout))
	if err := s.shake(); err != nil {
		return err
	}
	var own, other [helloSize]byte
	copy(own[:], helloMagic)
	binary.LittleEndian.PutUint32(own[len(helloMagic):], helloVersion)
	if _, err := rand.Read(own[helloSize-nonceSize:]); err != nil {
		return err
	}
	if _, err := s.conn.Write(own[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	if _, err := io.ReadFull(s.conn, other[:]); err != nil {
		return peer.Broken("no hello", err) // a client hears only now that its certificate is not accepted
	}
	if string(other[:len(helloMagic)]) != helloMagic {
		return fmt.Errorf("%w: it is not a control service of DecLock's verbs fabric (or TLS on one side only)", ErrProtocol)
	}
	if v := binary.LittleEndian.Uint32(other[len(helloMagic):]); v != helloVersion {
		return fmt.Errorf("%w: %d, here %d", ErrVersion, v, helloVersion)
	}
	first, second := own[helloSize-nonceSize:], other[helloSize-nonceSize:]
	if !client {
		first, second = second, first
	}
	nonces := append(append([]byte(nil), first...), second...)
	if err := s.authenticate(client, nonces); err != nil {
		return err
	}
	toServer, toClient := prove(s.o.Secret, "frames to the server", nonces), prove(s.o.Secret, "frames to the client", nonces)
	if !client {
		toServer, toClient = toClient, toServer
	}
	s.out, s.in = newHasher(toServer), newHasher(toClient)
	return s.conn.SetDeadline(time.Time{})
}

// shake shakes hands, with TLS.
func (s *session) shake() error {
	conn, ok := s.conn.(*tls.Conn)
	if !ok {
		return nil
	}
	if err := conn.Handshake(); err != nil {
		return peer.Broken("shaking hands", err)
	}
	s.cert = conn.ConnectionState().PeerCertificates[0]
	return nil
}

// authenticate is the exchange of proofs: the server's first, so that a client
// learns whether it has reached its cluster before it proves anything.
func (s *session) authenticate(client bool, nonces []byte) error {
	server, proof := prove(s.o.Secret, "server", nonces), prove(s.o.Secret, "client", nonces)
	expect := func(want []byte) error {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(s.conn, got); err != nil {
			return fmt.Errorf("%w: the peer hung up: is the secret the same? (%w)", ErrAuth, err)
		}
		if subtle.ConstantTimeCompare(got, want) != 1 {
			return fmt.Errorf("%w: the peer has another secret, or one side has none", ErrAuth)
		}
		return nil
	}
	if client {
		if err := expect(server); err != nil {
			return err
		}
		_, err := s.conn.Write(proof)
		return err
	}
	if _, err := s.conn.Write(server); err != nil {
		return err
	}
	return expect(proof)
}

// run serves the session until it ends.
func (s *session) run() {
	stop := make(chan struct{})
	var beat sync.WaitGroup
	beat.Go(func() {
		t := time.NewTicker(s.o.Heartbeat)
		defer t.Stop()
		for {
			select {
			case <-stop:
				return
			case <-t.C:
				if s.put(nil) != nil {
					return
				}
			}
		}
	})
	err := s.read()
	_ = s.conn.Close()
	close(stop)
	beat.Wait()
	s.end(err)
	s.tasks.Wait()
	close(s.done)
}

func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.err == nil {
		s.err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	for n, ch := range s.calls {
		close(ch)
		delete(s.calls, n)
	}
}

// close ends the session; run returns soon.
func (s *session) close() { _ = s.conn.Close() }

// read handles frames until there are no more.
func (s *session) read() error {
	head, buf := make([]byte, 4), make([]byte, macSize)
	for {
		_ = s.conn.SetReadDeadline(time.Now().Add(s.o.DeadAfter))
		if _, err := io.ReadFull(s.conn, head); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(head)
		if n > maxFrame {
			return fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, n)
		}
		if cap(buf) < int(n)+macSize {
			buf = make([]byte, int(n)+macSize)
		}
		data, mac := buf[:n], buf[n:int(n)+macSize]
		if _, err := io.ReadFull(s.conn, buf[:int(n)+macSize]); err != nil {
			return err
		}
		if !hmac.Equal(mac, s.in.sum(data)) {
			return fmt.Errorf("%w: a frame was changed on the way", ErrAuth)
		}
		if n == 0 {
			continue
		}
		var f frame
		if err := json.Unmarshal(data, &f); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		s.take(f)
	}
}

func (s *session) take(f frame) {
	switch {
	case f.Reply:
		s.mu.Lock()
		ch := s.calls[f.N]
		delete(s.calls, f.N)
		s.mu.Unlock()
		if ch != nil {
			ch <- f
		}
	case f.Kind != "":
		s.room <- struct{}{} // nothing more is read from a peer that asks and asks
		s.tasks.Go(func() {
			s.answer(f)
			<-s.room
		})
	}
}

func (s *session) answer(f frame) {
	re := frame{N: f.N, Reply: true}
	body, err := s.handle(s, f.Kind, f.Body)
	if err == nil {
		re.Body, err = json.Marshal(body)
	}
	if err == nil {
		err = s.write(&re)
	}
	if err != nil {
		// If this fails the session is at its end, and the asker knows.
		_ = s.write(&frame{N: f.N, Reply: true, Code: codeOf(err), Text: err.Error()})
	}
}

func (s *session) write(f *frame) error {
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if len(data) > maxFrame {
		return fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, len(data))
	}
	return s.put(data)
}

// put writes a frame. An empty one is a heartbeat.
func (s *session) put(data []byte) error {
	s.writeMu.Lock()
	defer s.writeMu.Unlock()
	s.writes = binary.LittleEndian.AppendUint32(s.writes[:0], uint32(len(data)))
	s.writes = append(append(s.writes, data...), s.out.sum(data)...)
	_ = s.conn.SetWriteDeadline(time.Now().Add(s.o.DeadAfter))
	_, err := s.conn.Write(s.writes)
	return err
}

// call asks and waits for the answer, which it decodes into reply.
func (s *session) call(ctx context.Context, kind string, body, reply any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ch := make(chan frame, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return s.err
	}
	s.next++
	n := s.next
	s.calls[n] = ch
	s.mu.Unlock()
	if err := s.write(&frame{N: n, Kind: kind, Body: data}); errors.Is(err, ErrProtocol) {
		s.forget(n)
		return err // too large: nothing was written
	} else if err != nil {
		s.close()
	}
	select {
	case f, ok := <-ch:
		switch {
		case !ok:
			return s.err
		case f.Code != "":
			return fmt.Errorf("%w (the peer says: %s)", cmp.Or(codes[f.Code], ErrLost), f.Text)
		case reply != nil:
			return json.Unmarshal(f.Body, reply)
		}
		return nil
	case <-ctx.Done():
		s.forget(n)
		return fmt.Errorf("%w: no answer to %s: %w", ErrLost, kind, ctx.Err())
	}
}

// forget notes that an answer is not waited for any more.
func (s *session) forget(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.calls, n)
}

// A service accepts sessions.
type service struct {
	*peer.Door
	o      *Options
	handle handler
	ended  func(s *session) // after a session has ended

	mu       sync.Mutex
	sessions map[*session]bool
	closed   bool
}

// maxSessions bounds the connections of a service: a compute node has
// at most two to another node. Those that are not authenticated come on top.
const maxSessions = 4*int(fabric.MaxCN) + peer.MaxStrangers

func listen(o *Options) (*service, error) {
	c := o.config()
	d, err := peer.NewDoor(&c, "control connection")
	if err != nil {
		return nil, err
	}
	return &service{Door: d, o: o, sessions: map[*session]bool{}}, nil
}

// start begins to accept.
func (v *service) start(h handler, ended func(*session)) {
	v.handle, v.ended = h, ended
	v.Open(v.serve)
}

func (v *service) add(s *session) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || len(v.sessions) >= maxSessions {
		return false
	}
	v.sessions[s] = true
	return true
}

// serve serves a connection until it ends. It returns an error if the connection was not let in.
func (v *service) serve(raw net.Conn) error {
	conn := raw
	if v.o.TLS != nil {
		conn = tls.Server(raw, v.o.TLS)
	}
	s := newSession(conn, v.o, v.handle)
	if !v.add(s) {
		return raw.Close()
	}
	defer func() {
		v.mu.Lock()
		delete(v.sessions, s)
		v.mu.Unlock()
	}()
	err := s.greet(false)
	if err == nil {
		err = v.Known(raw)
	}
	if err == nil && s.cert != nil {
		err = peer.Denied(peer.MayCompute(s.cert)) // memory nodes call no node
	}
	if err != nil {
		return err
	}
	s.run()
	v.ended(s)
	return nil
}

// close ends the service and its sessions, and waits for them.
func (v *service) close() {
	v.mu.Lock()
	v.closed = true
	for s := range v.sessions {
		s.close()
	}
	v.mu.Unlock()
	v.Close()
}
