package front

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"
)

// A shutdown whose context has ended closes connections beside what a Direct has under way, and does not wait for it.
func TestShutdownBesideDirect(t *testing.T) {
	begun, release, over := make(chan bool), make(chan bool), make(chan error, 1)
	a := &Acceptor{MaxConns: 1, Log: slog.New(slog.DiscardHandler), Begin: func(nc net.Conn) func() {
		return func() {
			d := DirectOf(nc)
			if err := d.Each(func() bool { close(begun); <-release; return false }); err == nil {
				t.Error("the connection was not closed")
			}
			over <- nc.Close()
		}
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = a.Serve(l, nil) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := make(chan error, 1)
	go func() { ended <- a.Shutdown(ctx) }()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("shutdown: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("shutdown waits for what is under way")
	}
	time.Sleep(10 * time.Millisecond) // the connection is being closed
	close(release)
	<-over
}
