package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

func TestBasics(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("PING", "PONG")
	c.want("GET k", "nil")
	c.want("SET k v", "OK")
	c.want("GET k", "v")
	c.want("DEL k none", ":1")
	c.want("GET k", "nil")
}

// A client that asks for a transaction is refused, and what follows is not done by itself.
func TestMultiEndsTheConnection(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.send(request("MULTI") + request("SET", "k", "v") + request("EXEC"))
	if got := c.answer(); !strings.HasPrefix(got, "-ERR MULTI") || !c.ended() {
		t.Errorf("answered %q, or goes on", got)
	}
	dial(t, address).want("EXISTS k", ":0")
}

// Locks with a TTL in milliseconds: nothing but their value releases or extends them, and they expire not early, and not a second late.
func TestLocks(t *testing.T) {
	const (
		release = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
		extend  = "\n\tif redis.call(\"GET\", KEYS[1]) == ARGV[1] then -- mine\n\t\treturn redis.call(\"PEXPIRE\", KEYS[1], ARGV[2])\n\telse\n\t\treturn 0\n\tend\n"
	)
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("SET lock me NX PX 60000", "OK")
	c.want("SET lock other NX PX 60000", "nil")
	for _, step := range []struct {
		args []string
		want string
	}{
		{[]string{"EVAL", release, "1", "lock", "other"}, ":0"}, {[]string{"EXISTS", "lock"}, ":1"},
		{[]string{"EVAL", release, "1", "lock", "m"}, ":0"}, {[]string{"EVAL", release, "1", "lock", "me2"}, ":0"},
		{[]string{"EVAL", extend, "1", "lock", "other", "1"}, ":0"}, {[]string{"EVAL", extend, "1", "lock", "me", "90000"}, ":1"},
		{[]string{"TTL", "lock"}, ":90"}, {[]string{"EVAL", release, "1", "lock", "me"}, ":1"}, {[]string{"EVAL", release, "1", "lock", "me"}, ":0"},
		{[]string{"EVAL", extend, "1", "lock", "me", "90000"}, ":0"}, {[]string{"EXISTS", "lock"}, ":0"},
		{[]string{"EVAL", "return 1", "0"}, unknownScript}, {[]string{"SCRIPT", "LOAD", "return 1"}, unknownScript},
		{[]string{"SET", "lock", "me"}, "OK"}, {[]string{"EVAL", extend, "1", "lock", "me", "-1"}, ":1"}, {[]string{"EXISTS", "lock"}, ":0"},
	} {
		if got := strings.TrimPrefix(c.do(step.args...), "-"); got != step.want {
			t.Errorf("%.60q is answered %q, want %q", step.args, got, step.want)
		}
	}
	for range 20 {
		const ttl = 30 * time.Millisecond
		begun := time.Now()
		c.want("SET lock me NX PX 30", "OK")
		for c.do("EXISTS", "lock") == ":1" {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(begun); took < ttl || took > ttl+900*time.Millisecond {
			t.Errorf("a lock of %v was there for %v", ttl, took)
		}
	}
}

// The scripts of locks answer as they do in Redis, whatever state the key is in, and leave it the time to live that they are to.
func TestLockScripts(t *testing.T) {
	const (
		redsyncUnlock = `local val = redis.call("GET", KEYS[1])
			if val == ARGV[1] then return redis.call("DEL", KEYS[1]) elseif val == false then return -1 else return 0 end`
		redsyncExtendOrSet = `if redis.call("GET", KEYS[1]) == ARGV[1] then return redis.call("PEXPIRE", KEYS[1], ARGV[2])
			elseif redis.call("SET", KEYS[1], ARGV[1], "PX", ARGV[2], "NX") then return 1 else return 0 end`
		pyExtend = `local token = redis.call('get', KEYS[1])
			if not token or token ~= ARGV[1] then return 0 end
			local expiration = redis.call('pttl', KEYS[1])
			if not expiration then expiration = 0 end
			if expiration < 0 then return 0 end
			local newttl = ARGV[2]
			if ARGV[3] == "0" then newttl = ARGV[2] + expiration end
			redis.call('pexpire', KEYS[1], newttl)
			return 1`
	)
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	const none = ""
	for _, x := range []struct {
		before string // a request that makes the key
		script string
		args   string
		want   string
		ttl    string // after it
	}{
		{none, redsyncUnlock, "me", ":-1", ":-2"},
		{"SET lock other EX 50", redsyncUnlock, "me", ":0", ":50"},
		{"SET lock me EX 50", redsyncUnlock, "me", ":1", ":-2"},
		{none, redsyncExtendOrSet, "me 90000", ":1", ":90"},
		{none, redsyncExtendOrSet, "me 0", ":0", ":-2"},
		{none, redsyncExtendOrSet, "me -5", ":0", ":-2"},
		{"SET lock other EX 50", redsyncExtendOrSet, "me 90000", ":0", ":50"},
		{"SET lock me EX 50", redsyncExtendOrSet, "me 90000", ":1", ":90"},
		{none, pyExtend, "me 30000 0", ":0", ":-2"},
		{"SET lock other EX 50", pyExtend, "me 30000 0", ":0", ":50"},
		{"SET lock me EX 50", pyExtend, "me 30000 0", ":1", ":80"},
		{"SET lock me EX 50", pyExtend, "me 30000 1", ":1", ":30"},
		{"SET lock me", pyExtend, "me 30000 0", ":0", ":-1"},
		{"SET lock me", pyExtend, "me 30000 1", ":0", ":-1"},
	} {
		c.do("DEL", "lock")
		if x.before != none {
			c.want(x.before, "OK")
		}
		if got := c.do(append([]string{"EVAL", x.script, "1", "lock"}, strings.Fields(x.args)...)...); got != x.want {
			t.Errorf("after %q, %.30q with %s is answered %q, want %q", x.before, x.script, x.args, got, x.want)
		}
		if got := c.do("TTL", "lock"); got != x.ttl {
			t.Errorf("after %q and %.30q with %s the key has a TTL of %s, want %s", x.before, x.script, x.args, got, x.ttl)
		}
	}
}

// Clients may send the scripts of locks in as many spellings as they like: a bounded number is kept, the last among them.
func TestScriptsBounded(t *testing.T) {
	var s scripts
	for i := range mostScripts + 100 {
		k, hash := s.of(fmt.Appendf(nil, "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end -- %d\n", i))
		if k == nil || s.get(hash) != k || len(s.seen) > mostScripts {
			t.Fatalf("script %d: %v, kept %v, %d in all", i, k, s.get(hash), len(s.seen))
		}
	}
	if s.forget(); len(s.seen) != 0 {
		t.Errorf("%d scripts are kept after a flush", len(s.seen))
	}
}

// A request that fails after its answer has begun has one answer, the error.
func TestOneAnswerWhenFull(t *testing.T) {
	cluster, err := declock.Open(t.Context(), "shm:", declock.WithMemory(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	_, address := startServer(t, cluster, Options{NoEvict: true})
	c := dial(t, address)
	const full = "-OOM command not allowed when used memory > 'maxmemory'."
	c.want("SET n 1", "OK")
	for i, size := 0, 1<<18; size > 0; i++ {
		switch got := c.do("SET", fmt.Sprint("fill", i), strings.Repeat("v", size)); got {
		case full:
			size /= 4
		case "OK":
		default:
			t.Fatal(got)
		}
	}
	for _, line := range []string{"SET n 22 GET", "GETSET n 3", "INCR n", "INCRBY new 5", "INCRBYFLOAT n 0.5", "APPEND n 5", "SETRANGE n 1 7", "MSET n 5 new 6"} {
		if got := c.do(strings.Fields(line)...); got != full {
			t.Errorf("%s is answered %q when memory is full", line, got)
		}
		c.want("ECHO next", "next")
	}
	c.want("GETEX n PX 100001", "1") // an expiry takes no memory
	c.want("PERSIST n", ":1")
	c.want("GET n", "1")
	c.want("GET new", "nil")
}

// A request with a key that there cannot be does nothing, wherever in it that is: an error says so.
func TestBadKeyAmongMany(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("SET k1 1", "OK")
	c.want("SET k3 3", "OK")
	long := strings.Repeat("k", objstore.MaxKey+1)
	for _, args := range [][]string{{"DEL", "k1", ""}, {"DEL", "k1", long, "k3"}, {"UNLINK", "k1", ""}, {"EXISTS", "k1", ""}, {"TOUCH", "k1", long}, {"MGET", "k1", "", "k3"},
		{"MSET", "k1", "2", "", "2"}, {"MSET", "k2", "2", long, "2"}} {
		if got := c.do(args...); got != "-"+badKey {
			t.Errorf("%.40q is answered %q", args, got)
		}
	}
	c.want("MGET k1 k2 k3", "*[1 nil 3]")
}

// An argument in the text of an error ends at a zero byte, as Redis 7.0.15 has it.
func TestZeroByteInError(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for _, x := range []struct {
		want string
		args []string
	}{
		{"-ERR unknown command 'fo', with args beginning with: 'a' 'c' ", []string{"fo\x00o", "a\x00b", "c"}},
		{"-ERR unknown subcommand 'x'. Try CLIENT HELP.", []string{"client", "x\x00y"}},
		{"-ERR Unsupported option q", []string{"expire", "k", "10", "q\x00r"}},
	} {
		if got := c.do(x.args...); got != x.want {
			t.Errorf("%q is answered %q, want %q", x.args, got, x.want)
		}
	}
}
