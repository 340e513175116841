package picture

import (
	"bytes"
	"strings"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

func words() *Words { return Of("", cql.Layout{CapacityBits: 2, VersionBits: 27}) }

// The page shows the last rows first, and has all others.
func TestPageHasAllRows(t *testing.T) {
	now := fabric.Time(0)
	tr := New(func() fabric.Time { return now }, words())
	const rows = 3*chunkRows + 7
	for range rows / 2 {
		now += 10
		tr.Begin(fabric.Client(1, 1), "get key1")
		now += 10
		tr.End(fabric.Client(1, 1), "done")
	}
	tr.Begin(fabric.Client(1, 1), "<script>alert(1)</script>")
	var b bytes.Buffer
	if err := tr.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(b.String(), `<div id="tip">`)
	if n := strings.Count(first, `class="row `); n != chunkRows {
		t.Errorf("%d rows are shown at first, want %d", n, chunkRows)
	}
	if n := strings.Count(rest, `class="row `); n != rows-chunkRows {
		t.Errorf("%d rows are shown on request, want %d", n, rows-chunkRows)
	}
	if n := strings.Count(rest, `class="chunk"`); n != 3 {
		t.Errorf("they are in %d parts, want 3", n)
	}
	if strings.Contains(b.String(), "<script>alert") {
		t.Error("a text is taken for markup")
	}
}

// An objection to a history of operations is marked at the operation that it points at.
func TestBlameMarksTheOperation(t *testing.T) {
	tr := New(func() fabric.Time { return 0 }, words())
	o := &oracle.StoreOp{Client: 7, Method: "get", Key: "key1", Result: oracle.NotFound}
	tr.Begin(fabric.Client(1, 1), "get key1")
	tr.End(fabric.Client(1, 1), o.String())
	tr.Blame("the 2 operations on key key1 are not linearizable:\n\t[1, 2] client 7 set key1 \"x\": done\n\t[3, 4] " + o.String() + here)
	if r := tr.rows[1]; r.kind != kindObjection || !strings.HasSuffix(r.text, o.String()) {
		t.Errorf("the operation is drawn as %s: %s", kindNames[r.kind], r.text)
	}
}

// Words of DecLock's locks, tokens and messages.
func TestWords(t *testing.T) {
	w, y := words(), cql.Layout{CapacityBits: 2, VersionBits: 27}
	l := fabric.At(0, 4096)
	w.Name(l, y.Lock().Size, "lock 0", w.Lock)
	header := y.Header(5, 2, 1, 3)
	e := &sim.Event{Step: sim.StepEffect, Op: &fabric.Op{Kind: fabric.OpFAA, Addr: l}, Old: uint64(y.Header(5, 1, 1, 3)), New: uint64(header)}
	entry := cql.MakeEntry(lock.Exclusive, fabric.Client(2, 1), 4, 99)
	for _, c := range []struct{ got, want string }{
		{w.Effect(e), "lock 0: qhead=5 qsize=1 wcnt=1 reset=3 → qsize=2"},
		{w.Effect(&sim.Event{Step: sim.StepEffect, Op: &fabric.Op{Kind: fabric.OpWrite, Addr: l.Add(16)}, New: uint64(entry)}),
			"lock 0: entry[1]=0 → entry[1]={exclusive,cn2/1,v4,t99}"},
		{w.Token(cql.Token(2, 7, 9)), "(generation 2, index 7, seq 9)"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL, Body: [7]uint64{uint64(l), 7}}), "Grant{lock 0 index 7}"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL + 4, Body: [7]uint64{uint64(l), 7, uint64(cql.NodeFailure)}}), "AskReset{lock 0 index 7, failed node}"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL + 9, Body: [7]uint64{uint64(l), 7}}), "Probe{lock 0 index 7}"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL + 10, Body: [7]uint64{uint64(l), 7}}), "Answer{lock 0 index 7}"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL + 3, Body: [7]uint64{uint64(l), 7, 0, 0, 0, 0, 1<<16 | 3<<8 | 2}}), "ResetAck{lock 0 header 0x7, from cn2 to cn3}"},
		{w.Message(&fabric.Message{Kind: fabric.MsgCQL + 8, Body: [7]uint64{uint64(l), 7, (1<<20|2<<12|1)<<21 | 5<<12 | 3}}), "Members{lock 0 index 7: 10s cn5/3, 11x cn2/1}"},
		{w.Message(&fabric.Message{Kind: 0xfff, Body: [7]uint64{64, 1}}), "message 0xfff{mn0+0x40 0x1}"},
		{treeWord(1<<60 | 64<<32 | 5), "alive used=64"},
		{treeWord(3<<60 | 9<<38 | 2), "moving version=9 shadow=0x80"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}
