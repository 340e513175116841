package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// Clients of Redis are served by each compute node of a cluster, all with the same keys.
func TestUpServesRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("no redis-cli (Debian: apt-get install redis-tools)")
	}
	w := newWorld(t)
	p := w.up("--redis", "127.0.0.1:0")
	at := regexp.MustCompile(`Redis are served at 127\.0\.0\.1:(\d+), 127\.0\.0\.1:(\d+):`).FindStringSubmatch(p.stdout.String())
	if at == nil {
		t.Fatalf("up says\n%s", p.stdout.String())
	}
	for _, step := range []struct {
		server        int
		request, want string
	}{
		{1, "PING", "PONG"}, {1, "SET key 1", "OK"}, {2, "GET key", "1"}, {2, "INCRBY key 41", "42"}, {1, "-3 GET key", "42"},
		{2, "SET lock token NX PX 60000", "OK"}, {1, "SET lock other NX PX 60000", ""}, {2, "FLUSHALL", "OK"}, {1, "GET key", ""}, {1, "DEL lock", "0"},
	} {
		out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"-p", at[step.server]}, strings.Fields(step.request)...)...).CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != step.want {
			t.Errorf("%s is answered %q (%v), want %q", step.request, got, err, step.want)
		}
	}
	w.followsUp(p)
	w.down(p)
}
