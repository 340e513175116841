package main

import (
	"fmt"
	"os"
	"regexp"
	"runtime"
	"testing"

	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces/memcached"
)

// Clients of memcached are served by each compute node of a cluster, all with the same items; a trace that is replayed on them reads what it has written.
func TestUpServesMemcached(t *testing.T) {
	w := newWorld(t)
	p := w.up("--memcached", "127.0.0.1:0")
	at := regexp.MustCompile(`served at (127\.0\.0\.1:\d+), (127\.0\.0\.1:\d+):`).FindStringSubmatch(p.stdout.String())
	if at == nil {
		t.Fatalf("up says\n%s", p.stdout.String())
	}
	one, err := memcached.DialTarget("memcached://"+at[1], memcached.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := memcached.DialTarget("memcached://"+at[2], memcached.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	if out, _ := w.run(0, "status", "--dir", "DIR", "--json"); os.Getenv("GOMAXPROCS") == "" && !regexp.MustCompile(fmt.Sprintf(`"procs": ?%d\b`, 2*runtime.GOMAXPROCS(0))).MatchString(out) {
		t.Errorf("compute nodes that serve have not two threads for each processor:\n%s", out)
	}
	key := []byte("key")
	if err := one.Set(key, []byte("1"), objstore.Options{Flags: 7}); err != nil {
		t.Fatal(err)
	}
	if n, err := two.Incr(key, 41); err != nil || n != 42 {
		t.Errorf("incr: %d, %v", n, err)
	}
	if it, err := one.Get(key); err != nil || string(it.Value) != "42" || it.Flags != 7 {
		t.Errorf("get: %q, %v", it.Value, err)
	}
	if err := two.FlushAll(); err != nil {
		t.Error(err)
	}
	if it, err := one.Get(key); err != objstore.ErrNotFound {
		t.Errorf("get after flush_all: %q, %v", it.Value, err)
	}
	out, _ := w.run(0, "replay", "--dir", "DIR", "--target", "memcached://"+at[1], "--keys", "1000", "--ops", "20k", "--verify", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 20000.0 || all["verify_failures"] != 0.0 || all["errors"] != 0.0 {
		t.Errorf("%v", all)
	}
	w.down(p)
}
