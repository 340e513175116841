package tcp_test

import (
	"io"
	"os"
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"golang.org/x/sys/unix"
)

// A process has so few descriptors left that a node can not be opened, or only just: that is an error, wherever it runs out of them.
func TestOpenWithFewDescriptors(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	o := tcp.Options{Members: coordinator.NewMemory(fabric.MaxCN), Insecure: true, Listen: "127.0.0.1:0", Size: 1 << 20}
	for name, open := range map[string]func() (io.Closer, error){
		"memory node":  func() (io.Closer, error) { return closer(tcp.Serve(t.Context(), o)) },
		"compute node": func() (io.Closer, error) { return closer(tcp.Join(t.Context(), o)) },
	} {
		opened := 0
		for few := uint64(0); opened < 3; few++ {
			if few == 1000 {
				t.Fatalf("%s: it does not open with 1,000 descriptors", name)
			}
			now := unix.Rlimit{Cur: descriptors(t) + few, Max: limit.Max}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &now); err != nil {
				t.Fatal(err)
			}
			c, err := open()
			if again := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); again != nil {
				t.Fatal(again)
			}
			if err != nil {
				continue
			}
			opened++
			if few == 0 {
				t.Errorf("%s: it opens without a descriptor", name)
			}
			if err := c.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// closer returns what was opened, or nil.
func closer[T io.Closer](c T, err error) (io.Closer, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// descriptors returns the lowest descriptor that is free: the process has as many below it.
func descriptors(t *testing.T) uint64 {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return uint64(f.Fd())
}
