//go:build amd64 || arm64

package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/mn"
)

// A memory node that is about to be formatted leaves the length of lock queues to others. One that cannot be read does not.
func TestLockQueueOfOthers(t *testing.T) {
	at := scheme.SHM("x", t.TempDir())
	serve := func(m scheme.Memory) scheme.Server {
		srv, err := at.Serve(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = srv.Close() })
		return srv
	}
	first := serve(scheme.Memory{Size: 1 << 20, MaxCN: 4})
	cfg := &MNConfig{Cluster: at, Memory: scheme.Memory{ID: 1, Size: 1 << 20}, Options: Options{Log: slog.New(slog.DiscardHandler)}}
	second := serve(cfg.Memory)
	if n, err := lockQueue(t.Context(), cfg, second); n != 0 || err != nil {
		t.Errorf("beside one that is not formatted: %d, %v", n, err)
	}
	const damage = 0x6d656d6f7279
	first.Word(8).Store(damage)
	_, err := lockQueue(t.Context(), cfg, second)
	if err == nil || !strings.Contains(err.Error(), "mn0") || !strings.Contains(err.Error(), "--lock-queue") || errors.Is(err, memory.ErrNotFormatted) {
		t.Errorf("beside one that cannot be read: %v", err)
	}
	cfg.LockQueue = 16
	if n, err := lockQueue(t.Context(), cfg, second); n != 16 || err != nil {
		t.Errorf("with --lock-queue: %d, %v", n, err)
	}
	cfg.LockQueue = 0
	first.Word(8).Store(0)
	if _, err := mn.Start(first, mn.Config{Queue: 32}); err != nil {
		t.Fatal(err)
	}
	if n, err := lockQueue(t.Context(), cfg, second); n != 32 || err != nil {
		t.Errorf("beside one with queues of 32: %d, %v", n, err)
	}
}

// A stoppedCluster is asked to stop when a memory node asks the others for the length of lock queues.
type stoppedCluster struct {
	scheme.Cluster
	stop context.CancelFunc
}

var errClose = errors.New("cannot be closed")

type stoppedServer struct{ scheme.Server }

func (s stoppedServer) Close() error { return errors.Join(s.Server.Close(), errClose) }

func (c stoppedCluster) Serve(ctx context.Context, m scheme.Memory) (scheme.Server, error) {
	srv, err := c.Cluster.Serve(ctx, m)
	return stoppedServer{srv}, err
}

func (c stoppedCluster) Describe(context.Context) (*scheme.Info, error) {
	return nil, errors.New("no description")
}

func (c stoppedCluster) Visit(ctx context.Context) (fabric.Node, error) {
	c.stop()
	return nil, ctx.Err()
}

// To be asked to stop is no error of a memory node that starts; what cannot be closed then is one.
func TestMemoryNodeStoppedWhileItStarts(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	at := stoppedCluster{scheme.SHM("x", t.TempDir()), stop}
	err := RunMN(ctx, MNConfig{Cluster: at, Memory: scheme.Memory{Size: 1 << 20}, Options: Options{Log: slog.New(slog.DiscardHandler)}}, io.Discard)
	if !errors.Is(err, errClose) || errors.Is(err, context.Canceled) {
		t.Errorf("%v, want only %v", err, errClose)
	}
}

// A copiedCluster has copies of mn0 on other memory nodes.
type copiedCluster struct {
	scheme.Cluster
	joined int
}

func (c *copiedCluster) Describe(context.Context) (*scheme.Info, error) {
	return &scheme.Info{Groups: []scheme.GroupInfo{{Number: "mn0", Replicas: 2}}}, nil
}

func (c *copiedCluster) Serve(ctx context.Context, m scheme.Memory) (scheme.Server, error) {
	c.joined++
	return c.Cluster.Serve(ctx, m)
}

// A memory node without replicas does not join with a number that has copies: that might end a member that has one.
func TestNumberWithCopiesIsNotJoined(t *testing.T) {
	at := &copiedCluster{Cluster: scheme.SHM("x", t.TempDir())}
	err := RunMN(t.Context(), MNConfig{Cluster: at, Memory: scheme.Memory{Size: 1 << 20}, Options: Options{Log: slog.New(slog.DiscardHandler)}}, io.Discard)
	if exit.Of(err) != exit.Mismatch || !strings.Contains(err.Error(), "--replicas 2") || at.joined > 0 {
		t.Errorf("it has joined %d times: %v", at.joined, err)
	}
}

// When the work of a replay is closed in the middle of a trace, nothing reads the trace any more.
func TestTraceIsNotReadAfterClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	if err := os.WriteFile(path, []byte(strings.Repeat("0,key,3,10,0,get,0\n", 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		spec := control.Replay{Path: path, Deal: "by-key", Clients: 1, Total: 1}
		w, err := newWork(t.Context(), &spec, func(context.Context, *control.Replay) (*client, error) {
			return &client{close: func() error { return nil }}, nil
		})
		if err != nil {
			t.Fatal(err, exit.Of(err))
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.dealer.Finished():
		default:
			t.Fatal("the dealer may still read the trace, which is closed")
		}
	}
}
