package redis

import (
	"strings"
	"testing"
	"time"
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
