//go:build amd64 || arm64

package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/internal/secure/securetest"
	"github.com/declock/declock/overtcp"
)

// A memory node asks the others for the length of lock queues as a compute node. With a certificate that is for memory nodes only it
// is refused, and is told what to do: with --lock-queue it asks none.
func TestCertificateOfMemoryNodesOnly(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "declock-etcd") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	etcd, err := embedded.Start(t.Context(), embedded.Options{Dir: dir, Listen: "http://127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	authority := securetest.New(t)
	// run runs a memory node until it serves, or fails; stop ends it.
	run := func(id string, queue int) (stop func() error, err error) {
		at, err := scheme.Parse("tcp://"+strings.TrimPrefix(etcd.Endpoint(), "http://")+"/x", scheme.Options{
			Options: overtcp.Options{Listen: "127.0.0.1:0", TLS: authority.Files(id, "mn.declock")}, RunDir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		cfg := MNConfig{Cluster: at, Memory: scheme.Memory{Size: 1 << 20}, LockQueue: queue, Options: Options{Log: slog.New(slog.DiscardHandler)}}
		if id != "mn0" {
			cfg.Memory.ID = 1
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, w := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			err := RunMN(ctx, cfg, w)
			w.Close()
			ended <- err
		}()
		if _, rerr := r.Read(make([]byte, 1)); rerr != nil { // it ended before it was ready
			cancel()
			return nil, <-ended
		}
		go func() { _, _ = io.Copy(io.Discard, r) }()
		return func() error { cancel(); return <-ended }, nil
	}
	first, err := run("mn0", 0)
	if err != nil {
		t.Fatalf("the first memory node, which has none to ask: %v", err)
	}
	second, err := run("mn1", 0)
	if err == nil || !strings.Contains(err.Error(), "cn.declock") || !strings.Contains(err.Error(), "--lock-queue") {
		t.Errorf("the second one: %v", err)
	}
	if err == nil {
		err = second()
		t.Error(err)
	}
	if second, err = run("mn1", scheme.DefaultMaxCN); err != nil {
		t.Errorf("the second one, which need not ask: %v", err)
	} else if err := second(); err != nil {
		t.Error(err)
	}
	if err := first(); err != nil {
		t.Error(err)
	}
}
