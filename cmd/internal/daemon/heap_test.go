package daemon

import (
	"runtime/debug"
	"testing"
)

// The heap's limit is above what clients may have the servers hold, and GOMEMLIMIT is another.
func TestHeapLimit(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	r, m := Redis{Listen: "x"}, Memcached{Listen: "x"}
	redis, err := r.server(nil)
	if err != nil {
		t.Fatal(err)
	}
	memcached, err := m.server(nil)
	if err != nil {
		t.Fatal(err)
	}
	var d CN
	if n := d.heapLimit(); n != 0 {
		t.Errorf("no server: a limit of %d", n)
	}
	d.fronts = []*frontEnd{{frontServer: redis}}
	one := d.heapLimit()
	if one < 5<<28 || one > 7<<28 {
		t.Errorf("for Redis's clients, whose buffers have 1 GiB: %d", one)
	}
	d.fronts = append(d.fronts, &frontEnd{frontServer: memcached})
	if both := d.heapLimit(); both < one+memcached.MaxMemory() {
		t.Errorf("both: %d, for Redis's alone %d", both, one)
	}
	t.Setenv("GOMEMLIMIT", "1GiB")
	if n := d.heapLimit(); n != 0 {
		t.Errorf("GOMEMLIMIT: a limit of %d", n)
	}
}

var burst []byte

// What clients have had the process take goes back to the kernel, once: not while it is asked for, nor again and again if it stays.
func TestMemoryIsGivenBackAfterABurst(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no collection but the look's
	debug.FreeOSMemory()
	h := newHeapLook()
	if h.due() {
		t.Error("due before the burst")
	}
	burst = make([]byte, 2*heapKept)
	if h.due() {
		t.Error("due while it allocates")
	}
	burst = nil
	before, _ := h.read()
	if !h.due() {
		t.Fatal("not due after the burst")
	}
	debug.FreeOSMemory()
	h.freed(before)
	if after, _ := h.read(); after > before-heapKept {
		t.Errorf("%d MiB before, %d MiB after", before>>20, after>>20)
	}
	if h.due() {
		t.Error("due again, though nothing was allocated")
	}
}

// What is in use when memory is given back, and is not later, goes back too, after a while; the looks become few when there is nothing.
func TestMemoryThatWasInUseIsGivenBack(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	burst = make([]byte, 3*heapKept)
	h := newHeapLook()
	next := func() (looks int) {
		for looks = 1; !h.due() && looks < 1000; looks++ {
		}
		before, _ := h.read()
		debug.FreeOSMemory()
		h.freed(before)
		return looks
	}
	if a, b, c := next(), next(), next(); a != heapFirst || b != 2*a || c != 2*b {
		t.Errorf("in use: given back after %d, %d and %d looks", a, b, c)
	}
	before, _ := h.read()
	burst = nil
	next()
	if after, _ := h.read(); after+2*heapKept > before {
		t.Errorf("%d MiB before, %d MiB after", before>>20, after>>20)
	}
}
