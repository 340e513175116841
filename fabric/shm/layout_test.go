package shm

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"unsafe"
)

// The formats are golden: memory that was kept must be readable later, and
// processes of different builds may share a cluster.
func TestHeadersGolden(t *testing.T) {
	memory := memoryHeader{flags: flagKeep | flagHuge, size: 0x1122334455, start: hugePageSize, key: 0xa1b2c3d4e5f60718, mem: 0x2a}
	cluster := clusterHeader{maxCN: 0x10, key: 0xa1b2c3d4e5f60718, clock: 0x0123456789abcdef, bootID: [16]byte{1, 2, 3, 15: 16}, slots: 256}
	compute := computeHeader{cn: 3, maxCN: 0x10, incarnation: 0x1122334455667788, slots: 256}
	for _, tt := range []struct {
		name   string
		got    [headerSize]byte
		want   string
		decode func([]byte) bool
	}{
		{"memory", memory.encode(), `
			4445434c4d454d0a 01000000 03000000 5544332211000000 0000200000000000
			1807f6e5d4c3b2a1 2a00 000000000000000000000000000000000000 ce636eee`,
			func(b []byte) bool { var h memoryHeader; return h.decode(b) == nil && h == memory }},
		{"cluster", cluster.encode(), `
			4445434c434c550a 01000000 10000000 1807f6e5d4c3b2a1 efcdab8967452301
			01020300000000000000000000000010 00010000 0000000000000000 d01558cd`,
			func(b []byte) bool { var h clusterHeader; return h.decode(b) == nil && h == cluster }},
		{"compute", compute.encode(), `
			4445434c434e200a 01000000 0300 1000 8877665544332211 00010000
			0000000000000000000000000000000000000000000000000000000000000000 a964d1cd`,
			func(b []byte) bool { var h computeHeader; return h.decode(b) == nil && h == compute }},
	} {
		want, err := hex.DecodeString(strings.Join(strings.Fields(tt.want), ""))
		if err != nil {
			t.Fatal(err)
		}
		if string(tt.got[:]) != string(want) {
			t.Errorf("%s header is\n%x, want\n%x", tt.name, tt.got, want)
		}
		if !tt.decode(tt.got[:]) {
			t.Errorf("%s header is not decoded as it was", tt.name)
		}
		for bit := range headerSize * 8 {
			b := tt.got
			b[bit/8] ^= 1 << (bit % 8)
			if tt.decode(b[:]) {
				t.Errorf("%s header with bit %d turned is accepted", tt.name, bit)
			}
		}
	}
}

func TestDecodeShort(t *testing.T) {
	var h memoryHeader
	if err := h.decode(make([]byte, headerSize-1)); !errors.Is(err, ErrFormat) {
		t.Errorf("short header: %v", err)
	}
}

func TestLayout(t *testing.T) {
	if clusterSize != 24576 || cnSlotsOffset != 4096 || mnSlotsOffset != 20480 {
		t.Errorf("cluster: %d, slots at %d and %d", clusterSize, cnSlotsOffset, mnSlotsOffset)
	}
	if unsafe.Sizeof(ringHead{}) != 64 || unsafe.Sizeof(ringSlot{}) != 64 || unsafe.Offsetof(ringHead{}.waiting) != 8 {
		t.Error("ring")
	}
	if w := makeLive(0x01020304, memUp); w != 0x0102030400000002 || w.epoch() != 0x01020304 || w.state() != memUp {
		t.Errorf("live word %#x", uint64(w))
	}
	if computeSize(16, 256) != 4096+16*(64+256*64) {
		t.Errorf("a compute node's file has %d bytes", computeSize(16, 256))
	}
}
