package memcached

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/internal/secure/securetest"
)

// A connection above the limit is told so and closed; when another ends, there is room again.
func TestTooManyConnections(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{MaxConns: 2})
	first, second := dial(t, address), dial(t, address)
	first.want("version\r\n", "VERSION 1.6.18\r\n")
	second.want("version\r\n", "VERSION 1.6.18\r\n")
	third := dial(t, address)
	third.want("", "ERROR Too many open connections\r\n")
	if !third.ended() {
		t.Error("it is not closed")
	}
	second.Close()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c := dial(t, address)
		if c.line("version\r\n") == "VERSION 1.6.18\r\n" {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("no room again")
		}
	}
}

// Clients that stop in the middle of a request, or do not read answers, keep no other from being served, with fewer sessions than there are of them.
func TestStuckClients(t *testing.T) {
	_, address := startServer(t, openCluster(t, declock.WithSessions(2)), Options{})
	good := dial(t, address)
	value := strings.Repeat("v", 500_000)
	good.want("set big 0 0 500000\r\n"+value+"\r\n", "STORED\r\n")
	for range 4 {
		c := dial(t, address)
		c.send("set half 0 0 1000000\r\nabc")
		d := dial(t, address)
		d.send(strings.Repeat("get big big big\r\nget big\r\n", 20)) // more than sockets hold
		e := dial(t, address)
		e.send("get ")
	}
	for i := range 50 {
		if i%10 == 0 {
			good = dial(t, address)
			_ = good.SetDeadline(time.Now().Add(20 * time.Second)) // with sessions that do not come back it would wait for ever
		}
		good.want(fmt.Sprintf("set k%d 0 0 1\r\n1\r\nget k%d\r\n", i, i), fmt.Sprintf("STORED\r\nVALUE k%d 0 1\r\n1\r\nEND\r\n", i))
	}
}

// What a client announces and does not send takes no memory, and a line without end closes the connection.
func TestHostileClients(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 50 {
		dial(t, address).send("set k 0 0 1000000\r\nx")
	}
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 10<<20 {
		t.Errorf("50 clients that announce 1 MB take %d B", grown)
	}
	c := dial(t, address)
	_, _ = c.Write(bytes.Repeat([]byte("x"), 3*shortLine))
	if _, err := c.r.ReadByte(); err == nil {
		t.Error("a line without end is answered")
	}
	d := dial(t, address)
	d.send("get " + strings.Repeat("k ", 100_000) + "\r\n") // many keys are not
	d.want("", "END\r\n")
}

// Pipelined requests that arrive in pieces of any size are answered in order.
func TestPieces(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	var requests, answers strings.Builder
	for i := range 20 {
		value := strings.Repeat("v", i*331)
		fmt.Fprintf(&requests, "set key%d 0 0 %d\r\n%s\r\nget key%d nokey\r\nms m%d %d c\r\n%s\r\nmg m%d v\r\n", i, len(value), value, i, i, len(value), value, i)
		fmt.Fprintf(&answers, "STORED\r\nVALUE key%d 0 %d\r\n%s\r\nEND\r\n", i, len(value), value)
		answers.WriteString("HD c")
		answers.WriteString(fmt.Sprintf("*VA %d\r\n%s\r\n", len(value), value))
	}
	for _, piece := range []int{1, 7, 100, 2048, 1 << 20} {
		c := dial(t, address)
		go func() {
			text := requests.String()
			for len(text) > 0 {
				n := min(piece, len(text))
				if _, err := c.Write([]byte(text[:n])); err != nil {
					return
				}
				text = text[n:]
			}
		}()
		for part := range strings.SplitSeq(answers.String(), "*") {
			c.want("", part)
			if strings.HasSuffix(part, "HD c") {
				if _, err := c.r.ReadString('\n'); err != nil { // the unique
					t.Fatal(err)
				}
			}
		}
		c.Close()
	}
}

// A shutdown lets what has arrived be answered.
func TestShutdownDrains(t *testing.T) {
	cluster := openCluster(t)
	s, err := New(Options{IdleTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Attach(cluster, declock.StoreConfig{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	idle, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	if _, err := nc.Write([]byte("set k 0 0 1\r\n1\r\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 100)
	if n, err := nc.Read(b); string(b[:n]) != "STORED\r\n" {
		t.Fatalf("%q, %v", b[:n], err)
	}
	// What has arrived is more than a connection reads at a time.
	requests := strings.Repeat("get k\r\n", 2000)
	if _, err := io.WriteString(nc, requests); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	over := make(chan error)
	go func() { over <- s.Shutdown(ctx) }()
	answers, err := io.ReadAll(nc)
	if n := strings.Count(string(answers), "VALUE k 0 1\r\n1\r\nEND\r\n"); n != 2000 || err != nil {
		t.Errorf("%d answers to 2000 requests that had arrived, %v", n, err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if n, err := idle.Read(b); n != 0 || err == nil {
		t.Errorf("after the shutdown: %q, %v", b[:n], err)
	}
	if n := s.counted.idled.Load(); n != 0 {
		t.Errorf("%d connections count as idle for a minute", n)
	}
	if s.Serve(l) != ErrServerClosed {
		t.Error("a server that was shut down serves")
	}
}

// Without a cluster requests are answered with an error, and connections stay open for when there is one again.
func TestWithoutCluster(t *testing.T) {
	cluster := openCluster(t)
	s, address := startServer(t, cluster, Options{})
	c := dial(t, address)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	s.Detach()
	c.want("get k\r\n", "SERVER_ERROR not a member of the cluster, try again\r\n")
	c.want("set k 0 0 1\r\n2\r\n", "SERVER_ERROR not a member of the cluster, try again\r\n")
	if err := s.Attach(cluster, declock.StoreConfig{}); err != nil {
		t.Fatal(err)
	}
	c.want("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
}

// A connection to a server with users says first who it is.
func TestAuthentication(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("ann:secret\nbob:word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{AuthFile: file})
	c := dial(t, address)
	c.want("get k\r\n", "CLIENT_ERROR unauthenticated\r\n")
	c.want("set x 0 0 9\r\nann wrong\r\n", "CLIENT_ERROR authentication failure\r\n")
	c.want("set x 0 0 8\r\nbob word\r\n", "STORED\r\n")
	c.want("set k 0 0 1\r\n1\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
	c.want("get"+strings.Repeat(" x", busyBuffer)+"\r\n", "END\r\n") // the buffer grows, and is small again when the connection is idle
	c.want("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
	d := dial(t, address)
	d.packet(opGet, 0, "", "k", "")
	if a := d.answer(); a.status != binAuthFailed || !d.ended() {
		t.Errorf("binary: %+v", a)
	}
	if _, err := New(Options{AuthFile: file + "x"}); err == nil {
		t.Error("a file that is not there is taken")
	}
}

// Over TLS clients are served as over TCP.
func TestTLS(t *testing.T) {
	files := securetest.New(t).Files("node", "cn.declock")
	cfg, err := files.Config()
	if err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{TLS: cfg})
	c := dialTLS(t, address, cfg)
	c.want("set k 0 0 1\r\n1\r\nget k\r\n", "STORED\r\nVALUE k 0 1\r\n1\r\nEND\r\n")
	plain := dial(t, address)
	plain.send("version\r\n")
	if line, _ := plain.r.ReadString('\n'); strings.Contains(line, "VERSION") {
		t.Errorf("without TLS: %q", line)
	}
}
