package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Three compute nodes serve one store to clients of memcached and of Redis, each of which asks all of them, while one after another is killed and started anew. What
// all have seen is linearizable: flushes, SET with NX, and the release of a lock by its value included.
func TestFrontEndsUnderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	w := newWorld(t)
	mn := w.start("declock-mn", "--cluster", "shm:kills", "--dir", "DIR", "--size", "64MiB")
	mn.says("ready node=mn0")
	c := &frontEnds{w: w, begun: time.Now(), served: []string{"memcached", "redis"}, args: []string{"--memcached-store", "both", "--redis-store", "both"}}
	c.underKills(t, *memcachedKills)
	for _, p := range c.servers {
		w.terminate(p)
	}
	w.terminate(mn)
}

// someValue returns a value that a key may have: one that a client has read.
func (c *frontEnds) someValue(key int) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.history) - 1; i >= 0 && i > len(c.history)-50; i-- {
		if in := c.history[i].Input.(cacheInput); in.op == "get" && in.key == key && rand.IntN(2) == 0 {
			return c.history[i].Output.(cacheOutput).value
		}
	}
	return "none"
}

// release deletes a key if it has a value.
const release = `if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`

// askRedis is ask by Redis's protocol.
func (in cacheInput) askRedis(rw *bufio.ReadWriter) (out cacheOutput, err error) {
	key := fmt.Sprintf("k%d", in.key)
	words := map[string][]string{"set": {"SET", key, in.value}, "setnx": {"SET", key, in.value, "NX"}, "append": {"APPEND", key, in.value}, "delete": {"DEL", key},
		"incr": {"INCRBY", key, in.value}, "release": {"EVAL", release, "1", key, in.value}, "get": {"GET", key}, "flush": {"FLUSHALL"}}[in.op]
	fmt.Fprintf(rw, "*%d\r\n", len(words))
	for _, x := range words {
		fmt.Fprintf(rw, "$%d\r\n%s\r\n", len(x), x)
	}
	line := ""
	if err = rw.Flush(); err == nil {
		line, err = rw.ReadString('\n')
	}
	line = strings.TrimSuffix(line, "\r\n")
	if n, ok := strings.CutPrefix(line, "$"); ok && err == nil {
		size, _ := strconv.Atoi(n)
		if line = ""; size >= 0 {
			value := make([]byte, size+2)
			_, err = io.ReadFull(rw, value)
			line = string(value[:size])
		}
	}
	return cacheOutput{err != nil || strings.HasPrefix(line, "-"), line}, err
}

// applyRedis is apply for Redis.
func (in cacheInput) applyRedis(value string) (next, answer string) {
	old, _ := strconv.Atoi(value)
	by, _ := strconv.Atoi(in.value)
	switch in.op {
	case "get":
		return value, value
	case "set":
		return in.value, "+OK"
	case "setnx":
		if value != "" {
			return value, ""
		}
		return in.value, "+OK"
	case "append":
		return value + in.value, fmt.Sprintf(":%d", len(value)+len(in.value))
	case "incr":
		return strconv.Itoa(old + by), fmt.Sprintf(":%d", old+by)
	case "flush":
		return "", "+OK"
	}
	if value == "" || in.op == "release" && value != in.value {
		return value, ":0"
	}
	return "", ":1"
}
