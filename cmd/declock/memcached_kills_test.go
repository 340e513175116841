package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

var memcachedKills = flag.Int("memcached-kills", 5, "how often TestMemcachedUnderKills kills a compute node")

// Three compute nodes serve one store to clients of memcached, each of which asks all of them. One after another is killed and started anew. What the
// clients have seen is linearizable, flush_all included; only an operation whose answer the kill has cut off may have taken place or not.
func TestMemcachedUnderKills(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes")
	}
	w := newWorld(t)
	mn := w.start("declock-mn", "--cluster", "shm:kills", "--dir", "DIR", "--size", "64MiB")
	mn.says("ready node=mn0")
	c := &frontEnds{w: w, begun: time.Now(), served: []string{"memcached"}}
	c.underKills(t, *memcachedKills)
	for _, p := range c.servers {
		w.terminate(p)
	}
	w.terminate(mn)
}

// underKills has clients at work while servers are killed, and checks what they have seen.
func (c *frontEnds) underKills(t *testing.T, kills int) {
	for i := range c.servers {
		c.start(i)
	}
	var clients sync.WaitGroup
	for i := range 6 {
		clients.Go(func() { c.client(i) })
	}
	for n := range kills {
		time.Sleep(time.Duration(100+rand.IntN(300)) * time.Millisecond)
		victim := n % len(c.servers)
		_ = c.servers[victim].cmd.Process.Kill()
		<-c.servers[victim].done
		c.start(victim)
	}
	time.Sleep(200 * time.Millisecond)
	c.stop.Store(true)
	clients.Wait()
	t.Logf("%d operations, %d of them cut off", len(c.history), c.cut)
	if len(c.history) < 200 || kills > 0 && c.cut == 0 {
		t.Errorf("%d operations, %d of them cut off: not a test", len(c.history), c.cut)
	}
	if r := porcupine.CheckOperationsTimeout(cacheModel.ToModel(), c.history, time.Minute); r != porcupine.Ok {
		t.Errorf("the history of %d operations is not linearizable: %v", len(c.history), r)
	}
}

const frontKeys = 5

// frontEnds are servers and the history of what their clients have seen.
type frontEnds struct {
	w       *world
	served  []string // protocols
	args    []string // of each server, besides
	servers [3]*process
	stop    atomic.Bool
	begun   time.Time

	mu        sync.Mutex
	addresses [3]map[string]string // by protocol
	history   []porcupine.Operation
	cut       int
}

var servesAt = regexp.MustCompile(` (memcached|redis)=(\S+)`)

func (c *frontEnds) start(i int) {
	args := append([]string{"declock-cn", "--cluster", "shm:kills", "--dir", "DIR", "--wait", "1m"}, c.args...)
	for _, protocol := range c.served {
		args = append(args, "--"+protocol, "127.0.0.1:0")
	}
	p := c.w.start(args...)
	p.says("ready node=")
	c.servers[i] = p
	c.mu.Lock()
	defer c.mu.Unlock()
	c.addresses[i] = map[string]string{}
	for _, at := range servesAt.FindAllStringSubmatch(p.stdout.String(), -1) {
		c.addresses[i][at[1]] = at[2]
	}
}

// A cacheInput is an operation on a key; flush is one on all keys.
type cacheInput struct {
	op    string
	key   int
	value string
	redis bool // asked by Redis's protocol
}

// A cacheOutput is an answer. If cut, there was none.
type cacheOutput struct {
	cut   bool
	value string // of a get; "" if nothing is there. Of others: what the server says
}

// client asks one server after another, each over a connection of its own.
func (c *frontEnds) client(id int) {
	var all [3]map[string]*bufio.ReadWriter // by protocol
	for n := 0; !c.stop.Load(); n++ {
		i, protocol := rand.IntN(3), c.served[rand.IntN(len(c.served))]
		if all[i] == nil {
			all[i] = map[string]*bufio.ReadWriter{}
		}
		conns := all[i]
		if conns[protocol] == nil {
			c.mu.Lock()
			address := c.addresses[i][protocol]
			c.mu.Unlock()
			nc, err := net.Dial("tcp", address)
			if err != nil {
				time.Sleep(time.Millisecond)
				continue
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			conns[protocol] = bufio.NewReadWriter(bufio.NewReader(nc), bufio.NewWriter(nc))
		}
		ops := [...]string{"set", "append", "delete", "incr", "get", "get", "get", "get"}
		if protocol == "redis" {
			ops = [...]string{"set", "append", "delete", "incr", "setnx", "release", "get", "get"}
		}
		in := cacheInput{redis: protocol == "redis", op: ops[rand.IntN(8)], key: rand.IntN(frontKeys), value: fmt.Sprintf("%d.%d,", id, n)}
		if in.op == "incr" || in.key == 0 && in.op == "set" { // numbers are of key 0
			in.key, in.value = 0, strconv.Itoa(1+rand.IntN(1000))
		} else if in.key == 0 && (in.op == "append" || in.op == "setnx") {
			in.key = 1
		}
		if in.op == "release" { // what the client may have seen, or not
			in.value = c.someValue(in.key)
		}
		if rand.IntN(200) == 0 {
			in = cacheInput{op: "flush", redis: in.redis}
		}
		call := time.Since(c.begun)
		ask := in.ask
		if in.redis {
			ask = in.askRedis
		}
		out, err := ask(conns[protocol])
		if err != nil {
			conns[protocol] = nil
		}
		c.note(id, in, out, call)
	}
}

// ask sends a request, and returns the answer; an error if the connection is of no more use.
func (in cacheInput) ask(rw *bufio.ReadWriter) (out cacheOutput, err error) {
	switch in.op {
	case "set", "append":
		fmt.Fprintf(rw, "%s k%d 0 0 %d\r\n%s\r\n", in.op, in.key, len(in.value), in.value)
	case "incr":
		fmt.Fprintf(rw, "incr k%d %s\r\n", in.key, in.value)
	case "flush":
		fmt.Fprint(rw, "flush_all\r\n")
	default:
		fmt.Fprintf(rw, "%s k%d\r\n", in.op, in.key)
	}
	line := ""
	if err = rw.Flush(); err == nil {
		line, err = rw.ReadString('\n')
	}
	line = strings.TrimSuffix(line, "\r\n")
	if err == nil && strings.HasPrefix(line, "VALUE ") {
		var size int
		_, err = fmt.Sscanf(line[strings.LastIndexByte(line, ' ')+1:], "%d", &size)
		rest := make([]byte, size+len("\r\nEND\r\n"))
		if err == nil {
			_, err = io.ReadFull(rw, rest)
		}
		line = string(rest[:size])
	} else if line == "END" {
		line = ""
	}
	return cacheOutput{err != nil || strings.HasPrefix(line, "SERVER_ERROR"), line}, err
}

// note adds an operation to the history. One that was cut off may take place as long as anybody looks; a get that was says nothing.
func (c *frontEnds) note(id int, in cacheInput, out cacheOutput, call time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := int64(time.Since(c.begun))
	if out.cut {
		c.cut++
		if in.op == "get" {
			return
		}
		end = math.MaxInt64
	}
	c.history = append(c.history, porcupine.Operation{ClientId: id, Input: in, Output: out, Call: int64(call), Return: end})
}

// cacheModel is a cache without eviction, key by key. "" is a key that is not there.
var cacheModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, frontKeys)
		for _, o := range history {
			in := o.Input.(cacheInput)
			for k := range parts {
				if k == in.key || in.op == "flush" {
					parts[k] = append(parts[k], o)
				}
			}
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		value, in, out := state.(string), input.(cacheInput), output.(cacheOutput)
		next, answer := in.apply(value)
		switch {
		case out.cut && next != value:
			return []any{value, next}
		case out.cut || answer == out.value:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// apply returns what a key is after an operation, and what the server says.
func (in cacheInput) apply(value string) (next, answer string) {
	if in.redis {
		return in.applyRedis(value)
	}
	switch in.op {
	case "get":
		return value, value
	case "set":
		return in.value, "STORED"
	case "flush":
		return "", "OK"
	}
	switch {
	case value == "" && in.op == "append":
		return "", "NOT_STORED"
	case value == "":
		return "", "NOT_FOUND"
	case in.op == "append":
		return value + in.value, "STORED"
	case in.op == "delete":
		return "", "DELETED"
	}
	old, _ := strconv.Atoi(value)
	by, _ := strconv.Atoi(in.value)
	sum := strconv.Itoa(old + by)
	return sum, sum
}
