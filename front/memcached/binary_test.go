package memcached

import (
	"encoding/binary"
	"io"
	"testing"
)

// A packetAnswer is an answer in the binary protocol.
type packetAnswer struct {
	op     opcode
	status binStatus
	extras string
	key    string
	value  string
	cas    uint64
}

// packet sends a binary request.
func (c *client) packet(op opcode, cas uint64, extras, key, value string) {
	c.t.Helper()
	b := []byte{binRequest, byte(op)}
	b = binary.BigEndian.AppendUint16(b, uint16(len(key)))
	b = append(b, byte(len(extras)), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(extras)+len(key)+len(value)))
	b = binary.BigEndian.AppendUint32(b, 0xabcd)
	b = binary.BigEndian.AppendUint64(b, cas)
	c.send(string(b) + extras + key + value)
}

// answer reads an answer in the binary protocol.
func (c *client) answer() (a packetAnswer) {
	c.t.Helper()
	h := make([]byte, binHeader)
	if _, err := io.ReadFull(c.r, h); err != nil || h[0] != binResponse || binary.BigEndian.Uint32(h[12:]) != 0xabcd {
		c.t.Fatalf("header % x, %v", h, err)
	}
	body := make([]byte, binary.BigEndian.Uint32(h[8:]))
	if _, err := io.ReadFull(c.r, body); err != nil {
		c.t.Fatal(err)
	}
	extras, key := int(h[4]), int(binary.BigEndian.Uint16(h[2:]))
	return packetAnswer{opcode(h[1]), binStatus(binary.BigEndian.Uint16(h[6:])), string(body[:extras]), string(body[extras:][:key]), string(body[extras+key:]),
		binary.BigEndian.Uint64(h[16:])}
}

const noExtras = "\x00\x00\x00\x00\x00\x00\x00\x00"

// Requests of the binary protocol do what those of ASCII do, and quiet ones say only what is not as it should be.
func TestBinary(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for _, x := range []struct {
		op                 opcode
		cas                uint64
		extras, key, value string
		want               packetAnswer
	}{
		{opGet, 0, "", "a", "", packetAnswer{status: binNotFound, value: "Not found"}},
		{opGetK, 0, "", "a", "", packetAnswer{status: binNotFound, key: "a"}},
		{opSet, 0, "\x00\x00\x00\x07\x00\x00\x00\x00", "a", "value", packetAnswer{}},
		{opGet, 0, "", "a", "", packetAnswer{extras: "\x00\x00\x00\x07", value: "value"}},
		{opGetK, 0, "", "a", "", packetAnswer{extras: "\x00\x00\x00\x07", key: "a", value: "value"}},
		{opAdd, 0, noExtras, "a", "value", packetAnswer{status: binExists, value: "Data exists for key."}},
		{opReplace, 0, noExtras, "b", "value", packetAnswer{status: binNotFound, value: "Not found"}},
		{opAppend, 0, "", "a", "!", packetAnswer{}},
		{opPrepend, 0, "", "b", "!", packetAnswer{status: binNotStored, value: "Not stored."}},
		{opGAT, 0, "\x00\x00\x00\x10", "a", "", packetAnswer{extras: "\x00\x00\x00\x07", value: "value!"}},
		{opTouch, 0, "\x00\x00\x00\x10", "a", "", packetAnswer{extras: "\x00\x00\x00\x07"}},
		{opSet, 1, noExtras, "a", "w", packetAnswer{status: binExists, value: "Data exists for key."}},
		{opSet, 1, noExtras, "b", "w", packetAnswer{status: binNotFound, value: "Not found"}},
		{opDelete, 1, "", "a", "", packetAnswer{status: binExists, value: "Data exists for key."}},
		{opIncrement, 0, noExtras + noExtras + "\x00\x00\x00\x00", "a", "", packetAnswer{status: binNotNumber, value: binTexts[binNotNumber]}},
		{opIncrement, 0, noExtras + noExtras + "\xff\xff\xff\xff", "n", "", packetAnswer{status: binNotFound, value: "Not found"}},
		{opIncrement, 0, noExtras + "\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x00", "n", "", packetAnswer{value: "\x00\x00\x00\x00\x00\x00\x00\x09"}},
		{opDecrement, 0, "\x00\x00\x00\x00\x00\x00\x00\x0a" + noExtras + "\x00\x00\x00\x00", "n", "", packetAnswer{value: noExtras}},
		{opDelete, 0, "", "a", "", packetAnswer{}},
		{opDelete, 0, "", "a", "", packetAnswer{status: binNotFound, value: "Not found"}},
		{opVersion, 0, "", "", "", packetAnswer{value: Version}},
		{opStep, 0, "", "x", "", packetAnswer{status: binUnknown, value: "Unknown command"}},
		{0x77, 0, "", "", "body", packetAnswer{status: binUnknown, value: "Unknown command"}},
		{opFlush, 0, "", "", "", packetAnswer{}},
		{opGet, 0, "", "n", "", packetAnswer{status: binNotFound, value: "Not found"}},
	} {
		c.packet(x.op, x.cas, x.extras, x.key, x.value)
		got := c.answer()
		got.cas = 0
		if x.want.op = x.op; got != x.want {
			t.Errorf("%d %q is answered %+v, want %+v", x.op, x.key, got, x.want)
		}
	}
	c.packet(opStat, 0, "", "", "")
	names := 0
	for c.answer().key != "" {
		names++
	}
	if names < 50 {
		t.Errorf("%d statistics", names)
	}
	for _, op := range []opcode{opGetQ, opGetKQ, opSetQ, opAppendQ, opFlushQ} {
		extras, value := "", ""
		switch op {
		case opSetQ:
			extras, value = noExtras, "v"
		case opAppendQ:
			value = "w"
		}
		key := "q"
		if op == opFlushQ {
			key = ""
		}
		c.packet(op, 0, extras, key, value)
	}
	c.packet(opDeleteQ, 0, "", "q", "")
	if a := c.answer(); a.op != opDeleteQ || a.status != binNotFound {
		t.Errorf("%+v", a)
	}
	c.packet(opNoop, 0, "", "", "")
	if a := c.answer(); a.op != opNoop {
		t.Errorf("%+v", a)
	}
	c.packet(opGet, 0, "extra", "key", "") // not sound
	if a := c.answer(); a.status != binInvalid || !c.ended() {
		t.Errorf("%+v", a)
	}
}
