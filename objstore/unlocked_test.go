package objstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// A slowPort executes each chain one operation after the other, and READs of more than a slot in halves; between any two
// it lets others work.
type slowPort struct {
	fabric.Port
	between func()
	// exchanges: it does not promise ReadsInOrder, and the operations of chains of READs that are posted are executed the last first.
	exchanges bool
	posted    []error
}

func (p *slowPort) Caps() fabric.Caps {
	caps := p.Port.Caps()
	caps.ReadsInOrder = !p.exchanges
	return caps
}

func (p *slowPort) Post(ops []fabric.Op) (fabric.Pending, error) {
	if p.exchanges {
		slices.Reverse(ops)
		defer slices.Reverse(ops)
	}
	p.posted = append(p.posted, p.Do(ops))
	return fabric.Pending(len(p.posted) - 1), nil
}

// A slowGatherer is a slowPort that is a fabric.Gatherer.
type slowGatherer struct{ *slowPort }

func (p slowGatherer) Gather(ops []fabric.Op) error { return p.Do(ops) }

func (p *slowPort) Wait(i fabric.Pending) error { return p.posted[i] }

func (p *slowPort) Do(ops []fabric.Op) error {
	for i := range ops {
		o := &ops[i]
		half := len(o.Buf) / 16 * 8
		if o.Kind != fabric.OpRead || half == 0 {
			p.between()
			if err := p.Port.Do(ops[i : i+1]); err != nil {
				return err
			}
			continue
		}
		for _, part := range []fabric.Op{fabric.Read(o.Addr, o.Buf[:half]), fabric.Read(o.Addr.Add(uint64(half)), o.Buf[half:])} {
			p.between()
			if err := p.Port.Do([]fabric.Op{part}); err != nil {
				return err
			}
		}
	}
	return nil
}

// An encounter is a get of a key that holds an object, and a writer who unlinks that object, writes another one to the same
// chunk and publishes it with the very same slot word, as when the tag has come round.
type encounter struct {
	t      *testing.T
	reader *Client
	batch  bool // the reader gets it in a batch
	raw    fabric.Port
	steps  []func() // of the writer
	done   int
	when   []int // each step comes before the reader's operation with that number
	clock  int
}

func (e *encounter) work() {
	for e.done < len(e.steps) && e.when[e.done] <= e.clock {
		e.steps[e.done]()
		e.done++
	}
	e.clock++
}

const encounterValue = 400

func newEncounter(t *testing.T, how meeting) *encounter {
	t.Helper()
	config := sim.Config{NIC: sim.Ideal()}
	if how.exchanged {
		config.ExchangeReads = 1e-9 // the reader's Port exchanges them
	}
	w := newWorld(t, config, 1, 4<<20, 1)
	e := &encounter{t: t, batch: how.batch, raw: w.port(0)}
	s := w.open(0, w.plain())
	var port fabric.Port = &slowPort{Port: w.port(0), between: e.work, exchanges: how.exchanged}
	if how.gathers {
		port = slowGatherer{port.(*slowPort)}
	}
	c, err := s.Client(cas.New(port, cas.Config{Plain: true}))
	wantErr(t, "client", err, nil)
	e.reader = c
	key := b("k")
	wantErr(t, "set", c.Set(key, b(strings.Repeat("a", encounterValue)), Options{}), nil)
	k := work{}
	wantErr(t, "start", c.start(&k, key), nil)
	wantErr(t, "lookup", c.lookup(&k, 0), nil)
	wantErr(t, "unlock", c.unlock(nil), nil)

	h := k.h
	h.unique += 1 << 20
	h.check = h.checkOf(k.hash)
	object := e.raw.Alloc(int(h.size()))
	h.encode(object)
	copy(object[headerSize:], key)
	copy(object[headerSize+1:], strings.Repeat("b", encounterValue))
	chunk := k.n.At(k.word.chunk().off64)
	do := func(op fabric.Op) func() {
		return func() { wantErr(t, "writer", e.raw.Do([]fabric.Op{op}), nil) }
	}
	const half = headerSize + encounterValue/2
	parts := []func(){do(fabric.Write(chunk, object[:half])), do(fabric.Write(chunk.Add(half), object[half:]))}
	if !how.headerFirst {
		parts[0], parts[1] = parts[1], parts[0]
	}
	e.steps = []func(){do(fabric.CAS(k.slot, uint64(k.word), 0)), parts[0], parts[1], do(fabric.CAS(k.slot, 0, uint64(k.word)))}
	return e
}

// get lets the writer's steps come at the given places, and tells what the get returned and how many operations it took.
func (e *encounter) get(known bool, when []int) (value string, ops int) {
	c := e.reader
	if !known {
		c.s.places.put(c.s.locate(b("k")).hash, 0, 0)
	}
	e.when, e.clock, e.done = when, 0, 0
	it, err := Item{}, error(nil)
	if e.batch {
		var got [fewestUnordered]Result // the others have no key
		_, _, err = c.GetMulti([][]byte{b("k"), nil, nil, nil}, got[:], nil)
		if err == nil {
			it, err = got[0].Item, got[0].Err
		}
	} else {
		it, err = c.Get(b("k"))
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		e.t.Fatal(err)
	}
	return string(it.Value), e.clock
}

// A meeting is how a get meets a writer.
type meeting struct {
	known, headerFirst bool
	batch, exchanged   bool // the get is one of a batch, where READs of a chain may be exchanged
	gathers            bool // it reads only the slot in which the location cache has seen the object
}

// A get without the lock meets a writer, at all places: it returns one of the objects whole, or none.
func TestUnlockedGetMeetsWriter(t *testing.T) {
	for _, in := range []meeting{{}, {batch: true}, {batch: true, exchanged: true}, {gathers: true}, {batch: true, gathers: true}} {
		for _, known := range []bool{true, false} {
			for _, headerFirst := range []bool{true, false} {
				in.known, in.headerFirst = known, headerFirst
				t.Run(fmt.Sprintf("%+v", in), func(t *testing.T) { meetWriter(t, in) })
			}
		}
	}
}

func meetWriter(t *testing.T, how meeting) {
	never := 1 << 20
	old, ops := newEncounter(t, how).get(how.known, []int{never, never, never, never})
	if old != strings.Repeat("a", encounterValue) {
		t.Fatalf("%q without a writer", old)
	}
	for i := 0; i <= ops; i++ {
		for j := i; j <= ops; j++ {
			for k := j; k <= ops; k++ {
				for l := k; l <= ops; l++ {
					got, _ := newEncounter(t, how).get(how.known, []int{i, j, k, l})
					if got != "" && strings.Trim(got, got[:1]) != "" {
						t.Fatalf("the writer's steps before operations %d, %d, %d and %d: %q", i, j, k, l, got)
					}
					if i == 0 && strings.HasPrefix(got, "a") || l == 0 && !strings.HasPrefix(got, "b") {
						t.Fatalf("the writer's steps before operations %d, %d, %d and %d: %.8q..", i, j, k, l, got)
					}
				}
			}
		}
	}
}

// A second passes, and another client gives an object more time, between a get's READs and its look at the clock: the object is there.
func TestGetAndTouchAtTheEndOfItsTime(t *testing.T) {
	p, getter, toucher := soonExpired(t)
	p.until, p.then = 1, func() {
		toucher.SetNow(99)
		wantErr(t, "touch", toucher.Touch(b("k"), 1000), nil)
		getter.SetNow(100)
	}
	it, err := getter.Get(b("k"))
	wantErr(t, "get", err, nil)
	if p.then != nil || string(it.Value) != "v" {
		t.Errorf("touched %v, got %q", p.then == nil, it.Value)
	}
	_, err = toucher.Get(b("k"))
	wantErr(t, "get by who gave it more time", err, nil)
}

// soonExpired makes a store with an object that expires at 100 s, and two clients; the Port of the first is p.
func soonExpired(t *testing.T) (p *behindChain, getter, other *Client) {
	t.Helper()
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 4<<20, 1)
	cfg := w.plain()
	cfg.NoEvict = true
	s := w.open(0, cfg)
	p = &behindChain{Port: w.port(0)}
	getter, err := s.Client(cas.New(p, cas.Config{Plain: true}))
	if err != nil {
		t.Fatal(err)
	}
	other = w.plainClient(0, s)
	getter.SetNow(90)
	wantErr(t, "set", getter.Set(b("k"), b("v"), Options{TTL: 10}), nil)
	return p, getter, other
}

// behindChain does something once, behind a chain: the until-th from now.
type behindChain struct {
	fabric.Port
	until int
	then  func()
}

func (p *behindChain) Do(ops []fabric.Op) error {
	err := p.Port.Do(ops)
	if f := p.then; f != nil {
		if p.until--; p.until == 0 {
			p.then = nil
			f()
		}
	}
	return err
}
