package redis

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front/internal/idletest"
	"github.com/declock/declock/internal/secure/securetest"
)

// A connection above the limit is told so and closed; when another ends, there is room again.
func TestTooManyConnections(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{MaxConns: 2})
	first, second := dial(t, address), dial(t, address)
	first.want("PING", "PONG")
	second.want("PING", "PONG")
	third := dial(t, address)
	if got := third.answer(); got != "-ERR max number of clients reached" || !third.ended() {
		t.Errorf("answered %q, or not closed", got)
	}
	second.Close()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		c := dial(t, address)
		if _, err := io.WriteString(c, request("PING")); err == nil {
			if text, err := readAnswer(c.r); err == nil && text == "PONG" {
				break
			}
		}
		if time.Now().After(limit) {
			t.Fatal("no room again")
		}
	}
}

// Clients that stop in the middle of a request, or do not read answers, keep no other from being served.
func TestStuckClients(t *testing.T) {
	if testing.Short() {
		t.Skip("many megabytes")
	}
	_, address := startServer(t, openCluster(t), Options{})
	good := dial(t, address)
	big := strings.Repeat("v", 500_000)
	if got := good.do("SET", "big", big); got != "OK" {
		t.Fatal(got)
	}
	for range 100 { // more than there are sessions
		dial(t, address).send("*3\r\n$3\r\nSET\r\n$4\r\nhalf\r\n$1000000\r\nabc")
		dial(t, address).send(strings.Repeat(request("MGET", "big", "big", "big"), 20)) // more than sockets hold
		dial(t, address).send("*2\r\n$3\r\nGE")
	}
	for i := range 50 {
		if i%10 == 0 {
			good = dial(t, address)
			_ = good.SetDeadline(time.Now().Add(20 * time.Second))
		}
		good.want(fmt.Sprintf("SET k%d 1", i), "OK")
		good.want(fmt.Sprintf("GET k%d", i), "1")
	}
}

// What a client announces and does not send takes no memory; a request that is too long is refused; and all large buffers together are bounded.
func TestHostileClients(t *testing.T) {
	s, address := startServer(t, openCluster(t), Options{MaxBuffers: 4 << 20})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 50 {
		dial(t, address).send("*100000\r\n$3\r\nSET\r\n$1000000\r\nx")
	}
	time.Sleep(100 * time.Millisecond)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 10<<20 {
		t.Errorf("50 clients that announce 1 MB take %d B", grown)
	}
	for _, hostile := range []string{"*200000\r\n", "*3\r\n$3\r\nSET\r\n$2000000\r\n", strings.Repeat("x", longestInline+1), "*40\r\n" + strings.Repeat("$1000000\r\n"+strings.Repeat("v", 1_000_000)+"\r\n", 4)} {
		c := dial(t, address)
		_, _ = io.WriteString(c, hostile)
		if got, err := readAnswer(c.r); err == nil && !strings.HasPrefix(got, "-ERR Protocol error: ") {
			t.Errorf("%.40q is answered %q", hostile, got)
		}
	}
	closed := 0
	for range 30 { // each sends nearly 1 MB of a value, and waits
		c := dial(t, address)
		_, err := io.WriteString(c, "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n"+strings.Repeat("v", 900_000))
		_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, errRead := c.r.ReadByte(); err != nil || errRead != nil && !os.IsTimeout(errRead) {
			closed++
		}
	}
	if n := s.buffers.Load(); closed < 10 || n > 8<<20 {
		t.Errorf("%d of 30 clients with 1 MB each were closed; buffers have %d B", closed, n)
	}
	dial(t, address).want("PING", "PONG")
}

// Pipelined requests that arrive in pieces of any size are answered in order.
func TestPieces(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	var requests strings.Builder
	var answers []string
	for i := range 20 {
		value := strings.Repeat("v", i*331)
		requests.WriteString(request("SET", "k", value) + request("GET", "k") + request("GET", "none") + "PING\r\n" + request("MGET", "k", "none", "k"))
		answers = append(answers, "OK", value, "nil", "PONG", fmt.Sprintf("*[%s nil %s]", value, value))
	}
	for _, piece := range []int{1, 7, 100, 2048, 1 << 20} {
		c := dial(t, address)
		go func() {
			for text := requests.String(); len(text) > 0; {
				n := min(piece, len(text))
				if _, err := io.WriteString(c, text[:n]); err != nil {
					return
				}
				text = text[n:]
			}
		}()
		for i, want := range answers {
			if got := c.answer(); got != want {
				t.Fatalf("in pieces of %d: answer %d is %.60q, want %.60q", piece, i, got, want)
			}
		}
	}
}

// MGET of many keys, large ones among them, has all values in order.
func TestManyKeys(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	words, want := []string{"MGET"}, []string{}
	for i := range 500 {
		value := "nil"
		if i%3 > 0 {
			value = strings.Repeat(fmt.Sprint(i), 1+i*i%20_000)
			c.send(request("SET", fmt.Sprint(i), value))
			if got := c.answer(); got != "OK" {
				t.Fatal(got)
			}
		}
		words, want = append(words, fmt.Sprint(i)), append(want, value)
	}
	if got := c.do(words...); got != fmt.Sprint("*", want) {
		t.Error("other values")
	}
	if got := c.do("MGET", "1", strings.Repeat("k", 251)); got != "-ERR a key has 1 to 250 bytes here" {
		t.Errorf("a key that is too long: %q", got)
	}
}

// A server that is shut down answers the requests that it has, and ends connections.
func TestDrain(t *testing.T) {
	cluster := openCluster(t)
	s, err := New(Options{IdleTimeout: time.Minute})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{Objects: 1000})
	}
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "redis.sock"))
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	nc, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprint(nc, request("SET", "k", "v"))
	b := make([]byte, 5)
	if _, err := io.ReadFull(nc, b); err != nil || string(b) != "+OK\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	// What has arrived is more than a connection reads at a time.
	if _, err := io.WriteString(nc, strings.Repeat(request("GET", "k"), 2000)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	over := make(chan error)
	go func() { over <- s.Shutdown(ctx) }()
	answers, err := io.ReadAll(nc)
	if n := strings.Count(string(answers), "$1\r\nv\r\n"); n != 2000 || err != nil {
		t.Errorf("%d answers to 2000 requests that had arrived, %v", n, err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Error("twice:", err)
	}
	if n := s.counted.idled.Load(); n != 0 {
		t.Errorf("%d connections count as idle for a minute", n)
	}
}

// A server without a cluster says so, keeps its connections, and goes on with the next cluster.
func TestDetached(t *testing.T) {
	c := openCluster(t)
	s, address := startServer(t, c, Options{})
	k := dial(t, address)
	k.want("SET k v", "OK")
	s.Detach()
	for _, words := range []string{"GET k", "SET k v", "MGET k", "DEL k", "FLUSHALL", "SCAN 0", "DBSIZE"} {
		k.want(words, "-TRYAGAIN this server is not a member of the cluster at the moment")
	}
	if err := s.Attach(c, declock.StoreConfig{Objects: 10_000}); err != nil {
		t.Fatal(err)
	}
	k.want("GET k", "v")
}

// Without the password of one of the users a client may do nothing.
func TestAuthentication(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("default:secret\nme:other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{AuthFile: file})
	const refused, wrong = "-NOAUTH Authentication required.", "-WRONGPASS invalid username-password pair or user is disabled."
	c := dial(t, address)
	for _, step := range [][2]string{{"GET k", refused}, {"PING", refused}, {"CLIENT ID", refused}, {"AUTH wrong", wrong}, {"AUTH me secret", wrong}, {"GET k", refused}, {"AUTH secret", "OK"}, {"GET k", "nil"},
		{"RESET", "RESET"}, {"GET k", refused}, {"HELLO 3 AUTH me secret", wrong}, {"GET k", refused}, {"AUTH me other", "OK"}, {"SET k v", "OK"}} {
		c.want(step[0], step[1])
	}
	d := dial(t, address)
	for _, empty := range [][]string{{"AUTH", ""}, {"AUTH", "default", ""}, {"AUTH", "", "secret"}, {"HELLO", "3", "AUTH", "default", ""}} {
		if got := d.do(empty...); got != wrong {
			t.Errorf("%q is answered %q", empty, got)
		}
		d.want("GET k", refused)
	}
	if got := d.do("HELLO", "3"); !strings.HasPrefix(got, "-NOAUTH HELLO") {
		t.Error(got)
	}
	if got := d.do("HELLO", "3", "AUTH", "me", "other"); !strings.Contains(got, "proto :3") {
		t.Error(got)
	}
	if _, err := New(Options{AuthFile: file + "x"}); err == nil {
		t.Error("a file that is not there")
	}
}

// A user's name ends at the first colon of its line, however a client cuts it.
func TestUserWithColon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("me:a:b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{AuthFile: file})
	c := dial(t, address)
	c.want("AUTH me:a b", "-WRONGPASS invalid username-password pair or user is disabled.")
	c.want("GET k", "-NOAUTH Authentication required.")
	c.want("AUTH me a:b", "OK")
}

// A client that has not said who it is may send short requests only: it gets no memory.
func TestStrangersRequests(t *testing.T) {
	for _, x := range []struct{ request, want string }{
		{"*10\r\n$16384\r\n", "<nil>"}, {"*11\r\n", "Protocol error: unauthenticated multibulk length"}, {"*2\r\n$16385\r\n", "Protocol error: unauthenticated bulk length"},
	} {
		p := parser{mostValue: 1 << 20, mostRequest: 1 << 21, stranger: true}
		if _, _, err := p.next([]byte(x.request)); fmt.Sprint(err) != x.want {
			t.Errorf("%q: %v, want %s", x.request, err, x.want)
		}
	}
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("default:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{AuthFile: file})
	c := dial(t, address)
	c.want("AUTH secret", "OK")
	if got := c.do("SET", "k", strings.Repeat("v", strangersValue+1)); got != "OK" {
		t.Error(got)
	}
	c = dial(t, address)
	c.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$16385\r\n")
	if got := c.answer(); got != "-ERR Protocol error: unauthenticated bulk length" || !c.ended() {
		t.Errorf("answered %q, or goes on", got)
	}
}

// A client that sends nothing, or takes none of its answers, is idle; one that takes them slowly is not.
func TestIdleTimeout(t *testing.T) {
	const idle = time.Second
	s, address := startServer(t, openCluster(t), Options{IdleTimeout: idle})
	big := strings.Repeat("v", 1_000_000)
	const gets = 30 // more than sockets hold
	c := dial(t, address)
	if got := c.do("SET", "big", big); got != "OK" {
		t.Fatal(got)
	}
	dial(t, address).want("PING", "PONG")                      // idle
	dial(t, address).send(strings.Repeat("GET big\r\n", gets)) // stuck
	c.send(strings.Repeat("GET big\r\n", gets))
	begun, took := time.Now(), 0
	for b := make([]byte, 1<<20); took < gets*len(big); time.Sleep(idle / 12) {
		n, err := io.ReadFull(c.r, b[:min(len(b), gets*(len(big)+len("$1000000\r\n\r\n"))-took)])
		if took += n; err != nil {
			t.Fatalf("after %d bytes and %v: %v", took, time.Since(begun), err)
		}
	}
	if took := time.Since(begun); took < 2*idle {
		t.Skip("the slow client was not slow:", took)
	}
	for limit := time.Now().Add(10 * time.Second); s.accept.Open() > 0 || s.counted.idled.Load() < 3; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d connections are open, %d were idle", s.accept.Open(), s.counted.idled.Load())
		}
	}
}

// Connections are over TLS if the server has a certificate.
func TestTLS(t *testing.T) {
	files := securetest.New(t).Files("node", "cn.declock")
	cfg, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	_, address := startServer(t, openCluster(t), Options{TLS: cfg})
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}})
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	(&client{t, nc, bufio.NewReader(nc)}).want("PING", "PONG")
}

// Writing a value keeps the key's time to live or drops it as Redis does.
func TestTTLKept(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for _, x := range []struct {
		line string
		kept bool
	}{
		{"APPEND k 1", true}, {"INCR k", true}, {"DECRBY k 2", true}, {"INCRBYFLOAT k 1.5", true}, {"SETRANGE k 0 9", true}, {"SET k 1 KEEPTTL", true}, {"SET k 1 NX", true}, {"SET k 1 IFEQ 5", true},
		{"GETEX k", true}, {"SET k 1", false}, {"SET k 1 XX", false}, {"SET k 1 GET", false}, {"SET k 1 IFEQ 1", false}, {"GETSET k 2", false}, {"MSET k 3", false}, {"PERSIST k", false}, {"GETEX k PERSIST", false},
	} {
		c.want("SET k 1 EX 100", "OK")
		c.do(strings.Fields(x.line)...)
		want := ":-1"
		if x.kept {
			want = ":100"
		}
		if got := c.do("TTL", "k"); got != want {
			t.Errorf("after %s the key has a TTL of %s, want %s", x.line, got, want)
		}
	}
}

// SCAN finds each key that is there all the time, also while values are written anew, keys come and go.
func TestScanFindsAll(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	const keys = 300
	var want []string
	for i := range keys {
		c.want(fmt.Sprintf("SET stay%d v", i), "OK")
		want = append(want, fmt.Sprintf("stay%d", i))
	}
	slices.Sort(want)
	var stop atomic.Bool
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			d := dial(t, address)
			for i := n; !stop.Load(); i += 7 {
				d.want(fmt.Sprintf("SET stay%d %d", i%keys, i), "OK")
				d.want(fmt.Sprintf("SET go%d.%d x", n, i%50), "OK")
				d.want(fmt.Sprintf("DEL go%d.%d", n, i%50), ":1")
			}
		})
	}
	for range 5 {
		var got []string
		for cursor := "0"; ; {
			c.send(request("SCAN", cursor, "MATCH", "stay*", "COUNT", "50"))
			part := strings.Fields(strings.NewReplacer("*[", "", "]", "").Replace(c.answer()))
			got = append(got, part[1:]...)
			if cursor = part[0]; cursor == "0" {
				break
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("%d of %d keys", len(got), len(want))
		}
	}
	stop.Store(true)
	writers.Wait()
}

// Requests whose answer a client does not want have none.
func TestNoReply(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.send(request("ECHO", "a") + request("CLIENT", "REPLY", "OFF") + request("SET", "k", "v") + request("MGET", "k", "k") + request("CLIENT", "REPLY", "ON") + request("GET", "k") +
		request("CLIENT", "REPLY", "SKIP") + request("GET", "none") + request("ECHO", "b"))
	// An answer so large that parts of it would be written before its end.
	c.send(request("SET", "k", strings.Repeat("v", 1000)) + request("CLIENT", "REPLY", "SKIP") + request(append([]string{"MGET"}, slices.Repeat([]string{"k"}, 300)...)...) + request("ECHO", "c") +
		request("CLIENT", "REPLY", "SKIP") + request("CLIENT", "REPLY", "SKIP") + request("GET", "none") + request("ECHO", "d"))
	for _, want := range []string{"a", "OK", "v", "b", "OK", "c", "d"} {
		if got := c.answer(); got != want {
			t.Errorf("answered %q, want %q", got, want)
		}
	}
}

// Ten thousand idle connections, each of which has sent a request, cost some KiB each.
func TestIdleConnections(t *testing.T) {
	idletest.Run(t, request("GET", "k"), "$1\r\n1\r\n", func() (address string, serves func()) {
		_, address = startServer(t, openCluster(t), Options{MaxConns: idletest.Clients + 10})
		dial(t, address).want("SET k 1", "OK")
		return address, func() { dial(t, address).want("GET k", "1") }
	})
}

// What was flushed, has expired, or is no item of a server is not there for any command.
func TestManyFlushed(t *testing.T) {
	cluster := openCluster(t)
	_, address := startServer(t, cluster, Options{})
	c := dial(t, address)
	st, err := cluster.Store(t.Context(), "redis", declock.StoreConfig{})
	if err == nil {
		err = st.Set(t.Context(), []byte("foreign"), []byte("no head, but long enough"), declock.SetOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	c.want("SET before x", "OK")
	c.want("FLUSHALL", "OK")
	c.want("SET short x PX 20", "OK")
	c.want("SET stays x", "OK")
	time.Sleep(25 * time.Millisecond)
	c.want("MGET before foreign short stays", "*[nil nil nil x]")
	for _, key := range []string{"before", "foreign", "short"} {
		for _, x := range [][2]string{{"GET", "nil"}, {"EXISTS", ":0"}, {"TTL", ":-2"}, {"STRLEN", ":0"}, {"TYPE", "none"}, {"PERSIST", ":0"}, {"GETDEL", "nil"}, {"DEL", ":0"}} {
			c.want(x[0]+" "+key, x[1])
		}
	}
	c.want("SCAN 0 COUNT 100000", "*[0 *[stays]]")
	c.want("DBSIZE", ":1")
	c.want("SET before y NX", "OK")
	c.want("APPEND foreign z", ":1")
}
