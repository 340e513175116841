package fleet

import (
	"slices"
	"testing"
)

// Compute nodes serve clients of other systems at ports side by side, at any, or at sockets of one directory.
func TestPorts(t *testing.T) {
	for at, want := range map[string][]string{
		"":                nil,
		"127.0.0.1:11211": {"127.0.0.1:11211", "127.0.0.1:11212", "127.0.0.1:11213"},
		"[::1]:0":         {"[::1]:0", "[::1]:0", "[::1]:0"},
		"/run/x.sock":     {"/run/x.sock", "/run/x.sock.2", "/run/x.sock.3"},
	} {
		if got, err := ports("memcached", at, 3); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", at, got, err, want)
		}
	}
	for _, at := range []string{"x.sock", "h:65534", "h:none"} {
		if got, err := ports("memcached", at, 3); err == nil {
			t.Errorf("%q: %q", at, got)
		}
	}
}
