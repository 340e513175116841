package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/fabric/internal/peer"
	"github.com/declock/declock/internal/secure/securetest"
)

// What TLS reads from does not look again behind a read that has taken all that there was, once; and does if it must.
func TestCiphertextLooksOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSock(near.(*net.TCPConn), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	st := &stream{sock: s, cipher: &ciphertext{sock: s}}
	var b [4]byte
	read := func() string {
		n, err := st.cipher.Read(b[:])
		if err != nil && !isAgain(err) {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	send := func(text string) {
		if _, err := far.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		for ready := false; !ready; {
			ready, _ = s.parkInKernel(-1)
		}
	}
	want := func(is, want, why string) {
		t.Helper()
		if is != want {
			t.Errorf("read %q, want %q: %s", is, want, why)
		}
	}
	send("ab")
	want(read(), "ab", "all that there is")
	send("cd")
	want(read(), "", "it had taken all")
	want(read(), "cd", "it looks again")
	send("ef")
	st.refresh()
	want(read(), "ef", "the reader does not wait for the socket")
	st.refresh()
	send("ghijklm")
	want(read(), "ghij", "there is more")
	want(read(), "klm", "it was not all")
}

// A stream with TLS reads all records that have come at once, and what it writes goes to the socket at once, in however many records.
func TestTLSGathers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	cfg := securetest.New(t).Config("all", peer.NameMN, peer.NameCN)
	cfg.InsecureSkipVerify = true // it is the stream that is tested
	conn := &switchConn{accepted}
	st, far := &stream{tls: tls.Server(conn, cfg)}, tls.Client(dialled, cfg)
	shaken := make(chan error, 1)
	go func() { shaken <- far.Handshake() }()
	if err := st.tls.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	if err := st.settle(conn, time.Minute, false); err != nil {
		t.Fatal(err)
	}
	defer st.close()

	for _, text := range []string{"one ", "two ", "three"} {
		if _, err := far.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(20 * time.Millisecond) // the loopback has all
	var b [64]byte
	if n, err := st.read(b[:]); err != nil || string(b[:n]) != "one two three" {
		t.Errorf("read %q, %v; want all records", b[:n], err)
	}
	if n, err := st.read(b[:]); n != 0 || !isAgain(err) {
		t.Errorf("read %q, %v behind them", b[:n], err)
	}

	large := strings.Repeat("0123456789abcdef", 8<<10)
	if err := st.write([]byte(large)); err != nil {
		t.Fatal(err)
	}
	if len(st.cipher.gathered) != 0 || cap(st.cipher.gathered) < len(large) {
		t.Errorf("%d bytes wait, of %d that were gathered", len(st.cipher.gathered), cap(st.cipher.gathered))
	}
	done := make(chan string)
	go func() {
		got := make([]byte, len(large))
		_, _ = io.ReadFull(far, got)
		done <- string(got)
	}()
	for got := ""; got == ""; {
		select {
		case got = <-done:
			if got != large {
				t.Error("what was written in several records is not what has come")
			}
		default:
			_, _ = st.flush()
		}
	}
}
