package objstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
	"pgregory.net/rapid"
)

// segmented makes values of more than 64 bytes have segments.
func segmented(cfg *Config) { cfg.Segment, cfg.MaxValue = 64, 512 }

// stray returns how many segments there are in a store, and how many of them no list names.
func stray(t testing.TB, c *Client) (all, unnamed int) {
	t.Helper()
	named := map[segmentRef]bool{}
	slots := func(see func(*SlotDump)) {
		for _, n := range c.s.h.Parts {
			for b := range c.s.geo.buckets {
				d, err := c.Inspect(n.MN, b)
				wantErr(t, "inspect", err, nil)
				for i := range d.Slots {
					wantErr(t, "slot", d.Slots[i].Err, nil)
					see(&d.Slots[i])
				}
			}
		}
	}
	slots(func(s *SlotDump) {
		if s.Segment {
			return
		}
		_, l, err := c.Open([]byte(s.Key)) // which drops what has expired
		wantErr(t, "open", ignore(err, ErrNotFound), nil)
		for i := 0; err == nil && l != nil && i < len(l.ids); i++ {
			named[l.ref(i)] = true
		}
	})
	var there []segmentRef
	slots(func(s *SlotDump) {
		if s.Segment {
			there = append(there, refOf([]byte(s.Key)))
		}
	})
	for _, r := range there {
		if !named[r] {
			unnamed++
		}
	}
	return len(there), unnamed
}

// One client against a map, with values of up to eight segments on two memory nodes: as TestModel. No segment is left that no value has.
func TestModelOfSegments(t *testing.T) {
	segments := 0
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 16<<20, 1)
		defer w.c.Close()
		cfg := w.config()
		cfg.Objects, cfg.Segment, cfg.MaxValue = 100, 128, 2048
		c := w.client(0, w.open(0, cfg))
		m := &model{t: rt, c: c, now: 1000, largest: int(cfg.MaxValue), objs: map[string]*modelObject{}}
		c.SetNow(m.now)
		for range rapid.IntRange(1, 120).Draw(rt, "steps") {
			m.step()
		}
		r, err := c.Check(CheckOptions{})
		if err != nil || !r.Sound() {
			rt.Fatal(r, err)
		}
		for _, n := range r.Nodes {
			if n.Elsewhere != 0 {
				rt.Fatalf("memory is missing:\n%v", r)
			}
		}
		all, unnamed := stray(t, c)
		if unnamed != 0 {
			rt.Fatalf("%d of %d segments are in no value", unnamed, all)
		}
		segments += all
	})
	if segments == 0 {
		t.Error("no value had segments")
	}
}

// Every operation, with values of no, one and many segments in each other's place.
func TestSegments(t *testing.T) {
	t.Run("lent", func(t *testing.T) {
		_, c := one(t, segmented)
		segments(t, c)
	})
	t.Run("registered", func(t *testing.T) {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20, 1)
		cfg := w.config()
		segmented(&cfg)
		cfg.Paper = true // gets take the lock
		c, err := w.open(0, cfg).Client(cas.New(registeredPort{w.port(0)}, cas.Config{}))
		wantErr(t, "client", err, nil)
		segments(t, c)
	})
}

// A registeredPort takes no memory but its own, as that of a NIC.
type registeredPort struct{ fabric.Port }

func (p registeredPort) Lend([]byte) bool { return false }

func segments(t *testing.T, c *Client) {
	t.Helper()
	k, o := []byte("key"), Options{Flags: 7}
	value := func(n int) []byte { return bytes.Repeat([]byte("0123456789"), n/10+1)[:n] }
	sizes := []int{0, 1, 64, 65, 66, 128, 129, 300, 512, 10, 511, 64}
	for _, n := range sizes {
		wantErr(t, "set", c.Set(k, value(n), o), nil)
		it, err := c.Get(k)
		if wantErr(t, "get", err, nil); !bytes.Equal(it.Value, value(n)) || it.Flags != 7 {
			t.Fatalf("get of %d bytes: %d, flags %d", n, len(it.Value), it.Flags)
		}
		results := make([]Result, 1)
		_, _, err = c.GetMulti([][]byte{k}, results, []byte("x"))
		if wantErr(t, "get of many", errors.Join(err, results[0].Err), nil); !bytes.Equal(results[0].Value, value(n)) {
			t.Fatalf("get of many, of %d bytes: %q", n, results[0].Value)
		}
		first, l, err := c.Open(k)
		wantErr(t, "open", err, nil)
		if l == nil {
			if n > 64 || !bytes.Equal(first.Value, value(n)) {
				t.Fatalf("%d bytes have no segments: %q", n, first.Value)
			}
			continue
		}
		for from := 0; from <= n; from += 13 {
			got, err := c.Read(l, from, 70, []byte("<"))
			if wantErr(t, "read", err, nil); !bytes.Equal(got[1:], value(n)[from:min(from+70, n)]) {
				t.Fatalf("read of %d from %d: %q", n, from, got)
			}
		}
		if _, unnamed := stray(t, c); unnamed != 0 {
			t.Fatalf("%d bytes: %d segments that no value has", n, unnamed)
		}
	}
	wantErr(t, "too large", c.Set(k, value(513), o), ErrValueSize)
	wantErr(t, "add", c.Add(k, value(300), o), ErrExists)
	wantErr(t, "replace", c.Replace([]byte("none"), value(300), o), ErrNotFound)
	wantErr(t, "incr", ignore(c.Set(k, value(300), o), nil), nil)
	_, err := c.Incr(k, 1)
	wantErr(t, "incr", err, ErrNotNumber)
	wantErr(t, "delete", c.Delete(k), nil)
	if all, _ := stray(t, c); all != 0 {
		t.Fatalf("%d segments when there are no values", all)
	}
	if n := mustBeSound(t, c).Nodes[0]; n.Elsewhere != 0 || n.Objects != 0 {
		t.Fatalf("%+v", n)
	}
}

// Segments of an upload are half as long as others, so that they are written soon, and long enough to be found by those who look for such as no list names.
func TestUploadHasShortSegments(t *testing.T) {
	_, c := one(t, segmented)
	longest := c.Store().Segment()
	for size := 65; size <= int(c.s.geo.maxValue); size++ {
		u, err := c.Upload([]byte("k"), 64, size)
		wantErr(t, "upload", err, nil)
		n, length := u.Segments()
		if size-64 > longest && length > longest/2 || size-64 <= longest && n != 1 {
			t.Errorf("%d bytes: %d segments of %d", size, n, length)
		}
		_, last := u.Span(n - 1)
		if w := classFor(uint64(headerSize + segmentKeySize + 2 + last)); n > 1 && w < c.s.segmentClass() {
			t.Errorf("%d bytes: the last segment has %d, of class %d", size, last, w)
		}
		if list := headerSize + 1 + listSize + 8*n; uint64(list) > c.s.maxList() {
			t.Errorf("%d bytes: a list of %d", size, list)
		}
		wantErr(t, "abort", c.Abort(u), nil)
	}
}

// An upload is not to be seen before it is put, and leaves nothing if it is given up; a put that depends on the object finds it as it is then.
func TestUpload(t *testing.T) {
	w, c := one(t, segmented)
	d := w.client(0, c.s)
	k, value := []byte("key"), bytes.Repeat([]byte("abc"), 100)
	write := func(head int) *Upload {
		u, err := c.Upload(k, head, len(value))
		wantErr(t, "upload", err, nil)
		n, _ := u.Segments()
		for i := range n {
			from, n := u.Span(i)
			wantErr(t, "write", []*Client{c, d}[i%2].Write(u, i, value[from:from+n]), nil)
		}
		return u
	}
	u := write(5)
	wantMiss(t, d, "key")
	wantErr(t, "abort", c.Abort(u), nil)
	if all, _ := stray(t, c); all != 0 {
		t.Fatalf("%d segments", all)
	}
	u = write(64)
	put := func(u *Upload, head int) error {
		return d.Update(k, Update{Read: 3, Apply: func(o *Object) Change {
			return Change{Action: Put, Value: value[:head], Upload: u, Flags: uint32(o.Size)}
		}})
	}
	wantErr(t, "another beginning", put(u, 63), ErrConfig)
	wantErr(t, "put", put(u, 64), nil)
	wantErr(t, "put again", put(u, 64), ErrConfig)
	if it := wantValue(t, c, "key", string(value)); it.Flags != 0 {
		t.Errorf("flags %d", it.Flags)
	}
	wantErr(t, "put", put(write(0), 0), nil)
	if it := wantValue(t, c, "key", string(value)); it.Flags != 300 {
		t.Errorf("it saw %d bytes", it.Flags)
	}
	if _, unnamed := stray(t, c); unnamed != 0 {
		t.Errorf("%d segments of the old value", unnamed)
	}
}

// A value of which a segment has gone is gone as a whole, for gets of all of it and of a part of it.
func TestSegmentGone(t *testing.T) {
	_, c := one(t, segmented)
	for i := range 2 {
		wantErr(t, "set", c.Set([]byte("key"), make([]byte, 300), Options{}), nil)
		_, l, err := c.Open([]byte("key"))
		wantErr(t, "open", err, nil)
		wantErr(t, "remove", c.removeSegment(l.ref(2)), nil)
		if i == 0 {
			wantMiss(t, c, "key")
		} else {
			_, err = c.Read(l, 64, 10, nil) // its segment is there
			wantErr(t, "read", err, nil)
			_, err = c.Read(l, 0, 300, nil)
			wantErr(t, "read", err, ErrChanged)
		}
		_, _, err = c.Open([]byte("key"))
		wantErr(t, "open", err, ErrNotFound)
		if all, _ := stray(t, c); all != 0 {
			t.Fatalf("%d segments are left", all)
		}
	}
}

// When memory is full, values are evicted whole: of none are there segments only, or a part of them.
func TestEvictionTakesValuesWhole(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 2<<20, 1)
	cfg := w.config()
	cfg.Objects, cfg.Segment, cfg.MaxValue = 8000, 1024, 16<<10
	c := w.client(0, w.open(0, cfg))
	const keys, size = 1000, 8000
	broken := uint64(0)
	for i := range keys {
		wantErr(t, "set", c.Set(keyOf(i), bytes.Repeat([]byte{byte(i)}, size), Options{}), nil)
		if i%50 != 49 {
			continue
		}
		r := mustBeSound(t, c)
		if broken = max(broken, r.Unnamed, r.Missing); r.Segments < 200 {
			t.Fatalf("after %d sets there are %d segments", i+1, r.Segments)
		}
	}
	there := 0
	for i := range keys {
		it, err := c.Get(keyOf(i))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		wantErr(t, "get", err, nil)
		if there++; !bytes.Equal(it.Value, bytes.Repeat([]byte{byte(i)}, size)) {
			t.Fatalf("key %d has another value", i)
		}
	}
	t.Logf("%d values are there, at most %d segments are in none or missing, %d evictions", there, broken, c.Stats().Evictions)
	if there < 200 || broken > 0 {
		t.Errorf("%d of %d values are there, %d segments are in none, or missing", there, keys, broken)
	}
	mustBeSound(t, c)
}

// A compute node crashes at every operation of a script in which values have segments, on two memory nodes: each value is what it was or what it was to be, and after the
// others have swept no segment and no other memory is left of what is in no value.
func TestCrashWithSegmentsAtEveryOperation(t *testing.T) {
	for k := 0; ; k++ {
		if !crashWithSegments(t, k) {
			if t.Logf("%d operations", k); k < 150 {
				t.Error("that is too few")
			}
			return
		}
	}
}

func crashWithSegments(t *testing.T, at int) (hit bool) {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal(), Late: sim.LateDrop}, 2, 4<<20, 2)
	defer w.c.Close()
	cfg := w.config()
	segmented(&cfg)
	cfg.Objects, cfg.MaxValue, cfg.NoEvict = 1, 4096/8, true
	p := &crashPort{Port: w.port(0), w: w, victim: w.cns[0], until: -1}
	dying, err := w.open(0, cfg).Client(cas.New(p, cas.Config{}))
	wantErr(t, "client", err, nil)
	p.until = at
	value := func(c byte, n int) string { return string(bytes.Repeat([]byte{c}, n)) }
	script := []scripted{
		{"a", is(value('a', 200)), func(c *Client) error { return c.Set(b("a"), b(value('a', 200)), Options{}) }},
		{"b", is(value('b', 65)), func(c *Client) error { return c.Add(b("b"), b(value('b', 65)), Options{}) }},
		{"a", is(value('c', 300)), func(c *Client) error { return c.Set(b("a"), b(value('c', 300)), Options{}) }},
		{"b", is(value('b', 65) + value('d', 100)), func(c *Client) error { return c.Append(b("b"), b(value('d', 100))) }},
		{"a", is("short"), func(c *Client) error { return c.Set(b("a"), b("short"), Options{}) }},
		{"b", is(""), func(c *Client) error { return c.Delete(b("b")) }},
		{"a", is(value('e', 100) + "short"), func(c *Client) error { return c.Prepend(b("a"), b(value('e', 100))) }},
	}
	acked, doing, done := map[string]string{}, -1, false
	w.c.GoOn(p.Port, "dies", func(fabric.Port) {
		for i, x := range script {
			doing = i
			if err := x.does(dying); err != nil {
				t.Errorf("crash at %d: operation %d of the script: %v", at, i, err)
				return
			}
			acked[x.key] = x.to(acked[x.key])
		}
		done = true
	})
	wantErr(t, "run", w.c.Run(), nil)
	c := w.client(1, w.open(1, cfg))
	wantErr(t, "pause", c.port.Pause(c.port.Now()+fabric.Second), nil)
	clearLocks(w, c.s)
	for _, key := range []string{"a", "b"} {
		it, err := c.Get(b(key))
		wantErr(t, "get", ignore(err, ErrNotFound), nil)
		old, x := acked[key], script[doing]
		if got := string(it.Value); got != old && (done || x.key != key || got != x.to(old)) {
			t.Fatalf("crash at %d: %s is %q, was %q, in operation %d of the script", at, key, got, old, doing)
		}
	}
	if done {
		wantErr(t, "leave", dying.Leave(), nil)
	}
	tend(t, c, w.cns[1].View)
	if _, unnamed := stray(t, c); unnamed != 0 {
		t.Fatalf("crash at %d, in operation %d of the script: %d segments are in no value", at, doing, unnamed)
	}
	tend(t, c, w.cns[1].View)
	for _, n := range mustBeSound(t, c).Nodes {
		if n.Elsewhere != 0 {
			t.Fatalf("crash at %d: memory is missing: %+v", at, n)
		}
	}
	return p.hit
}

// A client that stores a value segment by segment has another node sweep beside it: nothing of the value is taken, before and after it is put.
func TestSweepBesideUpload(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 16<<20, 3)
	cfg := w.config()
	segmented(&cfg)
	c, d := w.client(0, w.open(0, cfg)), w.client(1, w.open(1, cfg))
	value := make([]byte, 500)
	u, err := c.upload([]byte("key"), 64, len(value), int(c.s.geo.segment))
	wantErr(t, "upload", err, nil)
	wantErr(t, "write", c.writeAll(u, value), nil)
	for _, x := range []*Client{c, d} {
		x.s.uploads.leave()
		tend(t, x, w.cns[0].View)
	}
	wantErr(t, "put", d.Update([]byte("key"), Update{Apply: func(*Object) Change { return Change{Action: Put, Value: value[:64], Upload: u} }}), ErrConfig)
	wantErr(t, "put", c.Update([]byte("key"), Update{Apply: func(*Object) Change { return Change{Action: Put, Value: value[:64], Upload: u} }}), nil)
	for _, x := range []*Client{c, d} {
		x.s.uploads.leave()
		tend(t, x, w.cns[0].View)
		wantValue(t, x, "key", string(value))
	}
	if c.Stats().Sweeps == 0 || d.Stats().Sweeps == 0 || c.Stats().Swept+d.Stats().Swept != 0 {
		t.Errorf("%d and %d sweeps have taken %d and %d segments", c.Stats().Sweeps, d.Stats().Sweeps, c.Stats().Swept, d.Stats().Swept)
	}
}

// A get, a read of a part, and an append of a value in segments meet, before each of their chains in turn, another client that stores another value, twice, so that segments of
// the first are written over: they see one value or the other, whole, and the append is to one of them or not to be seen any more. So does an update that looks at a part of it.
func TestSegmentsMeetWriter(t *testing.T) {
	for _, evicts := range []bool{false, true} {
		for op := range 4 {
			for k := 1; ; k++ {
				if !segmentsMeet(t, evicts, op, k) {
					if k < 5 {
						t.Errorf("operation %d has %d chains", op, k-1)
					}
					break
				}
			}
		}
	}
}

func segmentsMeet(t *testing.T, deletes bool, op, k int) (met bool) {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
	defer w.c.Close()
	cfg := w.plain()
	segmented(&cfg)
	cfg.Objects = 20
	p := &hookPort{Port: w.port(0)}
	c, err := w.open(0, cfg).Client(cas.New(p, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	d := w.plainClient(1, w.open(1, cfg))
	value := func(c byte) []byte { return bytes.Repeat([]byte{c}, 300) }
	one := func(b []byte) bool { return len(b) > 0 && bytes.Count(b, b[:1]) == len(b) }
	wantErr(t, "set", d.Set([]byte("key"), value('a'), Options{}), nil)
	_, l, err := c.Open([]byte("key"))
	wantErr(t, "open", err, nil)
	wrote := false
	p.until, p.hook = k, func() {
		met = true
		var word [8]byte
		for i := range d.s.h.Parts {
			for j := range d.s.geo.buckets {
				if w.c.Peek(d.s.bucket(i, j), word[:]); word != [8]byte{} {
					return // it is locked: the other client would wait for ever
				}
			}
		}
		wrote = true
		for _, v := range []byte("bc") {
			if deletes {
				wantErr(t, "delete", ignore(d.Delete([]byte("key")), ErrNotFound), nil)
			}
			wantErr(t, "set", d.Set([]byte("key"), value(v), Options{}), nil)
		}
	}
	switch op {
	case 0:
		it, err := c.Get([]byte("key"))
		if wantErr(t, "get", err, nil); len(it.Value) != 300 || !one(it.Value) {
			t.Fatalf("before chain %d: get %q", k, it.Value)
		}
	case 1:
		got, err := c.Read(l, 70, 200, nil)
		if wantErr(t, "read", ignore(err, ErrChanged), nil); err == nil && (len(got) != 200 || got[0] != 'a' || !one(got)) {
			t.Fatalf("before chain %d: read %q", k, got)
		}
	case 2:
		wantErr(t, "append", ignore(c.Append([]byte("key"), []byte("++")), ErrNotFound), nil)
	case 3:
		err := c.Update([]byte("key"), Update{Read: 150, IfFound: true, Apply: func(o *Object) Change {
			if len(o.Value) != 150 || o.Size != 300 || !one(o.Value) {
				t.Errorf("before chain %d: an update of %d bytes sees %q", k, o.Size, o.Value)
			}
			return Change{}
		}})
		wantErr(t, "update", ignore(err, ErrNotFound), nil)
	}
	p.until = 0
	it, err := d.Get([]byte("key"))
	wantErr(t, "get", err, nil)
	v := bytes.TrimSuffix(it.Value, []byte("++"))
	if len(v) != 300 || !one(v) || op == 2 && !wrote && len(it.Value) != 302 || wrote && v[0] != 'c' {
		t.Fatalf("operation %d, before chain %d: then there is %q", op, k, it.Value)
	}
	if _, unnamed := stray(t, d); unnamed != 0 {
		t.Fatalf("operation %d, before chain %d: %d segments are in no value", op, k, unnamed)
	}
	return met
}

// A compute node crashes at each operation of a script in which values have segments. Another, which is not the one that walks, deletes the segments that no value has; then the backup is
// promoted, which may have a list that the primary did not have: its segments are there. So each value is what it was, or what it was to be.
func TestSweepAfterTheWalk(t *testing.T) {
	step, ahead := 1, 0
	if testing.Short() {
		step = 5
	}
	value := func(c byte, n int) []byte { return bytes.Repeat([]byte{c}, n) }
	for k, hit := 0, true; hit; k += step {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal(), Seed: uint64(k)}, 1, 4<<20, 3, 2)
		cfg := w.config()
		segmented(&cfg)
		cfg.NoEvict = true // its buckets are many: who deletes a segment writes its bucket to the backup, which is another than the list's
		w.open(0, cfg)
		sweeper, last := w.client(1, w.open(1, cfg)), w.client(2, w.open(2, cfg))
		wantErr(t, "set", last.Set(b("a"), value('a', 200), Options{}), nil)
		left := k
		w.c.SetObserver(observer(func(e *sim.Event) {
			if e.Step == sim.StepEffect {
				if left--; left == -1 {
					w.c.At(w.c.Now(), func() { w.c.Kill(w.cns[2]) })
				}
			}
		}))
		was, next := value('a', 200), value('b', 300)
		w.c.Go(w.cns[2], "script", func(fabric.Port) {
			if last.Set(b("a"), next, Options{}) == nil {
				was, next = next, append(value('b', 300), value('c', 100)...)
				if last.Append(b("a"), value('c', 100)) == nil {
					was = next
				}
			}
		})
		wantErr(t, "run", w.c.RunUntil(w.c.Now()+fabric.Second), nil)
		w.c.SetObserver(nil)
		if hit = left < 0; !hit {
			break
		}
		clearLocks(w, sweeper.s)
		ahead += w.backupAhead(sweeper)
		walkAll(t, sweeper, w.cns[1].View)
		if s := sweeper.Stats(); s.Sweeps == 0 {
			t.Errorf("effect %d: no sweep", k)
		}
		wantErr(t, "promote", w.c.Promote(w.mns[0]), nil)
		c := w.client(1, w.open(1, cfg))
		it, err := c.Get(b("a"))
		if wantErr(t, "get", ignore(err, ErrNotFound), nil); err != nil || !bytes.Equal(it.Value, was) && !bytes.Equal(it.Value, next) {
			t.Errorf("effect %d: a has %d bytes, %v; it was one of %d, and was to be one of %d", k, len(it.Value), err, len(was), len(next))
		}
		w.c.Close()
	}
	if ahead < 3 {
		t.Errorf("a backup led to %d blocks that the primary did not lead to: that is too few", ahead)
	}
}
