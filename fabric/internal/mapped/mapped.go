// Package mapped guards memory that is mapped from files. An access to a page for which the file has no memory any more, because
// it was truncated or its file system is full, is a SIGBUS, which ends the process of a Go program. In guarded memory it is not:
// the whole range becomes private memory of zeros, the access takes place there, and Lost reports it from then on. So code that uses
// the memory runs on, holds no lock that is not released, and compares afterwards.
//
// Two things are outside of this package: where the handler that the Go runtime has installed for SIGBUS does not run on a signal stack, or gets no
// siginfo, nothing is guarded; and under vm.overcommit_memory=2 the kernel may refuse the private memory. The fault ends the process then.
//
// debug.SetPanicOnFault would have to be set around each access, by each goroutine, and its panic would unwind code that holds locks.
// Journals of systemd are guarded in the way of this package.
package mapped

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Range is guarded memory. sigbus knows its layout.
type Range struct {
	base, size uintptr
	lost       atomic.Uint32
}

// Guard guards a mapping of a whole number of pages, until Release.
func Guard(base unsafe.Pointer, size uintptr) *Range {
	r := &Range{base: uintptr(base), size: size}
	install()
	mu.Lock()
	defer mu.Unlock()
	publish(append(current(), r))
	return r
}

// Release ends the guard. Nothing may use the memory any more; call it before the mapping is removed.
func (r *Range) Release() {
	mu.Lock()
	defer mu.Unlock()
	publish(slices.DeleteFunc(current(), func(o *Range) bool { return o == r }))
}

// Lost reports whether an access has found no memory, and all of the range is private memory since.
func (r *Range) Lost() bool { return r.lost.Load() != 0 }

// ranges is what the signal handler reads: a slice that never changes once it is here. A Range or slice that is not in use any more is
// freed when the garbage collector has stopped all goroutines, and so not while a handler that interrupted one reads it.
var (
	mu     sync.Mutex
	ranges *[]*Range
)

// current returns a copy of the guarded ranges; mu is held.
func current() []*Range {
	if ranges == nil {
		return nil
	}
	return slices.Clone(*ranges)
}

func publish(list []*Range) {
	atomic.StorePointer((*unsafe.Pointer)(unsafe.Pointer(&ranges)), unsafe.Pointer(&list))
}

// A sigaction is the kernel's, on amd64 and arm64.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// Flags of a sigaction.
const (
	withInfo = 0x4       // SA_SIGINFO: the handler has three arguments
	onStack  = 0x8000000 // SA_ONSTACK: it runs on the signal stack
)

// previous is the handler of the Go runtime, for faults elsewhere.
//
//lint:ignore U1000 sigbus, which is assembly, reads it
var previous uintptr

// install puts sigbus before the handler of the Go runtime, with the flags that the runtime has set: it runs on the signal stack. Should the
// kernel refuse, or should there be no such handler, faults end the process.
var install = sync.OnceFunc(func() {
	pc := handlerPC()
	var act sigaction
	if pc == 0 || !rtSigaction(nil, &act) || act.handler <= 1 || act.flags&withInfo == 0 || act.flags&onStack == 0 {
		return
	}
	previous = act.handler
	act.handler = pc
	rtSigaction(&act, nil)
})

func rtSigaction(set, old *sigaction) bool {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGBUS), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)),
		unsafe.Sizeof(sigaction{}.mask), 0, 0)
	return errno == 0
}
