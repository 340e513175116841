package memcached

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front/memcached"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// servers are what each test runs against: our own over TCP and a unix socket, and Debian's memcached if it is here.
func servers(t *testing.T, test func(t *testing.T, network, address string)) {
	t.Run("front-tcp", func(t *testing.T) { test(t, "tcp", startFront(t, "tcp", "127.0.0.1:0")) })
	t.Run("front-unix", func(t *testing.T) { test(t, "unix", startFront(t, "unix", filepath.Join(t.TempDir(), "s"))) })
	t.Run("memcached", func(t *testing.T) { test(t, "unix", startMemcached(t)) })
}

// startFront starts a server of package front/memcached, and returns where it listens.
func startFront(t *testing.T, network, address string) string {
	t.Helper()
	cluster, err := declock.Open(t.Context(), "shm:", declock.WithMemory(128<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cluster.Close() })
	s, err := memcached.New(memcached.Options{})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{})
	}
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(ln)
	t.Cleanup(func() {
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String()
}

func startMemcached(t *testing.T) (path string) {
	t.Helper()
	bin, err := exec.LookPath("memcached")
	if err != nil {
		t.Skip("memcached is not on PATH: apt-get install memcached")
	}
	path = filepath.Join(t.TempDir(), "s")
	args := []string{"-s", path, "-m", "64", "-t", "1"}
	if os.Getuid() == 0 { // it refuses to be root unless told, and the directory is ours
		args = append(args, "-u", "root")
	}
	cmd := exec.Command(bin, args...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Skip("memcached does not start:", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 200 {
		conn, err := net.Dial("unix", path)
		if err == nil {
			conn.Close()
			return path
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Skip("memcached does not answer:", output.String())
	return ""
}

func dial(t testing.TB, network, address string) *Client {
	t.Helper()
	c, err := Dial(network, address, Options{Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestOperations: every operation of the contract, on a present and an absent object.
func TestOperations(t *testing.T) {
	servers(t, func(t *testing.T, network, address string) {
		c := dial(t, network, address)
		a, none := []byte("a"), []byte("none")
		is := func(what string, err, want error) {
			t.Helper()
			if !errors.Is(err, want) || (want == nil && err != nil) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		holds := func(want string) objstore.Item {
			t.Helper()
			it, err := c.Get(a)
			if err != nil || string(it.Value) != want {
				t.Errorf("get: %q %v, want %q", it.Value, err, want)
			}
			return it
		}
		_, err := c.Get(a)
		is("get", err, objstore.ErrNotFound)
		is("replace", c.Replace(a, a, objstore.Options{}), objstore.ErrNotFound)
		is("append", c.Append(a, a), objstore.ErrNotFound)
		is("prepend", c.Prepend(a, a), objstore.ErrNotFound)
		is("cas", c.CompareAndSwap(a, a, objstore.Options{}, 1), objstore.ErrNotFound)
		is("delete", c.Delete(a), objstore.ErrNotFound)
		is("touch", c.Touch(a, 1), objstore.ErrNotFound)
		_, err = c.Incr(a, 1)
		is("incr", err, objstore.ErrNotFound)

		is("add", c.Add(a, []byte("v\r\nEND\r\n"), objstore.Options{Flags: 7, TTL: 100}), nil)
		if it := holds("v\r\nEND\r\n"); it.Flags != 7 || it.CAS == 0 {
			t.Errorf("%+v", it)
		}
		is("add", c.Add(a, a, objstore.Options{}), objstore.ErrExists)
		is("replace", c.Replace(a, nil, objstore.Options{}), nil)
		holds("")
		is("append", c.Append(a, []byte("2")), nil)
		is("prepend", c.Prepend(a, []byte("1")), nil)
		it := holds("12")
		is("cas", c.CompareAndSwap(a, []byte("99"), objstore.Options{}, it.CAS), nil)
		is("cas", c.CompareAndSwap(a, []byte("98"), objstore.Options{}, it.CAS), objstore.ErrExists)
		if n, err := c.Incr(a, 1); n != 100 || err != nil {
			t.Error("incr", n, err)
		}
		if n, err := c.Decr(a, 1); n != 99 || err != nil {
			t.Error("decr", n, err)
		}
		if n, err := c.Decr(a, 1000); n != 0 || err != nil {
			t.Error("decr", n, err)
		}
		is("set", c.Set(a, []byte("word"), objstore.Options{TTL: 90 * 86400}), nil) // over memcached's 30 days
		holds("word")
		_, err = c.Incr(a, 1)
		is("incr", err, objstore.ErrNotNumber)
		is("touch", c.Touch(a, 100), nil)
		is("set", c.Set(none, make([]byte, 3<<20), objstore.Options{}), objstore.ErrValueSize)
		big := bytes.Repeat([]byte("0123456789"), 50000)
		is("set", c.Set(a, big, objstore.Options{}), nil)
		holds(string(big))
		is("delete", c.Delete(a), nil)
		is("key", c.Set(nil, a, objstore.Options{}), objstore.ErrKeySize)
		is("key", c.Set(make([]byte, 251), a, objstore.Options{}), objstore.ErrKeySize)
		is("key", c.Delete([]byte("a b")), ErrKey)
		is("key", c.Delete([]byte("a\r\nflush_all")), ErrKey)
		is("flush", c.FlushAll(), nil)
	})
}

// TestReplay drives memcached with the replayer, verified, by clients that share keys.
func TestReplay(t *testing.T) {
	servers(t, func(t *testing.T, network, address string) {
		for _, preset := range []string{"cluster14", "cluster53", "cluster22", "cluster25"} {
			p, err := traces.FindPreset(preset)
			if err != nil {
				t.Fatal(err)
			}
			g, err := traces.NewGenerator(traces.GenConfig{Preset: p, Seed: 1, Keys: 200, Requests: 3000, Clients: 3})
			if err != nil {
				t.Fatal(err)
			}
			var loads []replay.Load
			for i := range 3 {
				loads = append(loads, replay.Load{Cache: dial(t, network, address), Warm: g.Keys(i, 3), Stream: g.Stream(i)})
			}
			res, err := replay.Run(context.Background(), replay.Options{Verify: true, FillOnMiss: true, TTL: replay.TTLNone}, loads)
			if err != nil {
				t.Fatal(err)
			}
			if s := res.Summary(); s.Ops != 3000 || s.Errors != 0 || s.VerifyFailures != 0 || s.HitRatio < 0.5 {
				t.Errorf("%s: %+v", preset, s)
			}
			if err := dial(t, network, address).FlushAll(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestBadAnswers: whatever comes back, the error says so, and the next operation works.
func TestBadAnswers(t *testing.T) {
	f := startFake(t)
	address := f.ln.Addr().String()
	for _, a := range []struct {
		answer string
		want   error
	}{
		{"!", ErrUnknown}, {"HTTP/1.1 400 Bad Request\r\n", ErrProtocol}, {"ERROR\r\n", ErrServer},
		{"SERVER_ERROR out of memory storing object\r\n", objstore.ErrNoSpace}, {"SERVER_ERROR on fire\r\n", ErrServer},
		{"CLIENT_ERROR bad data chunk\r\n", ErrServer}, {"VALUE a 0\r\n", ErrProtocol}, {"VALUE b 0 1 1\r\n", ErrProtocol},
		{"VALUE a 0 99999999999 1\r\n", ErrProtocol}, {"VALUE a 0 1 1\r\nxyzEND\r\n", ErrProtocol}, {"VALUE a 0 1 1\r\nx\r\nEN\r\n", ErrProtocol},
		{strings.Repeat("x", 1<<17), ErrProtocol},
	} {
		for _, op := range []func(c *Client) error{
			func(c *Client) error { _, err := c.Get([]byte("a")); return err },
			func(c *Client) error { return c.Set([]byte("a"), []byte("v"), objstore.Options{}) },
			func(c *Client) error { return c.Delete([]byte("a")) },
			func(c *Client) error { _, err := c.Incr([]byte("a"), 1); return err },
		} {
			c, err := Dial("tcp", address, Options{Timeout: 5 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			bad := true
			f.answers(func(string) string {
				if bad {
					bad = false
					return a.answer
				}
				return ""
			})
			err = op(c)
			if !errors.Is(err, a.want) && !errors.Is(err, ErrProtocol) {
				t.Errorf("%.40q: %v, want %v", a.answer, err, a.want)
			}
			if err := c.Set([]byte("b"), []byte("v"), objstore.Options{}); err != nil {
				t.Errorf("after %.40q: %v", a.answer, err)
			}
			c.Close()
		}
	}
	f.answers(func(string) string { return "HTTP/1.1 400 Bad Request\r\n" })
	if _, err := Dial("tcp", address, Options{}); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "is "+address+" a memcached?") {
		t.Error(err)
	}
	f.ln.Close()
	if _, err := Dial("tcp", address, Options{}); err == nil || !strings.Contains(err.Error(), "cannot connect") {
		t.Error(err)
	}
}

// TestTimeout: a server that says nothing does not hang a replay.
func TestTimeout(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = Dial("tcp", ln.Addr().String(), Options{Timeout: 50 * time.Millisecond})
	var timeout net.Error
	if !errors.Is(err, ErrUnknown) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Error(err)
	}
}

func TestParseTarget(t *testing.T) {
	for target, want := range map[string]string{
		"memcached://localhost:11211": "tcp localhost:11211", "memcached://10.0.0.1": "tcp 10.0.0.1:11211",
		"memcached://[::1]:5": "tcp [::1]:5", "memcached:///tmp/s.sock": "unix /tmp/s.sock", "memcached://h:1/": "tcp h:1",
		"": "", "localhost:11211": "", "redis://h:1": "", "memcached://": "", "memcached:///": "", "memcached://h:1/x": "", "memcached://u@h:1": "", "memcached://h:port": "",
	} {
		network, address, err := ParseTarget(target)
		if want == "" {
			if !errors.Is(err, ErrTarget) {
				t.Errorf("%q: %s %s %v", target, network, address, err)
			}
		} else if network+" "+address != want || err != nil {
			t.Errorf("%q: %s %s %v", target, network, address, err)
		}
	}
	if _, err := DialTarget("what", Options{}); !errors.Is(err, ErrTarget) {
		t.Error(err)
	}
}

func TestAllocates0(t *testing.T) {
	f := startFake(t)
	c := dial(t, "tcp", f.ln.Addr().String())
	f.answers(func(cmd string) string {
		if cmd == "set" {
			return "STORED\r\n"
		}
		return "VALUE key 0 3 9\r\nabc\r\nEND\r\n"
	})
	key, value := []byte("key"), []byte("abc")
	allocs := testing.AllocsPerRun(1000, func() {
		if err := c.Set(key, value, objstore.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Get(key); err != nil {
			t.Fatal(err)
		}
	})
	// The fake's own: two lines and their fields.
	if allocs > 6 {
		t.Errorf("%g allocations for a set and a get", allocs)
	}
}
