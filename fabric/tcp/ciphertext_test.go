package tcp

import (
	"net"
	"testing"
	"time"
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
