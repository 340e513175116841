//go:build !shmonly && !noetcdserver

package embedded_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/embedded"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// TestMain makes this an etcd for programs that have none in them (another.go), if that is what the process is for.
func TestMain(m *testing.M) {
	options := os.Getenv("DECLOCK_TEST_ETCD_OPTIONS")
	if options == "" {
		os.Exit(m.Run())
	}
	if err := serve(options); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// serve is an etcd until standard input ends.
func serve(options string) error {
	var o embedded.Options
	if err := json.Unmarshal([]byte(options), &o); err != nil {
		return err
	}
	s, err := embedded.Start(context.Background(), o)
	if err != nil {
		return err
	}
	fmt.Println("ready", s.Endpoint())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return s.Close()
}

// TestDataSurvive: a server that is started again in its directory has its data.
func TestDataSurvive(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "declock-etcd") // t.TempDir's is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, o := range []embedded.Options{{Dir: dir}, {Dir: dir, Listen: "http://127.0.0.1:0"}} {
		s, err := embedded.Start(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(ctx, "key")
		if err != nil {
			t.Fatal(err)
		}
		if n := len(got.Kvs); (n == 1) != (o.Listen != "") {
			t.Errorf("%d keys with %+v", n, o)
		}
		if _, err := c.Put(ctx, "key", "value"); err != nil {
			t.Fatal(err)
		}
		c.Close()
		s.Close()
	}
}

// TestSocketIsPrivate: only its user may open the server's directory.
func TestSocketIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "e")
	_, err := embedded.Start(context.Background(), embedded.Options{Dir: filepath.Join(dir, strings.Repeat("x", 100))})
	if err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a path that is too long: %v", err)
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", st.Mode(), err)
	}
}

// TestGivenUp: a start that ctx ends is an error.
func TestGivenUp(t *testing.T) {
	dir, err := os.MkdirTemp("", "declock-etcd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s, err := embedded.Start(ctx, embedded.Options{Dir: dir})
	if err == nil {
		s.Close() // it was faster
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestFullDisk: an etcd that panics because its disk is full is an error.
func TestFullDisk(t *testing.T) {
	dir, err := os.MkdirTemp("", "declock-etcd")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("no file system to fill: %v", err)
	}
	defer func() { _ = unix.Unmount(dir, 0) }()
	s, err := embedded.Start(t.Context(), embedded.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "is there room in "+dir) {
		t.Errorf("%v, %v", s, err)
	}
}
