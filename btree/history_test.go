package btree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// A call is an operation of a history.
type call struct {
	client int
	op     string // get, put, insert, delete, scan, rscan
	key    string
	value  string // put; result of get
	found  bool   // get, delete; insert: it was not there
	pairs  []string
	begun  int64
	ended  int64 // 0: it has not returned
	failed bool  // with an error that leaves its effect open
}

func (o call) String() string {
	return fmt.Sprintf("c%d %s(%s,%s)=%v%v@%d-%d", o.client, o.op, o.key, o.value, o.found, o.pairs, o.begun, o.ended)
}

// A history records what clients did. Its clock counts events.
type history struct {
	calls []*call
	clock int64
}

func (h *history) begin(client int, op, key, value string) *call {
	h.clock++
	o := &call{client: client, op: op, key: key, value: value, begun: h.clock}
	h.calls = append(h.calls, o)
	return o
}

func (h *history) end(o *call) {
	h.clock++
	o.ended = h.clock
}

func (h *history) String() string {
	var b strings.Builder
	for _, o := range h.calls {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// do executes one operation, written as "put k v", "get k", "delete k", "insert k v", "scan", "rscan". Values
// are made as long as inline values may be, so that three fill a tiny leaf.
func (h *history) do(c *Client, client int, text string) error {
	f := append(strings.Fields(text), "", "")
	o := h.begin(client, f[0], f[1], fullValue(f[2]))
	var err error
	switch o.op {
	case "get":
		var v []byte
		v, err = c.Get([]byte(o.key))
		o.value, o.found = string(v), err == nil
	case "put":
		err = c.Put([]byte(o.key), []byte(o.value))
	case "insert":
		err = c.Insert([]byte(o.key), []byte(o.value))
		o.found = err == nil
	case "delete":
		err = c.Delete([]byte(o.key))
		o.found = err == nil
	case "scan", "rscan":
		err = c.Each(Range{Descending: o.op == "rscan"}, func(k, v []byte) bool {
			o.pairs = append(o.pairs, string(k)+"="+string(v))
			return true
		})
	default:
		panic(text)
	}
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrExists) {
		err = nil
	}
	if o.failed = err != nil; !o.failed {
		h.end(o)
	}
	return err
}

func fullValue(v string) string {
	if v == "" {
		return ""
	}
	return (v + "0123456789abcdef")[:16]
}

// pointModel is one key: present with a value, or absent ("").
var pointModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, _ any) (bool, any) {
		have, o := state.(string), in.(*call)
		open := o.ended == 0
		switch o.op {
		case "get":
			return open || o.found == (have != "") && (!o.found || "="+o.value == have), have
		case "put":
			return true, "=" + o.value
		case "insert":
			if have != "" {
				return open || !o.found, have
			}
			return open || o.found, "=" + o.value
		case "delete":
			return open || o.found == (have != ""), ""
		}
		return false, have
	},
}

// linearizable says what is wrong with the point operations of the history, given what was there before.
// A call that has not returned took effect at some time, or not at all.
func (h *history) linearizable(before map[string]string) error {
	byKey := map[string][]porcupine.Operation{}
	never := h.clock + 1
	var keys []string
	add := func(o *call) {
		if byKey[o.key] == nil {
			keys = append(keys, o.key)
			if v, ok := before[o.key]; ok {
				byKey[o.key] = append(byKey[o.key], porcupine.Operation{ClientId: 1 << 20, Input: &call{op: "put", value: v, ended: 1}, Call: -2, Return: -1})
			}
		}
		end := o.ended
		if end == 0 {
			end = never
		}
		byKey[o.key] = append(byKey[o.key], porcupine.Operation{ClientId: o.client, Input: o, Call: o.begun, Return: end})
	}
	for _, o := range h.calls {
		if o.op == "scan" || o.op == "rscan" || o.op == "get" && o.ended == 0 {
			continue
		}
		add(o)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if ok, open := h.tryAll(byKey[k]); !ok {
			return fmt.Errorf("key %q is not linearizable (%d calls open):\n%v", k, open, h)
		}
	}
	return nil
}

// tryAll tries with and without each call that has not returned.
func (h *history) tryAll(ops []porcupine.Operation) (bool, int) {
	var open []int
	for i := range ops {
		if ops[i].Input.(*call).ended == 0 {
			open = append(open, i)
		}
	}
	for mask := range 1 << len(open) {
		var list []porcupine.Operation
		for i := range ops {
			if j := slices.Index(open, i); j < 0 || mask>>j&1 != 0 {
				list = append(list, ops[i])
			}
		}
		if porcupine.CheckOperationsTimeout(pointModel, list, 10*time.Second) != porcupine.Illegal {
			return true, len(open)
		}
	}
	return false, len(open)
}

// scansRight says what is wrong with the scans of the history: keys in order, none twice, each with a value that
// a client put and that was not replaced before; none left out that was there throughout.
func (h *history) scansRight(before map[string]string) error {
	for _, s := range h.calls {
		if s.op != "scan" && s.op != "rscan" || s.ended == 0 {
			continue
		}
		got := map[string]string{}
		last := ""
		for i, p := range s.pairs {
			k, v, _ := strings.Cut(p, "=")
			if i > 0 && (s.op == "scan" && k <= last || s.op == "rscan" && k >= last) {
				return fmt.Errorf("scan: key %q behind %q:\n%v", k, last, h)
			}
			last, got[k] = k, v
		}
		keys := map[string]bool{}
		for k := range before {
			keys[k] = true
		}
		for _, o := range h.calls {
			if o.key != "" {
				keys[o.key] = true
			}
		}
		for k := range got {
			keys[k] = true
		}
		for k := range keys {
			if err := h.scanned(s, k, got, before); err != nil {
				return err
			}
		}
	}
	return nil
}

// scanned judges one key of a scan: as a get of it at some time within the scan.
func (h *history) scanned(s *call, k string, got, before map[string]string) error {
	v, found := got[k]
	var list history
	list.clock = h.clock
	for _, o := range h.calls {
		if o.key == k {
			list.calls = append(list.calls, o)
		}
	}
	list.calls = append(list.calls, &call{client: s.client, op: "get", key: k, value: v, found: found, begun: s.begun, ended: s.ended})
	if err := list.linearizable(before); err != nil {
		return fmt.Errorf("scan %v, key %q: %w\n%v", s, k, err, h)
	}
	return nil
}
