//go:build amd64 || arm64

package mapped

import (
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

const page = 4096

func mapNew(t *testing.T, pages int) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(int64(pages * page)); err != nil {
		t.Fatal(err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return f, b
}

func guard(t *testing.T, b []byte) *Range {
	r := Guard(unsafe.Pointer(&b[0]), uintptr(len(b)))
	t.Cleanup(r.Release)
	return r
}

// Loads, stores, atomics and copies in a file that was truncated take place in zeros, and the guard reports it.
func TestTruncated(t *testing.T) {
	for name, access := range map[string]func([]byte){
		"load":   func(b []byte) { _ = atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[3*page]))) },
		"store":  func(b []byte) { b[3*page] = 1 },
		"atomic": func(b []byte) { atomic.AddUint64((*uint64)(unsafe.Pointer(&b[3*page])), 1) },
		"copy":   func(b []byte) { copy(make([]byte, 4*page), b) },
		"clear":  func(b []byte) { clear(b) },
	} {
		t.Run(name, func(t *testing.T) {
			f, b := mapNew(t, 4)
			_, other := mapNew(t, 1)
			r, ro := guard(t, b), guard(t, other)
			b[0], other[0] = 7, 7
			if err := f.Truncate(2 * page); err != nil {
				t.Fatal(err)
			}
			if r.Lost() || b[0] != 7 {
				t.Fatal("lost before an access")
			}
			access(b)
			if !r.Lost() || b[0] != 0 {
				t.Errorf("Lost is %v, and the first byte %d", r.Lost(), b[0])
			}
			if ro.Lost() || other[0] != 7 {
				t.Error("another mapping is lost too")
			}
		})
	}
}

// Many goroutines run into it at a time.
func TestTruncatedUnderMany(t *testing.T) {
	f, b := mapNew(t, 64)
	r := guard(t, b)
	var running, done sync.WaitGroup
	for g := range 8 {
		running.Add(1)
		done.Go(func() {
			for i := 0; !r.Lost(); i++ {
				atomic.AddUint64((*uint64)(unsafe.Pointer(&b[(g+i)%64*page])), 1)
				if i == 0 {
					running.Done()
				}
			}
		})
	}
	running.Wait()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	done.Wait()
}

// Faults elsewhere are the Go runtime's, as before.
func TestOtherFaults(t *testing.T) {
	_, mine := mapNew(t, 1)
	guard(t, mine)
	f, b := mapNew(t, 1)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	fault := func(access func()) (err any) {
		defer func() { err = recover() }()
		access()
		return nil
	}
	if fault(func() { b[0] = 1 }) == nil {
		t.Error("no fault in memory that is not guarded")
	}
	r := Guard(unsafe.Pointer(&b[0]), page)
	r.Release()
	if fault(func() { b[0] = 1 }) == nil {
		t.Error("no fault in memory that is not guarded any more")
	}
	var p *int
	if fault(func() { *p = 1 }) == nil {
		t.Error("no fault at nil")
	}
}
