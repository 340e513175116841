package front

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// sockets returns both ends of a connection, of which the first is direct.
func sockets(t *testing.T, network string) (d, other net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "socket")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if other, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	nc, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	d = directly(nc)
	if _, ok := d.(*direct); !ok {
		t.Fatalf("%T is not used directly", nc)
	}
	t.Cleanup(func() { d.Close(); other.Close() })
	return d, other
}

// What is read and written directly arrives whole and in order, also where the socket takes a part of it only, and beside long transfers.
func TestDirect(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		d, other := sockets(t, network)
		if err := d.(*direct).Conn.(interface{ SetWriteBuffer(int) error }).SetWriteBuffer(1 << 10); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := range 200 {
			want = append(want, bytes.Repeat([]byte{byte(i)}, 1+i*i*3%mostDirect)...)
		}
		want = append(want, make([]byte, 3*mostDirect)...)
		sent := make(chan error, 1)
		go func() {
			for rest, n := want, 1; len(rest) > 0; n = 2*n + 1 {
				if n > 2*mostDirect {
					n = 1
				}
				k, err := d.Write(rest[:min(n, len(rest))])
				if err != nil || k != min(n, len(rest)) {
					sent <- errors.Join(err, io.ErrShortWrite)
					d.Close()
					return
				}
				rest = rest[k:]
			}
			sent <- nil
		}()
		time.Sleep(10 * time.Millisecond) // the socket is full
		got := make([]byte, len(want))
		if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: what arrives differs, %v", network, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := other.Write(want)
			sent <- errors.Join(err, other.Close())
		}()
		if got, err := io.ReadAll(d); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: what is read differs, %v", network, err)
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
}

// Errors are those of package net.
func TestDirectErrors(t *testing.T) {
	b := make([]byte, 10)
	d, _ := sockets(t, "tcp")
	_ = d.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := d.Read(b); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("at the deadline: %d bytes, %v", n, err)
	}
	_ = d.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	var err error
	for err == nil {
		_, err = d.Write(make([]byte, mostDirect))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a write at the deadline: %v", err)
	}
	d.Close()
	if n, err := d.Read(b); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %d bytes, %v", n, err)
	}
	d, other := sockets(t, "tcp")
	_ = other.(*net.TCPConn).SetLinger(0)
	other.Close()
	if n, err := d.Read(b); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reset: %d bytes, %v", n, err)
	}
	if n, err := d.Write(b); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("a write to what was reset: %d bytes, %v", n, err)
	}
	var e net.Error
	if _, err := d.Write(b); !errors.As(err, &e) {
		t.Errorf("%v is not of package net", err)
	}
}
