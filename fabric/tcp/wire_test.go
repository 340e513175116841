package tcp

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// golden compares bytes with what they have always been: words in hex, as in the bit boxes, the most significant first.
func golden(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	var words []string
	for ; len(got) >= 8; got = got[8:] {
		var w [8]byte
		for i := range w {
			w[i] = got[7-i]
		}
		words = append(words, hex.EncodeToString(w[:]))
	}
	if len(got) > 0 {
		words = append(words, "+"+hex.EncodeToString(got))
	}
	if s := strings.Join(words, " "); s != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%s is\n%s, want\n%s", what, s, want)
	}
}

// The wire format: these bytes must not change without a new version.
func TestGoldenBytes(t *testing.T) {
	h := hello{role: roleLane, cn: 0x12, index: 3, min: 1, max: 2, caps: 3, from: 0x1111, to: 0x2222, revision: 0x3333, number: 0x4444}
	b := h.encode()
	golden(t, "a hello", b[:], `544b434f4c434544 0003120100020001 0000000000000003 0000000000001111
		0000000000002222 0000000000003333 0000000000004444 0000000000000000`)
	r := reply{version: 1, code: codeFenced, known: true, caps: 3, size: 0x10000, number: 0x55, key: 0x6666, epoch: 7, revision: 0x88, text: "no"}
	golden(t, "a reply", r.encode(), `544b434f4c434544 0001000200010001 0000000000000003 0000000000010000
		0000000000000055 0000000700006666 0000000000000088 0000000000000000 +6e6f`)

	buf := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	wide := &fabric.Wide{Cmp: [2]uint64{1, 2}, CmpMask: [2]uint64{3, 4}, Swap: [2]uint64{5, 6}, SwapMask: [2]uint64{7, 8}, Boundary: [2]uint64{9, 10}}
	a := fabric.At(3, 0x40)
	ops := []fabric.Op{fabric.Read(a, buf), fabric.Write(a, buf), fabric.Load(a), fabric.Store(a, 0x77), fabric.CAS(a, 0x11, 0x22), fabric.FAA(a, 0x33),
		{Kind: fabric.OpMaskedCAS, Addr: a, Wide: wide}, {Kind: fabric.OpMaskedFAA, Addr: a, Wide: wide},
		{Kind: fabric.OpMaskedCAS16, Addr: a, Wide: wide}, {Kind: fabric.OpMaskedFAA16, Addr: a, Wide: wide}}
	frame, to, count, modifies := appendChain(nil, ops, cursor{})
	if to.op != len(ops) || count != len(ops) || !modifies {
		t.Fatalf("the frame ends at %+v and has %d operations", to, count)
	}
	f := header{length: len(frame), kind: frameChain, count: count, number: laneNumber(0xabcd, 0x6666)}
	f.put(frame)
	golden(t, "a chain", frame, `00000a0100000130 000066660000abcd
		0100000000000040 0000000000000009
		0200000000000040 0000000000000009 0807060504030201 0000000000000009
		0300000000000040
		0400000000000040 0000000000000077
		0500000000000040 0000000000000011 0000000000000022
		0600000000000040 0000000000000033
		0700000000000040 0000000000000001 0000000000000003 0000000000000005 0000000000000007
		0800000000000040 0000000000000005 0000000000000009
		0900000000000040 0000000000000001 0000000000000002 0000000000000003 0000000000000004
		                 0000000000000005 0000000000000006 0000000000000007 0000000000000008
		0a00000000000040 0000000000000005 0000000000000006 0000000000000009 000000000000000a`)

	var w peer.WireMessage
	w.Encode(0x123, 0x456, &fabric.Message{Kind: 0x1000, Body: [7]uint64{1, 2, 3, 4, 5, 6, 7}})
	golden(t, "a message", w[:], `0000100000123456 0000000000000001 0000000000000002 0000000000000003
		0000000000000004 0000000000000005 0000000000000006 0000000000000007`)
	ack := header{length: headerSize, kind: frameAck, number: 9}
	var ab [headerSize]byte
	ack.put(ab[:])
	golden(t, "an acknowledgement", ab[:], "0000000400000010 0000000000000009")
}

// testNIC has a page of memory, and key 0x6666.
func testNIC(t testing.TB) *nic {
	m, err := openMemory(&Options{Size: 4096})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	x := newNIC(m)
	x.key.Store(0x6666)
	return x
}

// The answer to a chain: what the operations return, and where the first that is refused stands.
func TestGoldenAnswer(t *testing.T) {
	x := testNIC(t)
	buf := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	in := make([]byte, 9)
	a := fabric.At(0, 0x40)
	ops := []fabric.Op{fabric.Write(a, buf), fabric.FAA(a, 1), fabric.Read(a, in), fabric.FAA(fabric.At(0, 4096), 1), fabric.FAA(a, 1)}
	frame, to, count, _ := appendChain(nil, ops, cursor{})
	h := header{length: len(frame), kind: frameChain, count: count, number: laneNumber(5, 0x6666)}
	answer, err := x.execute(&h, frame[headerSize:], nil, new(counts))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "an answer", answer, "0001030200000028 0000000000000005 0807060504030201 0807060504030202 0000000000000009")
	var g header
	if ok, err := g.parse(answer); !ok || err != nil || g.status != statusOutOfBounds || g.count != 3 {
		t.Fatalf("the answer's header is %+v, %v", g, err)
	}
	if err := takeResults(answer[headerSize:], ops, cursor{}, to, g.count); err != nil {
		t.Fatal(err)
	}
	if ops[1].Old != 0x0807060504030201 || in[0] != 2 || in[8] != 9 {
		t.Errorf("the results are %#x and %v", ops[1].Old, in)
	}
}

// Numbers of frames wrap.
func TestFrameNumbersWrap(t *testing.T) {
	l := &lane{}
	l.written = 2
	for number, want := range map[uint32]bool{^uint32(0): true, 0: true, 1: true, 2: false, 3: false} {
		if got := l.executed(number, nil); got != want {
			t.Errorf("frame %d may have been executed: %v, want %v", number, got, want)
		}
		if got := l.executed(number, &reply{known: true, number: 1}); got != (want && number != 1) {
			t.Errorf("frame %d has been executed: %v", number, got)
		}
	}
	// What was posted before there was a first connection: the memory node counts from there.
	l.written = 0
	if l.executed(0, &reply{known: true, number: 1}) {
		t.Error("a frame that was never written is said to have been executed")
	}
}

// Frames of a chain that is too large for one: all of it, once, and words stay whole.
func TestChainInParts(t *testing.T) {
	x := testNIC(t)
	big := make([]byte, 200_001)
	for i := range big {
		big[i] = byte(i)
	}
	for _, offset := range []uint64{0, 1, 5, 8} {
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 0), 1), fabric.Write(fabric.At(0, 64+offset), big), fabric.Read(fabric.At(0, 64+offset), make([]byte, len(big))),
			fabric.Load(fabric.At(0, 0))}
		total := map[int]int{}
		for at := (cursor{}); at.op < len(ops); {
			frame, to, count, _ := appendChain(nil, ops, at)
			if len(frame) > maxFrame || count == 0 {
				t.Fatalf("a frame of %d bytes with %d operations", len(frame), count)
			}
			if to.op < len(ops) && to.off > 0 && (64+offset+uint64(to.off))%8 != 0 {
				t.Errorf("a piece ends within a word, at %#x", 64+offset+uint64(to.off))
			}
			h := header{length: len(frame), kind: frameChain, count: count}
			h.put(frame)
			if ok, err := h.parse(frame); !ok || err != nil {
				t.Fatal(err)
			}
			for k := at; k != to; {
				end := k
				if k.op == to.op {
					end = to
				} else {
					end = cursor{k.op + 1, 0}
				}
				n := end.off - k.off
				if end.op != k.op {
					n = ops[k.op].Size() - k.off
				}
				total[k.op] += n
				k = end
			}
			at = to
		}
		for i := range ops {
			if total[i] != ops[i].Size() {
				t.Errorf("%d bytes of operation %d (%d) were sent", total[i], i, ops[i].Size())
			}
		}
	}
	_ = x
}

// FuzzExecute: what a peer sends is executed or refused, and never reaches beyond the memory.
func FuzzExecute(f *testing.F) {
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1), fabric.Write(fabric.At(0, 4090), []byte("abcdef")), fabric.Read(fabric.At(0, 9), make([]byte, 20))}
	frame, _, count, _ := appendChain(nil, ops, cursor{})
	f.Add(frame[headerSize:], count)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, body []byte, count int) {
		if len(body) > maxFrame-headerSize {
			return
		}
		x := testNIC(t)
		h := header{length: headerSize + len(body), kind: frameChain, count: count & fabric.MaxChain, number: laneNumber(1, 0x6666)}
		var n counts
		out, err := x.execute(&h, body, nil, &n)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("error %v", err)
			}
			return
		}
		var g header
		if ok, err := g.parse(out); !ok || err != nil || g.length != len(out) || g.count > h.count {
			t.Errorf("an answer of %d bytes with header %+v, %v", len(out), g, err)
		}
	})
}

// FuzzAnswer: whatever a memory node answers, a compute node takes it or says what is wrong.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, 1)
	f.Add(make([]byte, 64), 4)
	f.Fuzz(func(t *testing.T, body []byte, count int) {
		buf := make([]byte, 20)
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1), fabric.Read(fabric.At(0, 9), buf[:13]), fabric.Store(fabric.At(0, 8), 1),
			{Kind: fabric.OpMaskedFAA16, Addr: fabric.At(0, 64), Wide: &fabric.Wide{}}}
		if err := takeResults(body, ops, cursor{}, cursor{len(ops), 0}, count&7); err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("error %v", err)
		}
		if !bytes.Equal(buf[13:], make([]byte, 7)) {
			t.Error("bytes behind the buffer were written")
		}
	})
}

// FuzzHello and the rest: decoders take anything.
func FuzzHello(f *testing.F) {
	h := hello{role: roleLane, cn: 1, from: 1, min: 1, max: 1}
	b := h.encode()
	f.Add(b[:])
	r := reply{text: "x"}
	f.Add(r.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		var b [helloSize]byte
		copy(b[:], data)
		var h hello
		if h.decode(&b) == nil {
			if again := h.encode(); h.decode(&again) != nil {
				t.Error("a hello that was accepted is refused when it is encoded again")
			}
		}
		var r reply
		if n, err := r.decode(&b); err == nil && (n < 0 || n > maxText) {
			t.Errorf("a text of %d bytes", n)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h header
		ok, err := h.parse(data)
		if ok && (err != nil || h.length > len(data) || h.length < headerSize) {
			t.Errorf("%d bytes have a frame of %d, %v", len(data), h.length, err)
		}
	})
}

// FuzzMessages: frames of messages from a peer.
func FuzzMessages(f *testing.F) {
	h := header{length: headerSize + 64, kind: frameMessages, count: 1}
	frame := make([]byte, h.length)
	h.put(frame)
	f.Add(frame)
	c := newTestCluster(f)
	f.Cleanup(c.Close)
	n := c.Join()
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &inLink{n: n, in: make([]byte, inBuffer)}
		l.have = copy(l.in, data)
		if err := l.deliver(); err != nil && !errors.Is(err, ErrProtocol) {
			t.Errorf("error %v", err)
		}
	})
}
