//go:build cgo && !shmonly

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/declock/declock/coordinator"
	"github.com/declock/declock/fabric"
	"golang.org/x/sys/unix"
)

func TestRegionsFollowTheLimit(t *testing.T) {
	for _, x := range []struct {
		size, limit uint64
		regions     uint64
	}{
		{1 << 20, 0, 1}, {1 << 20, 1 << 20, 1}, {1<<20 + 1, 1 << 20, 3}, {1 << 20, 1 << 18, 8}, {1<<20 - 8, 100_000, 32}, {64 << 30, 1<<64 - 1, 1},
	} {
		shift := regionShift(x.size, x.limit)
		if got := (x.size-1)>>shift + 1; got != x.regions || x.regions > 1 && 2<<shift > x.limit {
			t.Errorf("%d bytes with at most %d: %d regions of %d", x.size, x.limit, got, uint64(1)<<shift)
		}
	}
}

// A key is in no text that is made of what has one.
func TestKeysAreNotPrinted(t *testing.T) {
	const key, hex = "3735928559", "deadbeef"
	r := attachReply{Keys: []memoryKey{0xdeadbeef}}
	for _, format := range []string{"%v", "%+v", "%#v", "%d", "%x", "%s"} {
		if text := strings.ToLower(fmt.Sprintf(format, r)); strings.Contains(text, key) || strings.Contains(text, hex) {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

// Memory that a device takes in pieces only is one memory to its users: operations begin and end anywhere.
func TestMemoryInSeveralRegions(t *testing.T) {
	needDevice(t)
	const size = 1<<20 - 4096
	c := newTestCluster(t)
	c.change = func(o *Options) { o.regionLimit = 128 << 10 }
	t.Cleanup(c.Close)
	s := c.Serve(0, size)
	c.Join()
	if n := len(s.mem.regions); n != 16 {
		t.Errorf("%d regions", n)
	}
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	buf, back := p.Alloc(64<<10), p.Alloc(64<<10)
	for i := range buf {
		buf[i] = byte(i>>8) ^ byte(i)
	}
	do := func(ops ...fabric.Op) {
		t.Helper()
		if err := p.Do(ops); err != nil {
			t.Fatal(err)
		}
	}
	for offset := uint64(0); offset < size; offset += 60<<10 + 8 {
		n := min(64<<10, size-offset)
		a := fabric.At(0, offset)
		do(fabric.Write(a, buf[:n]), fabric.FAA(a, 1), fabric.Read(a, back[:n]), fabric.CAS(fabric.At(0, offset+n-8), 0, 1))
		if back[0]--; !bytes.Equal(back[:n], buf[:n]) {
			t.Errorf("%d bytes at %v are not what was written", n, a)
		}
	}
	for _, op := range []fabric.Op{fabric.Read(fabric.At(0, size-8), back[:16]), fabric.FAA(fabric.At(0, size), 1)} {
		if err := p.Do([]fabric.Op{op}); !errors.Is(err, fabric.ErrOutOfBounds) {
			t.Errorf("%v: %v", op, err)
		}
	}
	long := p.Alloc(64<<10 + 1)
	if err := p.Do([]fabric.Op{fabric.Read(fabric.At(0, 0), long)}); !errors.Is(err, fabric.ErrBadBuffer) {
		t.Errorf("an operation longer than what regions have in common: %v", err)
	}
}

// Memory may be in huge pages; where they are demanded, and there are none, the error says how many to reserve.
func TestHugePages(t *testing.T) {
	needDevice(t)
	const reserve = "/proc/sys/vm/nr_hugepages"
	if os.Getenv(guestEnv) == "" {
		t.Skip("it would change what this machine has reserved")
	}
	c := newTestCluster(t)
	t.Cleanup(c.Close)
	c.change = func(o *Options) { o.Huge = HugeRequire }
	o := c.options()
	o.Size = 4 << 20
	if _, err := Serve(context.Background(), o); !errors.Is(err, ErrNoHuge) || !strings.Contains(err.Error(), "vm.nr_hugepages=10") {
		t.Errorf("no huge pages: %v", err)
	}
	if err := os.WriteFile(reserve, []byte("4"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(reserve, []byte("0"), 0)
	c.Serve(0, 4<<20)
	c.Join()
	last := []fabric.Op{fabric.FAA(fabric.At(0, 4<<20-8), 1), fabric.Load(fabric.At(0, 4<<20-8))}
	if err := c.Node(0).Agent().Do(last); err != nil || last[1].Old != 1 {
		t.Errorf("the last word: %d, %v", last[1].Old, err)
	}
}

// The device refuses what is outside of memory too, were it ever asked: a compute node that does not check cannot
// read or change a byte behind the end.
func TestDeviceHasTheSameBounds(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	r := remoteOf(c.Nodes[0], 0)
	r.MN.Size += 4096 // as a compute node that does not check
	buf := []byte(nil)
	for range 3 {
		p, err := c.Node(0).Open()
		if err != nil {
			t.Fatal(err)
		}
		buf = p.Alloc(64)
		for _, op := range []fabric.Op{fabric.Read(fabric.At(0, 1<<20-56), buf), fabric.Write(fabric.At(0, 1<<20), buf), fabric.FAA(fabric.At(0, 1<<20), 1)} {
			if err := p.Do([]fabric.Op{op}); !errors.Is(err, fabric.ErrBadKey) {
				t.Errorf("%v: %v", op, err)
			}
		}
	}
}

// Every status of a completion is an error of the fabric; that of an operation which may or may not have been executed
// is ErrUnknownOutcome.
func TestEveryStatusHasAnError(t *testing.T) {
	certain := map[uint32]error{
		statusLocalLength: fabric.ErrBadBuffer, statusLocalAccess: fabric.ErrBadBuffer, statusLocalAccess2: fabric.ErrBadBuffer,
		statusInvalid: fabric.ErrBadChain, statusRemoteAccess: fabric.ErrBadKey,
	}
	for status := uint32(1); status < 30; status++ { // enum ibv_wc_status ends with 23
		for _, lane := range []error{nil, fabric.ErrNodeDown} {
			c := &chain{status: status}
			c.judge(&remote{n: &node{}}, lane)
			want := certain[status]
			if want == nil {
				want = fabric.ErrUnknownOutcome
			}
			if !errors.Is(c.err, want) {
				t.Errorf("status %d: %v, want %v", status, c.err, want)
			}
		}
	}
}

// memlockRole tries to register more than it may.
func memlockRole() {
	o := Options{Insecure: true, Members: coordinator.NewMemory(1)}
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	err := errors.Join(o.check(), unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit))
	var d *device
	if err == nil {
		d, err = openDevice(&o)
	}
	if err == nil {
		_, err = d.mapMemory(64<<20, true, HugeOff, 0)
	}
	fmt.Printf("memlock=%v %v\n", errors.Is(err, ErrMemlock), err)
}

// Where less memory may be locked than is to be lent, the error names the limit and how to raise it.
func TestLimitOfLockedMemoryIsDiagnosed(t *testing.T) {
	needDevice(t)
	files, err := filepath.Glob("/dev/infiniband/*")
	if err != nil || os.Getuid() != 0 {
		t.Skip("only root can become a user with limits: ", err)
	}
	for _, f := range files {
		if err := os.Chmod(f, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"=memlock")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	text := string(out)
	if err != nil || !strings.Contains(text, "memlock=true") || !strings.Contains(text, "RLIMIT_MEMLOCK is 1048576 bytes") ||
		!strings.Contains(text, "ulimit -l unlimited") {
		t.Errorf("%v: %s", err, text)
	}
}
