package objstore

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric/sim"
)

// An update sees the object that is there, as much of it as it asks for, and does one thing to it.
func TestUpdate(t *testing.T) {
	_, c := one(t, nil)
	c.SetNow(100)
	var seen Object
	update := func(read int, ifFound bool, ch Change) error {
		seen = Object{}
		return c.Update(b("k"), Update{Read: read, IfFound: ifFound, Apply: func(o *Object) Change {
			seen = *o
			seen.Value = bytes.Clone(o.Value)
			return ch
		}})
	}
	wantErr(t, "of nothing, if found", update(0, true, Change{Action: Put}), ErrNotFound)
	for _, a := range []Action{Keep, Expire, Remove} {
		wantErr(t, "of nothing", update(-1, false, Change{Action: a}), nil)
		if seen.Found || seen.Size != 0 || seen.Value != nil {
			t.Errorf("found %+v", seen)
		}
	}
	before := seen.Token
	wantErr(t, "put", update(0, false, Change{Action: Put, Value: b("value"), Flags: 7, Expiry: 110}), nil)
	if seen.Token <= before {
		t.Errorf("token %d after %d", seen.Token, before)
	}
	wantErr(t, "keep", update(3, false, Change{}), nil)
	if !seen.Found || string(seen.Value) != "val" || seen.Size != 5 || seen.Flags != 7 || seen.Expiry != 110 || seen.Access != 100 || seen.Now != 100 {
		t.Errorf("found %+v", seen)
	}
	wantErr(t, "too large", update(0, true, Change{Action: Put, Value: make([]byte, c.s.MaxValue()+1)}), ErrValueSize)
	wantErr(t, "expire", update(-1, true, Change{Action: Expire, Expiry: 200}), nil)
	if string(seen.Value) != "value" {
		t.Errorf("value %q", seen.Value)
	}
	c.SetNow(150)
	if it := wantValue(t, c, "k", "value"); it.Expiry != 200 || it.Access != 150 {
		t.Errorf("%+v", it)
	}
	wantErr(t, "larger, of what it sees", c.Update(b("k"), Update{Read: -1, Apply: func(o *Object) Change {
		return Change{Action: Put, Value: o.Value[1:3], Flags: o.Flags, Expiry: o.Expiry}
	}}), nil)
	wantValue(t, c, "k", "al")
	c.SetNow(200)
	wantErr(t, "expired", update(-1, false, Change{}), nil)
	if seen.Found || !seen.Expired {
		t.Errorf("found %+v", seen)
	}
	wantErr(t, "put in place of an expired one", update(0, false, Change{Action: Put, Value: b("w")}), nil)
	wantValue(t, c, "k", "w")
	wantErr(t, "remove", update(0, true, Change{Action: Remove}), nil)
	wantMiss(t, c, "k")
	mustBeSound(t, c)
}

// A function that panics changes nothing, and leaves the bucket free for others: a program such as a web server recovers.
func TestUpdatePanics(t *testing.T) {
	w := newWorld(t, sim.Config{}, 1, 16<<20, 2)
	c, other := w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))
	wantErr(t, "set", c.Set(b("k"), b("v"), Options{}), nil)
	for _, key := range []string{"k", "none"} {
		func() {
			defer func() {
				if recover() != "user" {
					t.Error("the panic is gone")
				}
			}()
			_ = c.Update(b(key), Update{Read: -1, Apply: func(*Object) Change { panic("user") }})
		}()
		for _, c := range []*Client{c, other} {
			wantErr(t, "afterwards", c.Update(b(key), Update{Apply: func(*Object) Change { return Change{} }}), nil)
		}
	}
	wantValue(t, c, "k", "v")
	mustBeSound(t, c)
}

// Tokens are those of the lock, so they grow with each change of a key, also beyond its deletion and from client to client.
func TestTokensGrowWithChanges(t *testing.T) {
	w := newWorld(t, sim.Config{}, 1, 16<<20, 2)
	var last uint64
	clients := []*Client{w.client(0, w.open(0, w.config())), w.client(1, w.open(1, w.config()))}
	for i := range 12 {
		c, ch := clients[i%2], Change{Action: Put, Value: b("v")}
		if i%3 == 2 {
			ch.Action = Remove
		}
		wantErr(t, "update", c.Update(b("k"), Update{Apply: func(o *Object) Change {
			if uint64(o.Token) <= last {
				t.Errorf("change %d: token %d after %d", i, o.Token, last)
			}
			last = uint64(o.Token)
			return ch
		}}), nil)
	}
}

// An update of an object that exists does what the operations of the same kind do, and allocates nothing.
func TestUpdateAllocatesNothing(t *testing.T) {
	_, c := one(t, nil)
	key, value := b("some-key"), make([]byte, 414)
	u := Update{Read: 16, Apply: func(*Object) Change { return Change{Action: Put, Value: value} }}
	wantErr(t, "put", c.Update(key, u), nil)
	if n := testing.AllocsPerRun(20, func() { wantErr(t, "put", c.Update(key, u), nil) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
