//go:build amd64 || arm64

package tcp

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
)

// serveFile serves 1 MiB from a file, and ends the server, as declock-mn does, when it does not serve any more.
func serveFile(t *testing.T, heartbeat time.Duration) (c *testCluster, s *MemoryServer, path string) {
	c, path = newTestCluster(t), filepath.Join(t.TempDir(), "memory")
	c.change = func(o *Options) { o.File, o.Heartbeat, o.DeadAfter = path, heartbeat, 10*heartbeat }
	s = c.Serve(0, 1<<20)
	c.change = nil
	t.Cleanup(c.Close)
	go func() {
		<-s.Done()
		_ = s.Close()
	}()
	return c, s, path
}

func wantTruncated(t *testing.T, s *MemoryServer, path string) {
	t.Helper()
	select {
	case <-s.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the server does not notice")
	}
	if err := s.Err(); !errors.Is(err, ErrTruncated) || !errors.Is(err, fabric.ErrNodeDown) || !strings.Contains(err.Error(), path) {
		t.Errorf("the server says %v, want %v, %v and %s", err, fabric.ErrNodeDown, ErrTruncated, path)
	}
}

// Chains run into memory of which the file was truncated: no client gets an answer that was computed with zeros in the place of what was there, not
// even for words that are still in the file, and the memory node ends with an error that names the file.
func TestFileTruncatedUnderClients(t *testing.T) {
	const last = 1<<20 - 8
	for name, x := range map[string]struct {
		ops  []fabric.Op
		want error
	}{
		"reads":   {[]fabric.Op{fabric.Load(fabric.At(0, 0)), fabric.Load(fabric.At(0, last)), fabric.Load(fabric.At(0, 0))}, fabric.ErrNodeDown},
		"changes": {[]fabric.Op{fabric.FAA(fabric.At(0, last), 1)}, fabric.ErrUnknownOutcome},
		"writes":  {[]fabric.Op{fabric.Store(fabric.At(0, last), 1)}, fabric.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			c, s, path := serveFile(t, time.Minute) // so that it is the operations that notice
			p := peertest.Open(t, c.Join())
			peertest.Do(t, p, fabric.Store(fabric.At(0, 0), 7), fabric.Store(fabric.At(0, last), 7))
			if err := os.Truncate(path, 1<<19); err != nil {
				t.Fatal(err)
			}
			if err := p.Do(x.ops); !errors.Is(err, x.want) {
				t.Errorf("%v, want %v; results %+v", err, x.want, x.ops)
			}
			if err := p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))}); !errors.Is(err, fabric.ErrNodeDown) {
				t.Errorf("the next: %v", err)
			}
			wantTruncated(t, s, path)
		})
	}
}

// A memory node that is not in use notices that its file was truncated.
func TestFileTruncated(t *testing.T) {
	_, s, path := serveFile(t, minHeartbeat)
	if err := os.Truncate(path, 1<<19); err != nil {
		t.Fatal(err)
	}
	wantTruncated(t, s, path)
}
