package shm

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"github.com/declock/declock/fabric"
	"pgregory.net/rapid"
)

// testRing returns both sides of a ring in ordinary memory.
func testRing(slots uint32) (in, out *ring, words []uint64) {
	words = make([]uint64, (ringsOffset+ringSize(slots))/wordSize)
	m := &mapping{base: unsafe.Pointer(unsafe.SliceData(words)), size: uintptr(len(words) * wordSize)}
	a, b := openRing(m, slots, 1), openRing(m, slots, 1)
	a.produce()
	return &a, &b, words
}

// A ring is a queue that is full at its length; at any time another producer
// can take over, as after a crash.
func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		slots := uint32(8) << rapid.IntRange(0, 3).Draw(rt, "log2 slots/8")
		in, out, _ := testRing(slots)
		// Near the wrap of the lap, or at the beginning.
		skip := rapid.SampledFrom([]uint64{0, 254, 255, 256, 1000}).Draw(rt, "laps before") * uint64(slots)
		var m fabric.Message
		for range skip {
			if !in.push(1, 2, &m) {
				rt.Fatal("full")
			}
			out.pop(&m)
			out.publish()
		}
		var queue []uint64
		next, unpublished := uint64(0), 0
		rt.Repeat(map[string]func(*rapid.T){
			"push": func(rt *rapid.T) {
				ok := in.push(int(next)&slotIndexMask, int(next*7)&slotIndexMask, &fabric.Message{
					Kind: fabric.MsgKind(next * 0x1234567), Body: [7]uint64{next, 6: ^next}})
				if ok != (len(queue)+unpublished < int(slots)) {
					rt.Fatalf("push: %v with %d in the ring and %d taken", ok, len(queue), unpublished)
				}
				if ok {
					queue = append(queue, next)
				}
				next++
			},
			"pop": func(rt *rapid.T) {
				from, to, ok := out.pop(&m)
				if ok != (len(queue) > 0) {
					rt.Fatalf("pop: %v with %d in the ring", ok, len(queue))
				}
				if !ok {
					return
				}
				n := queue[0]
				queue, unpublished = queue[1:], unpublished+1
				if m.Body[0] != n || m.Body[6] != ^n || from != int(n)&slotIndexMask ||
					to != int(n*7)&slotIndexMask || m.Kind != fabric.MsgKind(n*0x1234567) {
					rt.Fatalf("%d from %d to %d: %+v", n, from, to, m)
				}
			},
			"publish": func(*rapid.T) { out.publish(); unpublished = 0 },
			"take over": func(rt *rapid.T) {
				pos := in.pos
				in.pos, in.seen = 0, 0
				if in.produce(); in.pos != pos {
					rt.Fatalf("the next producer is at %d, not %d", in.pos, pos)
				}
			},
		})
	})
}

func TestFullRingIsReported(t *testing.T) {
	in, out, _ := testRing(8)
	var m fabric.Message
	for in.push(0, 0, &m) {
	}
	out.pop(&m)
	if out.publish() {
		t.Error("no producer waits")
	}
	in.shared.waiting.Store(1)
	if !out.publish() || out.publish() {
		t.Error("a waiting producer is not notified once")
	}
}

// Whatever is in a ring, both sides stay within it, and what comes out has
// indexes in range.
func TestRingWithGarbage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, out, words := testRing(16)
		garbage := rapid.SliceOfN(rapid.Uint64(), 16, 64).Draw(rt, "garbage")
		for i := ringsOffset / wordSize; i < len(words); i++ {
			words[i] = garbage[i%len(garbage)]
		}
		if rapid.Bool().Draw(rt, "plausible laps") {
			for i := range in.slots {
				header := in.slots[i].header.Load()
				in.slots[i].header.Store(header&^0xff | 1)
			}
		}
		in.produce()
		var m fabric.Message
		for range 100 {
			in.push(1, 1, &m)
			from, to, ok := out.pop(&m)
			if ok && (from < 0 || from > fabric.MaxClientIndex || to < 0 || to > fabric.MaxClientIndex) {
				rt.Fatalf("from %d to %d", from, to)
			}
			out.publish()
		}
	})
}

func TestSlotHeaderGolden(t *testing.T) {
	h := makeSlotHeader(0x11223344, 0xabc, 0xdef, 0x99)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(h))
	if want := [8]byte{0x99, 0xef, 0xcd, 0xab, 0x44, 0x33, 0x22, 0x11}; b != want {
		t.Errorf("% x, want % x", b, want)
	}
	if h.kind() != 0x11223344 || h.from() != 0xabc || h.to() != 0xdef || h.lap() != 0x99 {
		t.Errorf("%x %x %x %x", h.kind(), h.from(), h.to(), h.lap())
	}
}

// Two goroutines, one ring: for the race detector, and for the order of the
// stores.
func TestRingConcurrent(t *testing.T) {
	in, out, _ := testRing(8)
	const count = 50000
	go func() {
		for i := uint64(0); i < count; {
			if in.push(0, 0, &fabric.Message{Body: [7]uint64{i, 3: i, 6: i}}) {
				i++
			} else {
				runtime.Gosched()
			}
		}
	}()
	for i := uint64(0); i < count; {
		var m fabric.Message
		if _, _, ok := out.pop(&m); !ok {
			runtime.Gosched()
			continue
		}
		if m.Body[0] != i || m.Body[3] != i || m.Body[6] != i {
			t.Fatalf("message %d: %+v", i, m)
		}
		i++
		out.publish()
	}
}
