package lab

import (
	"encoding/json"
	"net"
	"strings"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/front/memcached"
)

// A server is measured by each kind of request; one that loses keys, or is not there, is an error.
func TestBenchMemcached(t *testing.T) {
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	s, err := memcached.New(memcached.Options{})
	if err == nil {
		err = s.Attach(c, declock.StoreConfig{Objects: 1000})
	}
	l, listenErr := net.Listen("tcp", "127.0.0.1:0")
	if err != nil || listenErr != nil {
		t.Fatal(err, listenErr)
	}
	go func() { _ = s.Serve(l) }()
	defer func() {
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	args := []string{"bench", "memcached", "--target", "memcached://" + l.Addr().String(), "--rounds", "1", "--window", "20ms", "--conns", "3", "--keys", "50", "--keys-per-get", "10", "--json"}
	out, err := labRun(args...)
	var v struct{ Rows []mcRow }
	if err == nil {
		err = json.Unmarshal([]byte(out), &v)
	}
	if err != nil || len(v.Rows) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, r := range v.Rows {
		if r.Rate <= 0 || r.P50 <= 0 || r.P99 < r.P50 {
			t.Errorf("%+v", r)
		}
	}
	if _, err := labRun("bench", "memcached"); exit.Of(err) != exit.Usage {
		t.Errorf("without a target: %v", err)
	}
	if _, err := labRun("bench", "memcached", "--target", "memcached://127.0.0.1:1"); exit.Of(err) != exit.Unavailable || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("a server that is not there: %v", err)
	}
}
