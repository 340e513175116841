//go:build amd64 || arm64

package daemon

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/overtcp"
)

// A memory node whose file, or the file of whose cluster, is truncated ends with an error that names it.
func TestMemoryNodeTruncated(t *testing.T) {
	for _, file := range []string{"mn0", "cluster"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			truncatedMN(t, scheme.SHM("x", dir), scheme.Memory{Size: 1 << 20}, filepath.Join(dir, "declock-x", file))
		})
	}
	t.Run("tcp", func(t *testing.T) {
		t.Parallel()
		etcd, err := os.MkdirTemp("", "declock-etcd") // t.TempDir's is too long for a socket
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(etcd)
		s, err := embedded.Start(t.Context(), embedded.Options{Dir: etcd, Listen: "http://127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		address := "tcp://" + strings.TrimPrefix(s.Endpoint(), "http://") + "/x"
		at, err := scheme.Parse(address, scheme.Options{Options: overtcp.Options{Insecure: true, Listen: "127.0.0.1:0"}, RunDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "memory")
		truncatedMN(t, at, scheme.Memory{Size: 1 << 20, Path: path}, path)
	})
}

// truncatedMN runs a memory node, truncates a file when it serves, and checks how it ends.
func truncatedMN(t *testing.T, at scheme.Cluster, m scheme.Memory, path string) {
	t.Helper()
	r, w := io.Pipe()
	go func() {
		_, _ = r.Read(make([]byte, 1)) // it is ready
		if err := os.Truncate(path, 4096); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a node that does not notice serves until then
	defer cancel()
	err := RunMN(ctx, MNConfig{Cluster: at, Memory: m, Options: Options{Log: slog.New(slog.DiscardHandler)}}, w)
	if text := cmp.Or(err, io.EOF).Error(); exit.Of(err) != exit.NodeLost || !strings.Contains(text, path) {
		t.Errorf("%v (code %v), want %v and %s", err, exit.Of(err), exit.NodeLost, path)
	}
	w.Close()
}
