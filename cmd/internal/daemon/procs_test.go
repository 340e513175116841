package daemon

import (
	"runtime"
	"testing"
)

// A server of clients of other systems has twice as many threads as processors, unless its user has said how many.
func TestThreadsOfServers(t *testing.T) {
	memcached, redis := Memcached{Listen: "127.0.0.1:0"}, Redis{Listen: "127.0.0.1:0"}
	twice := 2 * runtime.GOMAXPROCS(0)
	for _, test := range []struct {
		cfg  CNConfig
		env  string
		want int
	}{
		{CNConfig{}, "", 0},
		{CNConfig{Memcached: memcached}, "", twice},
		{CNConfig{Redis: redis}, "", twice},
		{CNConfig{Redis: redis}, "3", 0},
		{CNConfig{Redis: redis, Procs: 1}, "", 1},
		{CNConfig{Procs: 5}, "", 5},
	} {
		t.Setenv("GOMAXPROCS", test.env)
		if n := test.cfg.procs(); n != test.want {
			t.Errorf("%+v, GOMAXPROCS=%q: %d threads, want %d", test.cfg, test.env, n, test.want)
		}
	}
}
