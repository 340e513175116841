package main

import (
	"bufio"
	"fmt"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// With fewer copies in sync than min-in-sync, data can be read and not changed, and status says so; when there are enough again, it can.
func TestMinInSync(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts many processes")
	}
	t.Parallel()
	w := newWorld(t)
	up, at := w.overTCP("--cns", "1", "--mns", "2", "--replicas", "2", "--min-in-sync", "2", "--redis", "127.0.0.1:0")
	served := regexp.MustCompile(`Redis are served at (127\.0\.0\.1:\d+)`).FindStringSubmatch(up.stdout.String())
	if served == nil {
		t.Fatalf("up says\n%s", up.stdout.String())
	}
	whole := []string{`mn0 +mn0 +yes +mn1 in sync +2 of 2 +1 `, `mn1 +mn1 +yes +mn0 in sync +2 of 2 +1 `}
	w.shows(at, whole...)
	kv := func(args ...string) []string { return append(append([]string{"kv", args[0]}, at...), args[1:]...) }
	w.run(0, kv("set", "k", "1")...)
	for _, pid := range w.processes("--mem") {
		if args := cmdline(pid); strings.Contains(strings.Join(args, " "), "--mem 1") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.shows(at, `mn1 +mn0 +yes `, `data of mn0 is not changed: 1 in sync, at least 2 wanted`, `data of mn1 is not changed: 1 in sync`)
	if _, stderr := w.run(13, kv("set", "k", "2")...); !strings.Contains(stderr, "--min-in-sync") {
		t.Error(stderr)
	}
	if out, _ := w.run(0, kv("get", "k")...); strings.TrimSpace(out) != "1" {
		t.Errorf("it is %q", out)
	}
	// What has no deadline of its own waits for a copy, and goes on.
	named := w.start(append(append([]string{"lock"}, at...), "new name", "true")...)
	conn, err := net.Dial("tcp", served[1])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	redis := bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	answer := make(chan string, 1)
	go func() {
		_, err := cacheInput{redis: true, op: "set", value: "1"}.askRedis(redis)
		answer <- fmt.Sprint(err)
	}()
	select {
	case got := <-answer:
		t.Errorf("a client of Redis is answered: %s", got)
	case <-named.done:
		t.Errorf("lock ends: %s", named.stderr.String())
	case <-time.After(time.Second):
	}
	p := w.start(append([]string{"declock-mn", "--size", "64MiB", "--mem", "1", "--replicas", "2", "--min-in-sync", "2", "--listen", "127.0.0.1:0"}, at...)...)
	p.says("ready node=mn1")
	if got := <-answer; got != "<nil>" || named.wait() != 0 {
		t.Errorf("a client of Redis is answered: %s; lock says %s", got, named.stderr.String())
	}
	w.shows(at, `!data of mn`, `mn0 +mn0 +yes +mn1 in sync +2 of 2 `)
	w.run(0, kv("set", "k", "3")...)
	w.terminate(p)
	w.down(up)
}
