package daemon

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Memory of a server of clients of other systems. The garbage collector lets the heap grow to a multiple of what lives (GOGC, 400 % in what declock up starts), which is right
// for the few megabytes that there are mostly, and not when clients make the server hold as much as they may.

// heapRoom is memory for what is no client's: the library's, and the program.
const heapRoom = 256 << 20

// heapLimit returns the bound of the process's memory of Go, below which the garbage collector lets it grow: so much more than what clients may have the servers hold that it need not collect all
// the time. 0: none, for there are no servers, or the user has said another.
func (d *CN) heapLimit() int64 {
	if len(d.fronts) == 0 || os.Getenv("GOMEMLIMIT") != "" {
		return 0
	}
	limit := int64(heapRoom)
	for _, f := range d.fronts {
		b := f.MaxMemory()
		limit += min(b+b/4, math.MaxInt64/8)
	}
	return limit
}

// limitHeap bounds the process's memory of Go, and has the kernel get back what clients do not need any more, until ctx ends.
func (d *CN) limitHeap(ctx context.Context) {
	limit := d.heapLimit()
	if limit == 0 {
		return
	}
	debug.SetMemoryLimit(limit)
	go func() {
		h := newHeapLook()
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(heapEvery):
			}
			if h.due() {
				before, _ := h.read()
				debug.FreeOSMemory()
				h.freed(before)
			}
		}
	}()
}

const (
	// heapEvery is how often the heap is looked at.
	heapEvery = 2 * time.Second
	// heapKept is how much more memory than after the last time the process may keep.
	heapKept = 64 << 20
	// What was in use the last time may not be any more: so many looks after it, and after twice as many when that gives nothing back.
	heapFirst, heapLast = 3, 150
)

// A heapLook says when memory is to be given back to the kernel, which Go does by itself only slowly after a collection, and collects every two minutes if nothing is allocated.
type heapLook struct {
	samples   []metrics.Sample
	kept      uint64 // by the process after the last time
	allocated uint64 // so far, at the last look
	looks     int    // since the last time
	wait      int    // looks until the next time in any case
}

func newHeapLook() *heapLook {
	h := &heapLook{samples: []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}, {Name: "/gc/heap/allocs:bytes"}}}
	h.kept, h.allocated = h.read()
	h.wait = heapFirst
	return h
}

// read returns what the process has of the kernel now, and what it has allocated so far.
func (h *heapLook) read() (has, allocated uint64) {
	metrics.Read(h.samples)
	return h.samples[0].Value.Uint64() - h.samples[1].Value.Uint64(), h.samples[2].Value.Uint64()
}

// due reports whether the process has much more memory than after the last time, or much that has been there for some time, and has hardly allocated any since the last look: what it takes now it will not have to ask for again soon.
func (h *heapLook) due() bool {
	has, allocated := h.read()
	quiet := allocated-h.allocated < has/16
	h.allocated = allocated
	h.kept = min(h.kept, has)
	h.looks++
	return quiet && (has > h.kept+h.kept/4+heapKept || h.looks >= h.wait && has > 2*heapKept)
}

// freed notes how much is left of what there was.
func (h *heapLook) freed(before uint64) {
	h.kept, h.allocated = h.read()
	if h.looks, h.wait = 0, min(2*h.wait, heapLast); h.kept+heapKept < before {
		h.wait = heapFirst
	}
}
