package web

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A node that cannot be used is not ready, and its process is live all the same.
func TestLivenessIsNotReadiness(t *testing.T) {
	var cannot error
	s, err := Start(Options{Addr: "127.0.0.1:0", Ready: func() error { return cannot }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, cannot = range []error{nil, errors.New("mn0 does not answer")} {
		ready, says := 200, "ok"
		if cannot != nil {
			ready, says = 503, cannot.Error()
		}
		for path, want := range map[string]int{"/healthz": 200, "/readyz": ready, "/status": 503, "/debug/pprof/": 404} {
			r, err := http.Get("http://" + s.Addr() + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if r.Body.Close(); err != nil || r.StatusCode != want || path == "/readyz" && !strings.HasPrefix(string(body), says) {
				t.Errorf("%s with %v: %d, %q, %v", path, cannot, r.StatusCode, body, err)
			}
		}
	}
}
