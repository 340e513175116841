package redis

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// redisServer starts a Redis of the test's own, and returns a connection to it.
func redisServer(t *testing.T) net.Conn {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server to compare with (Debian: apt-get install redis-server)")
	}
	socket := filepath.Join(t.TempDir(), "redis.sock")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", t.TempDir(), "--proto-max-bulk-len", "1mb")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for range 500 {
		if nc, err := net.Dial("unix", socket); err == nil {
			t.Cleanup(func() { nc.Close() })
			return nc
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("redis-server does not answer")
	return nil
}

// raw reads an answer as it is.
func raw(r *bufio.Reader) (string, error) {
	l, err := r.ReadString('\n')
	if err != nil {
		return l, err
	}
	n := 0
	_, _ = fmt.Sscanf(l[1:], "%d", &n)
	switch l[0] {
	case '$', '=':
		b := make([]byte, max(n+2, 0))
		if n < 0 {
			b = nil
		}
		for i := range b {
			if b[i], err = r.ReadByte(); err != nil {
				return l, err
			}
		}
		return l + string(b), nil
	case '%':
		n *= 2
	case '*':
	default:
		return l, nil
	}
	for range n {
		part, err := raw(r)
		if err != nil {
			return l, err
		}
		l += part
	}
	return l, nil
}

// A pair is the same client of Redis and of a server of this package.
type pair struct {
	t     *testing.T
	conns [2]net.Conn
	r     [2]*bufio.Reader
}

func newPair(t *testing.T, o Options) *pair {
	theirs := redisServer(t)
	_, address := startServer(t, openCluster(t), o)
	p := &pair{t: t, conns: [2]net.Conn{theirs, dial(t, address).Conn}}
	for i, nc := range p.conns {
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		p.r[i] = bufio.NewReader(nc)
	}
	return p
}

// same sends bytes with one request to both, and compares the answers.
func (p *pair) same(request string) {
	p.t.Helper()
	var got [2]string
	for i, nc := range p.conns {
		if _, err := nc.Write([]byte(request)); err != nil {
			p.t.Fatal(err)
		}
		var err error
		if got[i], err = raw(p.r[i]); err != nil {
			p.t.Fatalf("%q: %v", request, err)
		}
	}
	if got[0] != got[1] {
		p.t.Errorf("%.200q is answered %.300q by Redis, %.300q here", request, got[0], got[1])
	}
}

// sameRequests are requests, each a line of words, which Redis and this package answer with the same bytes.
const sameRequests = `
PING | PING hello | PING a b | ECHO x | ECHO | FOO | FOO a b 'c | get | GET a b | SELECT 0 | SELECT 17 | SELECT x | RESET
SET k v | GET k | SET k w NX | SET k w XX | GET k | SET n w XX | GET n | SET k a GET | SET n a NX GET | SET n b NX GET | SET k v XX GET | DEL n | SET n v XX GET | GET n
SET k v NX XX | SET n v nx NX | DEL n | SET k v XX XX | SET k v EX 10 EX 20 | TTL k | SET k v EX 10 PX 20 | GETEX k EX 10 EX 30 | TTL k | GETEX k EX 10 EXAT 20 | SET k v EX x EX 5
SET k v EX | SET k v EX x | SET k v EX 0 | SET k v EX -1 | SET k v PX 0 | SET k v EX 10 PX 10 | SET k v KEEPTTL EX 10 | SET k v EX 10 KEEPTTL | SET k v FOO
SET k v EX 9223372036854775807 | SET k v PX 9223372036854775807 | SET k v EXAT 0 | SET k | SET k v EX 100 | TTL k | SET k w KEEPTTL | TTL k | SET k w | TTL k | PTTL k | SET k v PXAT 1 | GET k
SET k v EXAT 1 | EXISTS k | SETNX k v | SETNX k w | GET k | SETEX k 100 v | TTL k | SETEX k 0 v | SETEX k x v | PSETEX k 100000 v | TTL k | PSETEX k -1 v | PSETEX k x v | SETEX k 1
GETSET k new | GETSET none1 x | GETDEL none1 | GETDEL none1 | GETDEL | GETEX k | GETEX k EX 100 | TTL k | GETEX k PERSIST | TTL k | GETEX k EX 0 | GETEX k FOO | GETEX k EX 10 PERSIST
GETEX k PERSIST EX 10 | GETEX nokey EX 10 | GETEX k PXAT 1 | GET k | GETEX k EX x
MSET a 1 b 2 | MGET a none2 b | MSET a | MSET a 1 b | MGET | MSETNX a | DEL a b a | EXISTS a b | SET a 1 | EXISTS a a a | TOUCH a a none | UNLINK a | TYPE a | SET a 1 | TYPE a
INCR a | INCR cnt | DECR cnt | DECRBY cnt 10 | INCRBY cnt 5 | INCRBY cnt x | INCRBY cnt 9223372036854775808 | DECRBY cnt -9223372036854775808 | SET cnt 9223372036854775807 | INCR cnt
SET cnt -9223372036854775808 | DECR cnt | INCRBY cnt 0 | SET cnt 01 | INCR cnt | SET cnt -0 | INCR cnt | SET cnt abc | INCR cnt | SET cnt 12345678901234567890 | INCR cnt | GET cnt
SET cnt +1 | INCR cnt | DECRBY cnt | INCR | INCRBY cnt 1.5
SET f 10.5 | INCRBYFLOAT f 0.1 | INCRBYFLOAT f -5 | SET f 5.0e3 | INCRBYFLOAT f 2.0e2 | INCRBYFLOAT f abc | INCRBYFLOAT f 1.5e-10 | INCRBYFLOAT f inf | INCRBYFLOAT f nan | SET f abc | INCRBYFLOAT f 1
SET f 3 | INCRBYFLOAT f 1e17 | INCRBYFLOAT f 0.3 | DEL f | INCRBYFLOAT f 0.1 | INCRBYFLOAT f 0.2 | INCRBYFLOAT f -0.3 | SET f 0x10 | INCRBYFLOAT f 1 | SET f 1e5000 | INCRBYFLOAT f 1
SET f .5 | INCRBYFLOAT f 1. | SET f 1e4932 | INCRBYFLOAT f 1e4932 | SET f 17179869184 | INCRBYFLOAT f 1.1 | INCRBYFLOAT f 1_0 | INCRBYFLOAT f +1 | SET f 1 | INCRBYFLOAT f 1e
APPEND ap hello | APPEND ap world | GET ap | STRLEN ap | STRLEN none | APPEND ap | GETRANGE ap 0 4 | GETRANGE ap -5 -1 | GETRANGE ap 0 -1 | GETRANGE ap 5 2 | GETRANGE ap -1 -5 | GETRANGE ap 100 200
GETRANGE ap x 1 | GETRANGE none 0 -1 | GETRANGE ap -100 3 | GETRANGE ap 3 -100 | SUBSTR ap 1 2 | GETRANGE ap 9223372036854775807 -9223372036854775808 | GETRANGE ap -9223372036854775808 9223372036854775807
SETRANGE ap 5 XX | GET ap | SETRANGE nr 3 abc | GET nr | SETRANGE nr -1 a | SETRANGE nr x a | SETRANGE nr 0 "" | SETRANGE none3 5 "" | EXISTS none3 | SETRANGE nr 1048576 a | SETRANGE nr 1048575 a | STRLEN nr | APPEND nr b
SET e v | EXPIRE e 100 | TTL e | EXPIRE e 200 NX | EXPIRE e 200 XX | TTL e | EXPIRE e 100 GT | EXPIRE e 300 GT | TTL e | EXPIRE e 400 LT | EXPIRE e 50 LT | TTL e | PERSIST e | PERSIST e | TTL e | EXPIRE e 10 GT
EXPIRE e 10 XX | EXPIRE e 100 LT | TTL e | EXPIRE e 10 NX XX | EXPIRE e 10 GT LT | EXPIRE e 10 NX GT | EXPIRE e 10 FOO | EXPIRE e x | EXPIRE e 9223372036854775807 | EXPIRE e -9223372036854775808 | EXPIRE none 10 | EXPIRE e 10 XX LT
PEXPIRE e 100000 | TTL e | PEXPIRE e x | EXPIREAT e 4000000000 | EXPIRETIME e | PEXPIRETIME e | PEXPIREAT e 4000000000123 | PEXPIRETIME e | EXPIRETIME e | EXPIREAT e 1 | EXISTS e | EXPIRETIME e | PEXPIRETIME e | TTL e
SET e v | PEXPIRE e 0 | GET e | SET e v | EXPIRE e -1 | GET e | SET e v | PEXPIREAT e 1 NX | EXISTS e | EXPIRE e | PERSIST none | TTL | PEXPIRE none x | PEXPIRE none 1 FOO | SET e v | PEXPIRETIME e
SCAN x | SCAN 0 COUNT 0 | SCAN 0 COUNT x | SCAN 0 FOO | SCAN 0 MATCH | SCAN | DBSIZE x | FLUSHALL FOO | FLUSHALL | GET a | FLUSHDB ASYNC | FLUSHDB SYNC | FLUSHALL ASYNC x | DBSIZE
AUTH x | AUTH a b | AUTH a b c | AUTH default x | HELLO 4 | HELLO x | HELLO 3 FOO | HELLO 2 AUTH | HELLO 2 SETNAME | CLIENT | CLIENT FOO | CLIENT SETNAME | CLIENT SETNAME "a\x20b" | CLIENT SETNAME me
CLIENT GETNAME | CLIENT REPLY X | CLIENT NO-EVICT on | HELLO 2 SETNAME "x\x20y" | CLIENT GETNAME | CLIENT LIST FOO BAR BAZ | CONFIG | CONFIG FOO | CONFIG GET | CONFIG GET save | CONFIG GET SAVE | CONFIG GET none | CONFIG SET a
COMMAND FOO | COMMAND INFO nosuch | COMMAND INFO | INFO nosuch | INFO nosuch none | SCRIPT | SCRIPT FOO | SCRIPT LOAD | SCRIPT EXISTS | SCRIPT EXISTS abc | SCRIPT FLUSH | SCRIPT FLUSH FOO | SCRIPT FLUSH SYNC x | SCRIPT FLUSH async | EVAL | EVAL x | EVAL x y | EVAL x -1 | EVAL x 3 | EVALSHA abc 0
EVALSHA e950836ed1e694540c503ef9972b8de518044d3b 1 k v | TIME x
`

// Redis and this package answer the same requests with the same bytes, by both protocols, errors included.
func TestBesideRedis(t *testing.T) {
	p := newPair(t, Options{})
	for _, protocol := range []string{"2", "3"} {
		for _, line := range strings.Split(strings.TrimSpace(sameRequests), "\n") {
			for _, words := range strings.Split(line, " | ") {
				if words == "COMMAND INFO" || words == "CLIENT LIST FOO BAR BAZ" {
					continue
				}
				if words == "RESET" {
					p.same(request("RESET"))
					p.both("HELLO", protocol)
					continue
				}
				args, _, err := new(parser).next([]byte(words + "\n"))
				if err != nil || len(args) == 0 {
					args = nil
					for _, w := range strings.Fields(words) {
						args = append(args, []byte(w))
					}
				}
				var b strings.Builder
				fmt.Fprintf(&b, "*%d\r\n", len(args))
				for _, a := range args {
					fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
				}
				p.same(b.String())
			}
		}
	}
	for _, inline := range []string{"PING\r\n", "SET q \"a\\x41\\n\\\"b\" \r\n", "GET q\n", "SET 'q r' 'x\\'y'\r\n", "GET 'q r'\r\n", "  GET   q\r\n", "ECHO ''\r\n"} {
		p.same(inline)
	}
}

// both sends a request to both, and does not compare.
func (p *pair) both(words ...string) {
	for i, nc := range p.conns {
		if _, err := nc.Write([]byte(request(words...))); err != nil {
			p.t.Fatal(err)
		}
		if _, err := raw(p.r[i]); err != nil {
			p.t.Fatal(err)
		}
	}
}

// What ends a connection is answered as by Redis.
func TestBrokenBesideRedis(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	theirs := redisServer(t).RemoteAddr().String()
	for _, broken := range []string{"*x\r\n", "*1\r\n+PING\r\n", "*2\r\n$3\r\nGET\r\n:1\r\n", "*1\r\n$x\r\n", "*1\r\n$-5\r\n", "*1\r\n$2000000\r\n", "GET \"a\r\n", "GET 'a'b\r\n", "QUIT\r\n", strings.Repeat("x", 70<<10),
		"POST / HTTP/1.1\r\nContent-Type: text/plain\r\n\r\nSET hacked 1\r\n", "Host: here\r\nSET hacked 1\r\n"} {
		var got []string
		for _, at := range []string{"unix " + theirs, "tcp " + address} {
			network, path, _ := strings.Cut(at, " ")
			nc, err := net.Dial(network, path)
			if err != nil {
				t.Fatal(err)
			}
			_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
			_, _ = nc.Write([]byte(broken))
			r := bufio.NewReader(nc)
			text, _ := r.ReadString('\n')
			if _, err := r.ReadByte(); err == nil {
				t.Errorf("%.40q: the connection goes on", broken)
			}
			nc.Close()
			got = append(got, text)
		}
		if got[0] != got[1] {
			t.Errorf("%.40q is answered %q by Redis, %q here", broken, got[0], got[1])
		}
	}
}

// Random patterns match the same keys as Redis's.
func TestPatternsBesideRedis(t *testing.T) {
	nc := redisServer(t)
	r := bufio.NewReader(nc)
	alphabet := []string{"a", "b", "c", "*", "?", "[ab]", "[^a]", "[a-b]", "[c-a]", "\\*", "\\", "[", "]", "[]", "[^]", "-"}
	var keys []string
	for range 60 {
		var k strings.Builder
		for range 1 + rand.IntN(5) {
			k.WriteString([]string{"a", "b", "c", "*", "[", "]", "-", "\\"}[rand.IntN(8)])
		}
		keys = append(keys, k.String())
		fmt.Fprint(nc, request("SET", k.String(), "x"))
		if _, err := raw(r); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for range 2000 {
		var p strings.Builder
		for range 1 + rand.IntN(5) {
			p.WriteString(alphabet[rand.IntN(len(alphabet))])
		}
		fmt.Fprint(nc, request("KEYS", p.String()))
		text, err := readAnswer(r)
		if err != nil {
			t.Fatal(err)
		}
		var here []string
		for _, k := range keys {
			if matches([]byte(p.String()), []byte(k)) {
				here = append(here, k)
			}
		}
		var theirs []string
		inner := strings.TrimSuffix(strings.TrimPrefix(text, "*["), "]")
		if inner != "" {
			theirs = strings.Split(inner, " ")
		}
		slices.Sort(theirs)
		if !slices.Equal(here, theirs) {
			t.Fatalf("%q matches %q of Redis's keys, %q here", p.String(), theirs, here)
		}
	}
}
