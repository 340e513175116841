package peer

import (
	"encoding/hex"
	"testing"

	"github.com/declock/declock/fabric"
)

// The wire format of messages: do not change.
func TestWireMessage(t *testing.T) {
	m := fabric.Message{From: 7, Kind: 0x01020304, Body: [7]uint64{0x1122334455667788, 0, 0, 0, 0, 0, ^uint64(0)}}
	var w WireMessage
	w.Encode(0xabc, 0x123, &m)
	const want = "23c1ab0004030201" + "8877665544332211" + "0000000000000000000000000000000000000000" + "0000000000000000000000000000000000000000" + "ffffffffffffffff"
	if got := hex.EncodeToString(w[:]); got != want {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
	var back fabric.Message
	from, to := w.Decode(&back)
	m.From = 0 // the receiver knows it from the connection
	if from != 0xabc || to != 0x123 || w.IsMark() || back != m {
		t.Errorf("decoded as %#x to %#x (mark: %v): %+v", from, to, w.IsMark(), back)
	}
	if w.Mark(); !w.IsMark() || hex.EncodeToString(w[:8]) != "0000008000000000" {
		t.Errorf("a mark is %x", w[:])
	}
}
