package verbs

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/secure/securetest"
)

// controlOptions are those of a control service alone.
func controlOptions(t *testing.T, secret string) *Options {
	t.Helper()
	o := &Options{Secret: []byte(secret), Listen: "127.0.0.1:0", Members: coordinator.NewMemory(1), Insecure: true, Heartbeat: 50 * time.Millisecond, DeadAfter: time.Second}
	if err := o.check(); err != nil {
		t.Fatal(err)
	}
	return o
}

// startService starts a service that says its question again.
func startService(t *testing.T, o *Options) (addr string, ended chan *session) {
	t.Helper()
	v, err := listen(o)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan *session, 10)
	v.start(func(_ *session, kind string, body json.RawMessage) (any, error) {
		switch kind {
		case "fenced":
			return nil, fmt.Errorf("%w: you", fabric.ErrFenced)
		case "large":
			return strings.Repeat("x", maxFrame), nil
		}
		return body, nil
	}, func(s *session) { ended <- s })
	t.Cleanup(v.close)
	return v.Addr().String(), ended
}

func echo(_ *session, _ string, body json.RawMessage) (any, error) { return body, nil }

// connect dials and runs a session.
func connect(t *testing.T, addr string, o *Options) (*session, error) {
	t.Helper()
	s, err := dial(context.Background(), peer.Callee{Contact: peer.Contact{HostPort: addr}}, o)
	if err != nil {
		return nil, err
	}
	go s.run()
	t.Cleanup(func() { s.close(); <-s.done })
	return s, nil
}

func TestRequestsAreAnswered(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	addr, ended := startService(t, o)
	s, err := connect(t, addr, o)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			var got int
			if err := s.call(context.Background(), "echo", i, &got); err != nil || got != i {
				t.Errorf("asked %d: %d, %v", i, got, err)
			}
		})
	}
	all.Wait()
	if err := s.call(context.Background(), "fenced", 1, nil); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("an error of the peer: %v", err)
	}
	if err := s.call(context.Background(), "large", 1, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("an answer larger than a frame: %v", err)
	}
	if err := s.call(context.Background(), "echo", strings.Repeat("x", maxFrame), nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("a question larger than a frame: %v", err)
	}
	s.close()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Error("the service does not notice the end")
	}
	if err := s.call(context.Background(), "echo", 1, nil); !errors.Is(err, ErrLost) {
		t.Errorf("a call on an ended session: %v", err)
	}
}

func TestSecretsMustMatch(t *testing.T) {
	addr, _ := startService(t, controlOptions(t, "the secret of the cluster"))
	for _, secret := range []string{"another secret, as long", ""} {
		if _, err := connect(t, addr, controlOptions(t, secret)); !errors.Is(err, ErrAuth) {
			t.Errorf("with secret %q: %v", secret, err)
		}
	}
}

// A client that does not check the server's proof must not get in either.
func TestServerChecksTheProof(t *testing.T) {
	addr, _ := startService(t, controlOptions(t, "the secret of the cluster"))
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hello := make([]byte, helloSize)
	copy(hello, helloMagic)
	binary.LittleEndian.PutUint32(hello[len(helloMagic):], helloVersion)
	buf := make([]byte, helloSize+32)
	if _, err := conn.Write(hello); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, buf); err != nil {
		t.Fatal(err)
	}
	// The server's own proof, sent back, is not the client's.
	if _, err := conn.Write(buf[helloSize:]); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := conn.Read(buf); err == nil {
		t.Errorf("the server goes on: %d bytes", n)
	}
}

func TestOtherVersionsAndServicesAreNamed(t *testing.T) {
	for _, x := range []struct {
		hello string
		want  error
	}{
		{helloMagic + "\x02\x00\x00\x00" + strings.Repeat("n", nonceSize), ErrVersion},
		{"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n", ErrProtocol},
		{"", ErrLost},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, x.hello)
			_, _ = io.CopyN(io.Discard, conn, int64(helloSize))
			_ = conn.Close()
		}()
		if _, err := connect(t, l.Addr().String(), controlOptions(t, "the secret of the cluster")); !errors.Is(err, x.want) {
			t.Errorf("%.10q: %v, want %v", x.hello, err, x.want)
		}
		_ = l.Close()
	}
}

// meddler passes on what two sides say, and changes the n-th byte from the client.
func meddler(t *testing.T, to string, n int) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		a, err := l.Accept()
		if err != nil {
			return
		}
		b, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(a, b); _ = a.Close() }()
		buf := make([]byte, 1)
		for i := 0; ; i++ {
			if _, err := a.Read(buf); err != nil {
				break
			}
			if i == n {
				buf[0] ^= 4
			}
			if _, err := b.Write(buf); err != nil {
				break
			}
		}
		_ = b.Close()
	}()
	return l.Addr().String()
}

// A byte that was changed on the way ends the session, wherever it is.
func TestChangedFramesAreRefused(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	addr, _ := startService(t, o)
	greeting := helloSize + 32
	for _, at := range []int{helloSize - 1, helloSize + 3, greeting, greeting + 6, greeting + 30} {
		s, err := connect(t, meddler(t, addr, at), o)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			err = s.call(ctx, "echo", "a question", nil)
			cancel()
		}
		if err == nil {
			t.Errorf("byte %d was changed, and it was not noticed", at)
		}
	}
}

func TestSilentPeersAreGivenUp(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	addr, ended := startService(t, o)
	mute := *o
	mute.Heartbeat, mute.DeadAfter = time.Hour, 10*time.Hour
	if _, err := connect(t, addr, &mute); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	select {
	case <-ended:
		if d := time.Since(begin); d < o.DeadAfter-100*time.Millisecond {
			t.Errorf("given up after %v", d)
		}
	case <-time.After(10 * time.Second):
		t.Error("a silent peer is not given up")
	}
}

func TestPeersThatLiveAreKept(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	addr, ended := startService(t, o)
	s, err := connect(t, addr, o)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Error("given up")
	case <-time.After(2 * o.DeadAfter):
	}
	if err := s.call(context.Background(), "echo", 1, nil); err != nil {
		t.Error(err)
	}
}

// A member has a certificate of the cluster's authority, for what it does, and with the name that the coordinator has.
func TestCertificatesIdentifyNodes(t *testing.T) {
	a, stranger := securetest.New(t), securetest.New(t)
	o := controlOptions(t, "")
	o.TLS, o.Insecure = a.Config("host-7", peer.NameMN, "mn7.declock"), false
	addr, _ := startService(t, o)
	contact := peer.Contact{HostPort: addr, Name: "host-7"}.String()
	own := a.Config("host-8", peer.NameCN)
	anonymous := own.Clone()
	anonymous.Certificates = nil
	mixed := stranger.Config("host-8", peer.NameCN)
	mixed.RootCAs = a.Config("any").RootCAs // it knows the server, and the server does not know it
	for _, x := range []struct {
		name string
		cfg  *tls.Config
		to   peer.Callee
		want error // ErrLost: of a caller that the server refuses; the reason may be lost with the connection
	}{
		{"a compute node", own, peer.MemoryNode(7, contact), nil},
		{"a certificate for another memory node", own, peer.MemoryNode(8, contact), ErrAuth},
		{"a memory node in the place of a compute node", own, peer.ComputeNode(member.CN{ID: 7, Addr: contact}), ErrAuth},
		{"a certificate of another member", own, peer.MemoryNode(7, addr+"#host-9"), ErrAuth},
		{"a caller that is no compute node", a.Config("host-8", peer.NameMN), peer.MemoryNode(7, contact), ErrLost},
		{"a caller of another cluster", stranger.Config("host-8", peer.NameCN), peer.MemoryNode(7, contact), ErrAuth},
		{"a caller of another cluster's authority", mixed, peer.MemoryNode(7, contact), ErrLost},
		{"a caller without a certificate", anonymous, peer.MemoryNode(7, contact), ErrLost},
		{"a caller without TLS", nil, peer.MemoryNode(7, contact), ErrLost},
	} {
		co := *o
		co.TLS = x.cfg
		s, err := dial(context.Background(), x.to, &co)
		if err == nil {
			go s.run()
			err = s.call(context.Background(), "echo", 1, nil)
			s.close()
			<-s.done
		}
		if x.want == ErrLost && errors.Is(err, ErrAuth) {
			continue
		}
		if !errors.Is(err, x.want) || (err == nil) != (x.want == nil) {
			t.Errorf("%s: %v, want %v", x.name, err, x.want)
		}
	}
}

// A called node answers and does not ask: a memory node's certificate does not make a compute node.
func TestCalledNodesDoNotAsk(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	v, err := listen(o)
	if err != nil {
		t.Fatal(err)
	}
	v.start(func(s *session, _ string, body json.RawMessage) (any, error) {
		return nil, s.call(context.Background(), "link", body, nil)
	}, func(*session) {})
	t.Cleanup(v.close)
	s, err := connect(t, v.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.call(context.Background(), "call back", 1, nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("the called node asks for a link: %v", err)
	}
}

// A peer that asks and asks, and whose questions take long, does not make more than a few of them be worked on.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	o := controlOptions(t, "the secret of the cluster")
	o.DeadAfter = 20 * time.Second
	v, err := listen(o)
	if err != nil {
		t.Fatal(err)
	}
	var under, most atomic.Int32
	goOn := make(chan struct{})
	v.start(func(*session, string, json.RawMessage) (any, error) {
		n := under.Add(1)
		defer under.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-goOn
		return nil, nil
	}, func(*session) {})
	t.Cleanup(v.close)
	s, err := connect(t, v.Addr().String(), o)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 * maxRequests {
		all.Go(func() {
			if err := s.call(context.Background(), "wait", 1, nil); err != nil {
				t.Error(err)
			}
		})
	}
	for under.Load() < maxRequests {
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	all.Wait()
	if n := most.Load(); n > maxRequests {
		t.Errorf("%d requests at a time, want at most %d", n, maxRequests)
	}
}

// FuzzFrames feeds a session what an authenticated peer should not send.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"n":1,"kind":"echo","body":1}`))
	f.Add([]byte(`{"n":1,"re":true}`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		a, b := net.Pipe()
		o := controlOptions(t, "")
		s := newSession(a, o, echo)
		s.out, s.in = newHasher(nil), newHasher(nil)
		go func() { _, _ = io.Copy(io.Discard, b) }()
		go func() {
			h := newHasher(nil)
			frame := binary.LittleEndian.AppendUint32(nil, uint32(len(data)))
			_, _ = b.Write(append(append(frame, data...), bytes.Clone(h.sum(data))...))
			_ = b.Close()
		}()
		s.run()
	})
}
