//go:build linux && (amd64 || arm64)

package daemon

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
)

// A memory node whose file, or the file of whose cluster, is truncated ends with an error that names it.
func TestMemoryNodeTruncated(t *testing.T) {
	for _, file := range []string{"mn0", "cluster"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			path := filepath.Join(dir, "declock-x", file)
			r, w := io.Pipe()
			go func() {
				_, _ = r.Read(make([]byte, 1)) // it is ready
				if err := os.Truncate(path, 4096); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, r)
			}()
			log := slog.New(slog.DiscardHandler)
			err := RunMN(t.Context(), MNConfig{Cluster: scheme.SHM("x", dir), Memory: scheme.Memory{Size: 1 << 20}, Options: Options{Log: log}}, w)
			if exit.Of(err) != exit.NodeLost || !strings.Contains(err.Error(), path) {
				t.Errorf("%v (code %v), want %v and %s", err, exit.Of(err), exit.NodeLost, path)
			}
			w.Close()
		})
	}
}
