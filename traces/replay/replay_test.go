package replay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
)

func generator(t testing.TB, cfg traces.GenConfig, preset string) *traces.Generator {
	t.Helper()
	p, err := traces.FindPreset(preset)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Preset = p
	g, err := traces.NewGenerator(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func loads(g *traces.Generator, s *mapCache, warm bool) []Load {
	n := g.Config().Clients
	out := make([]Load, n)
	for i := range out {
		out[i] = Load{Cache: s.client(), Stream: g.Stream(i)}
		if warm {
			out[i].Warm = g.Keys(i, n)
		}
	}
	return out
}

// TestReplayEveryPreset, verified, with keys shared by four clients: a right cache has no failures.
func TestReplayEveryPreset(t *testing.T) {
	for i, p := range traces.Presets() {
		if len(p.Missing()) > 0 || testing.Short() && i%8 > 0 {
			continue
		}
		g := generator(t, traces.GenConfig{Seed: 1, Keys: 200, Requests: 2000, Clients: 4}, p.Name)
		res, err := Run(context.Background(), Options{Verify: true, FillOnMiss: true, MaxValue: 1 << 16}, loads(g, newMapCache(), true))
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		s := res.Summary()
		if s.Ops != 2000 || s.Errors != 0 || s.VerifyFailures != 0 || s.Warmed != 200 || s.Stopped || s.OpsPerS <= 0 {
			t.Errorf("%s: %+v", p.Name, s)
		}
		for _, r := range s.Rows {
			if r.NotNumber != 0 {
				t.Errorf("%s: %d %s of what is no number", p.Name, r.NotNumber, r.Op)
			}
		}
	}
}

// TestExclusiveKeys: dealt by key, without TTL and eviction, numbers are exact.
func TestExclusiveKeys(t *testing.T) {
	presets := []string{"cluster14", "cluster53", "cluster22", "cluster25"}
	if testing.Short() {
		presets = presets[:1]
	}
	for _, preset := range presets {
		g := generator(t, traces.GenConfig{Seed: 1, Keys: 500, Requests: 30000, Clients: 3}, preset)
		d, err := Deal(g.All(), ByKey, 0, 4, 4)
		if err != nil {
			t.Fatal(err)
		}
		warm, err := Deal(g.Keys(0, 1), ByKey, 0, 4, 4)
		if err != nil {
			t.Fatal(err)
		}
		store := newMapCache()
		var ls []Load
		for i := range 4 {
			ls = append(ls, Load{Cache: store.client(), Stream: d.Source(i), Warm: warm.Source(i)})
		}
		o := Options{Verify: true, Exclusive: true, TTL: TTLNone}
		res, err := Run(context.Background(), o, ls)
		if s := res.Summary(); err != nil || s.VerifyFailures != 0 || s.Errors != 0 || s.Ops != 30000 || s.Verified == 0 || s.Warmed != 500 {
			t.Errorf("%s: %v %+v", preset, err, s)
		}
		<-d.Finished()
	}
}

// A buggy cache misbehaves every 50th time.
type buggy struct {
	*mapClient
	bug string
	n   int
	old map[string][]byte
}

func (b *buggy) now(bug string) bool {
	if b.bug == bug {
		b.n++
		return b.n%50 == 0
	}
	return false
}

func (b *buggy) Get(key []byte) (objstore.Item, error) {
	it, err := b.mapClient.Get(key)
	if err != nil {
		return it, err
	}
	last := b.old[string(key)]
	b.old[string(key)] = append([]byte(nil), it.Value...)
	switch {
	case b.now("torn read") && len(last) == len(it.Value):
		copy(it.Value[len(last)/2:], last[len(last)/2:])
	case b.now("stale read") && last != nil:
		it.Value = last
	case b.now("wrong key"):
		for k, v := range b.old {
			if k != string(key) {
				it.Value = v
				break
			}
		}
	case b.now("short read"):
		it.Value = it.Value[:len(it.Value)-3]
	}
	return it, nil
}

func (b *buggy) Set(key, value []byte, o objstore.Options) error {
	if b.now("lost write") {
		return nil
	}
	return b.mapClient.Set(key, value, o)
}

func (b *buggy) Prepend(key, value []byte) error {
	if b.now("lost prepend") {
		return nil
	}
	if b.now("double prepend") {
		_ = b.mapClient.Prepend(key, value)
	}
	return b.mapClient.Prepend(key, value)
}

func (b *buggy) Incr(key []byte, d uint64) (uint64, error) {
	if b.now("lost incr") {
		n, err := b.mapClient.Incr(key, 0)
		return n + d, err
	}
	return b.mapClient.Incr(key, d)
}

func (b *buggy) Delete(key []byte) error {
	if b.now("lost delete") {
		if _, err := b.mapClient.Get(key); err == nil {
			return nil
		}
	}
	return b.mapClient.Delete(key)
}

// TestPlantedBugs: the verifier finds each of them, shared keys or not.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("long traces")
	}
	for _, c := range []struct {
		bug, preset string
		exclusive   bool
	}{
		{"torn read", "cluster14", false}, {"stale read", "cluster14", false}, {"wrong key", "cluster14", false},
		{"short read", "cluster14", false}, {"lost write", "cluster14", false}, {"lost delete", "cluster14", false},
		{"lost prepend", "cluster53", false}, {"double prepend", "cluster53", false},
		{"lost incr", "cluster22", true},
	} {
		t.Run(c.bug, func(t *testing.T) {
			g := generator(t, traces.GenConfig{Seed: 2, Keys: 50, Requests: 20000}, c.preset)
			b := &buggy{mapClient: newMapCache().client(), bug: c.bug, old: make(map[string][]byte)}
			o := Options{Verify: true, TTL: TTLNone, Exclusive: c.exclusive, FillOnMiss: !c.exclusive}
			l := []Load{{Cache: b, Warm: g.Keys(0, 1), Stream: g.Stream(0)}}
			res, err := Run(context.Background(), o, l)
			if err != nil || res.VerifyFailures == 0 || len(res.Messages) == 0 || !strings.HasPrefix(res.Messages[0], "verify: ") {
				t.Fatalf("not found: %v %+v", err, res)
			}
			t.Log(res.VerifyFailures, res.Messages[0])
		})
	}
}

// TestHitRatio is the figure that the package's comment states for cluster14.
func TestHitRatio(t *testing.T) {
	if testing.Short() {
		t.Skip("long traces")
	}
	for _, c := range []struct {
		warm, fill bool
		low, high  float64
	}{{false, false, 0.25, 0.40}, {true, false, 0.30, 0.45}, {false, true, 0.60, 0.80}, {true, true, 0.72, 0.85}} {
		g := generator(t, traces.GenConfig{Seed: 1, Keys: 10000, Requests: 200000, Clients: 2}, "cluster14")
		res, err := Run(context.Background(), Options{FillOnMiss: c.fill}, loads(g, newMapCache(), c.warm))
		if err != nil {
			t.Fatal(err)
		}
		if r := res.Summary().HitRatio; r < c.low || r > c.high {
			t.Errorf("warm %v, fill %v: hit ratio %.3f, expected %.2f to %.2f", c.warm, c.fill, r, c.low, c.high)
		} else {
			t.Logf("warm %v, fill %v: hit ratio %.3f", c.warm, c.fill, r)
		}
	}
}

func records(text string) traces.Source {
	r, err := traces.NewReader(strings.NewReader(text), traces.ReaderOptions{})
	if err != nil {
		panic(err)
	}
	return r
}

func rowOf(s Summary, op string) Row {
	for _, r := range s.Rows {
		if r.Op == op {
			return r
		}
	}
	return Row{}
}

// TestOutcomes: each operation of the traces on a present and an absent object.
func TestOutcomes(t *testing.T) {
	store := newMapCache()
	store.MaxValue = 4096
	c, err := NewClient(store.client(), 0, Options{MaxValue: 8192, FillOnMiss: true})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("L", 300)
	err = c.Run(t.Context(), records(`0,a,1,0,1,get,0
0,a,1,50,1,set,0
0,a,1,50,1,get,0
0,a,1,50,1,add,0
0,b,1,50,1,replace,0
0,b,1,50,1,add,0
0,b,1,50,1,replace,0
0,b,1,50,1,gets,0
0,b,1,50,1,cas,0
0,b,1,50,1,cas,0
0,b,1,50,1,gets,0
0,b,1,50,1,set,0
0,b,1,50,1,cas,0
0,z,1,50,1,cas,0
0,b,1,9,1,append,0
0,z,1,9,1,append,0
0,z,1,9,1,prepend,0
0,b,1,1,1,incr,0
0,#:n,1,4,1,set,0
0,#:n,1,4,1,incr,0
0,#:n,1,4,1,decr,0
0,z,1,4,1,decr,0
0,b,1,0,1,delete,0
0,b,1,0,1,delete,0
0,big,1,5000,1,set,0
0,huge,1,99999,1,set,0
0,filled,1,10,1,get,0
0,filled,1,10,1,get,0
0,`+long+`,300,10,1,set,0
0,`+long+`,300,10,1,get,0
`))
	if err != nil {
		t.Fatal(err)
	}
	s := c.Result().Summary()
	for _, w := range []Row{
		{Op: "get", Count: 5, Hits: 3, Misses: 2}, {Op: "gets", Count: 2, Hits: 2}, {Op: "set", Count: 6, Hits: 4, TooLarge: 2},
		{Op: "add", Count: 2, Hits: 1, Exists: 1}, {Op: "replace", Count: 2, Hits: 1, Misses: 1},
		{Op: "cas", Count: 4, Hits: 2, Exists: 1, Misses: 1}, {Op: "append", Count: 2, Hits: 1, Misses: 1}, {Op: "prepend", Count: 1, Misses: 1},
		{Op: "delete", Count: 2, Hits: 1, Misses: 1}, {Op: "incr", Count: 2, Hits: 1, NotNumber: 1}, {Op: "decr", Count: 2, Hits: 1, Misses: 1},
		{Op: "fill", Count: 1, Hits: 1},
	} {
		got := rowOf(s, w.Op)
		got.MeanUs, got.P50Us, got.P99Us, got.P999Us, got.MaxUs = 0, 0, 0, 0, 0
		if got != w {
			t.Errorf("got  %+v\nwant %+v", got, w)
		}
	}
	if s.Errors != 0 || s.Capped != 1 || s.LongKeys != 2 || s.ExtraGets != 2 || s.Ops != 30 {
		t.Errorf("%+v", s)
	}
}

// TestTTLByTraceTime: objects expire when the trace says, however fast it is replayed.
func TestTTLByTraceTime(t *testing.T) {
	const text = "0,a,1,50,1,set,10\n5,a,1,50,1,get,0\n10,a,1,0,1,get,0\n"
	for mode, hits := range map[TTLMode]uint64{TTLTrace: 1, TTLNone: 2} {
		c, _ := NewClient(newMapCache().client(), 0, Options{Verify: true, TTL: mode})
		if err := c.Run(t.Context(), records(text)); err != nil {
			t.Fatal(err)
		}
		if r := rowOf(c.Result().Summary(), "get"); r.Hits != hits || c.Result().VerifyFailures != 0 {
			t.Errorf("mode %d: %+v", mode, r)
		}
	}
}

// TestSpeed: a paced client does each second when it is due.
func TestSpeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cache := &timed{mapClient: newMapCache().client()}
		c, err := NewClient(cache, 0, Options{Speed: 2, TraceStart: 100})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := c.Run(t.Context(), records("100,a,1,0,1,get,0\n100,a,1,0,1,get,0\n103,a,1,0,1,get,0\n104,a,1,0,1,get,0\n")); err != nil {
			t.Fatal(err)
		}
		for i, want := range []time.Duration{0, 0, 1500 * time.Millisecond, 2 * time.Second} {
			if got := cache.at[i].Sub(start); got != want {
				t.Errorf("record %d at %v, want %v", i, got, want)
			}
		}
	})
}

type timed struct {
	*mapClient
	at []time.Time
}

func (c *timed) Get(key []byte) (objstore.Item, error) {
	c.at = append(c.at, time.Now())
	return c.mapClient.Get(key)
}

// stopping stops the replay from within its n-th operation.
type stopping struct {
	*mapClient
	n    int
	stop func()
}

func (c *stopping) Get(key []byte) (objstore.Item, error) {
	if c.n--; c.n == 0 {
		c.stop()
	}
	return c.mapClient.Get(key)
}

// TestStop: a cancelled replay of an endless trace reports what was measured.
func TestStop(t *testing.T) {
	g := generator(t, traces.GenConfig{Keys: 100, Clients: 2}, "cluster2")
	ctx, cancel := context.WithCancel(context.Background())
	store := newMapCache()
	ls := loads(g, store, false)
	ls[0].Cache = &stopping{store.client(), 1000, cancel}
	res, err := Run(ctx, Options{}, ls)
	if s := res.Summary(); err != nil || !s.Stopped || s.Ops < 1000 || s.Errors != 0 {
		t.Errorf("%v %+v", err, s)
	}
	// A client that waits for a record of a trace that is dealt wakes up.
	var p Progress
	d, _ := Deal(g.All(), ByClient, 0, 1, 2)
	ctx, cancel = context.WithCancel(context.Background())
	blocked := &blockedSource{wait: ctx.Done()}
	res, err = Run(ctx, Options{Progress: &p}, []Load{
		{Cache: &stopping{store.client(), 300, cancel}, Stream: d.Source(0)},
		{Cache: store.client(), Stream: blocked},
	})
	if err != nil || !res.Stopped || p.Ops.Load() < 300 || !blocked.closed {
		t.Errorf("%v %+v, progress %d", err, res, p.Ops.Load())
	}
	d.Close()
	<-d.Finished()
}

type blockedSource struct {
	wait   <-chan struct{}
	closed bool
}

func (b *blockedSource) Next(*traces.Record) bool { <-b.wait; return false }
func (b *blockedSource) Err() error               { return nil }
func (b *blockedSource) Close() error             { b.closed = true; return nil }

type failing struct {
	*mapClient
	n int
}

var errCable = errors.New("cable")

func (c *failing) Set(key, value []byte, o objstore.Options) error {
	if c.n++; c.n%3 == 0 {
		return fmt.Errorf("no answer: %w", errCable)
	}
	return c.mapClient.Set(key, value, o)
}

// TestErrors are counted, the first are kept, and the n-th ends the replay if so wished.
func TestErrors(t *testing.T) {
	g := generator(t, traces.GenConfig{Keys: 100, Requests: 1000}, "cluster15") // set only
	for _, most := range []uint64{0, 5} {
		res, err := Run(context.Background(), Options{MaxErrors: most, Verify: true},
			[]Load{{Cache: &failing{mapClient: newMapCache().client()}, Stream: g.Stream(0)}})
		s := res.Summary()
		switch {
		case most == 0 && (err != nil || s.Errors != 333 || s.Ops != 1000):
			t.Errorf("%v %+v", err, s)
		case most == 5 && (!errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "cable") || s.Errors != 5 || s.Ops != 15 || !s.Stopped):
			t.Errorf("%v %+v", err, s)
		}
		if kept := min(int(s.Errors), keptMessages); len(s.Messages) != kept || !strings.Contains(s.Messages[0], "cable") || rowOf(s, "set").Errors != s.Errors {
			t.Errorf("%+v", s)
		}
	}
	_, err := Run(context.Background(), Options{}, []Load{{Cache: newMapCache().client(), Stream: records("0,a,1,5,1,set,0\nxx\n")}})
	if !errors.Is(err, traces.ErrFormat) {
		t.Error(err)
	}
	for _, o := range []Options{{Exclusive: true}, {Speed: -1}, {MaxValue: -1}, {Verify: true, MaxValue: 10}, {TTL: 9}} {
		if _, err := NewClient(newMapCache().client(), 0, o); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := NewClient(newMapCache().client(), 1<<16, Options{}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	if _, err := Run(context.Background(), Options{}, nil); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
}

// TestResultsTravel: what processes send as JSON adds up to what one would have measured.
func TestResultsTravel(t *testing.T) {
	errGone, errDown := errors.New("gone"), errors.New("down")
	kinds := []error{errGone, errDown}
	g := generator(t, traces.GenConfig{Keys: 100, Requests: 2000, Clients: 2}, "cluster14")
	var parts []*Result
	for i := range 2 {
		res, err := Run(context.Background(), Options{FirstClient: i}, []Load{{Cache: newMapCache().client(), Stream: g.Stream(i)}})
		if err != nil {
			t.Fatal(err)
		}
		res.Messages = []string{fmt.Sprint("from ", i)}
		for range 8 {
			res.count(kinds, fmt.Errorf("down: %w", errDown))
		}
		res.count(kinds, fmt.Errorf("%w: not there: %w", errGone, errDown))
		res.count(kinds, errCable)
		parts = append(parts, res)
	}
	total, direct := new(Result), new(Result)
	for _, p := range parts {
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 20000 {
			t.Errorf("%d bytes of JSON", len(data))
		}
		var back Result
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(total.Merge(&back), direct.Merge(p)); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]uint64{"down": 16, "gone": 2, "other errors": 2}
	if !maps.Equal(total.Kinds, want) || !maps.Equal(direct.Kinds, want) {
		t.Errorf("errors %v, %v", total.Kinds, direct.Kinds)
	}
	a, _ := json.Marshal(total.Summary())
	b, _ := json.Marshal(direct.Summary())
	if string(a) != string(b) || total.Summary().Ops != 2000 || total.Clients != 2 || len(total.Messages) != 2 {
		t.Errorf("%s\n%s", a, b)
	}
	for _, bad := range []string{`{"Rows":[{}]}`, `{"Rows":[null,{"Hist":null}]}`, `{"Rows":[null,{"Hist":"AAAA"}]}`, `[`} {
		var back Result
		if err := json.Unmarshal([]byte(bad), &back); err == nil && total.Merge(&back) == nil {
			t.Errorf("%s is a result", bad)
		}
	}
}

// TestDealing: each record goes to one client, in order; per key and per trace client the order is the trace's.
func TestDealing(t *testing.T) {
	g := generator(t, traces.GenConfig{Keys: 300, Requests: 20000, Clients: 7}, "cluster52")
	for d := ByKey; d < numDealings; d++ {
		var dealers []*Dealer
		for _, first := range []int{0, 3} { // two processes, of three and two clients
			dl, err := Deal(g.All(), d, first, 3-first/3, 5)
			if err != nil {
				t.Fatal(err)
			}
			dealers = append(dealers, dl)
		}
		var sources []traces.Source
		for i := range 5 {
			sources = append(sources, dealers[i/3].Source(i%3))
		}
		var got [5][]string
		done := make(chan int)
		for i := range 5 {
			go func() {
				for rec := range traces.All(sources[i]) {
					got[i] = append(got[i], rec.String())
				}
				done <- i
			}()
		}
		for range 5 {
			<-done
		}
		n := 0
		for i := range 5 {
			var want []string
			j := uint64(0)
			for rec := range traces.All(g.All()) {
				if d.to(rec, j, 5) == i {
					want = append(want, rec.String())
				}
				j++
			}
			if strings.Join(got[i], "\n") != strings.Join(want, "\n") || sources[i].Err() != nil {
				t.Errorf("%s: client %d got %d records, and not its %d", d, i, len(got[i]), len(want))
			}
			n += len(got[i])
		}
		if n != 20000 {
			t.Errorf("%s: %d records of 20000", d, n)
		}
		if back, err := ParseDealing(d.String()); back != d || err != nil {
			t.Errorf("%s: %v %v", d, back, err)
		}
	}
	if _, err := ParseDealing("by-luck"); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	if _, err := Deal(g.All(), ByKey, 3, 2, 4); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	// An error of the trace reaches every client, after the records before it.
	d, _ := Deal(records("7,a,1,0,1,get,0\nbad\n"), InTurn, 0, 2, 2)
	if d.FirstTime() != 7 {
		t.Error("first time", d.FirstTime())
	}
	for i, want := range []int{1, 0} {
		s, n := d.Source(i), 0
		for range traces.All(s) {
			n++
		}
		if n != want || !errors.Is(s.Err(), traces.ErrFormat) {
			t.Errorf("client %d: %d records, %v", i, n, s.Err())
		}
	}
}

// null is a cache that does nothing, to measure the replayer.
type null struct{ mapClient }

func (null) Get([]byte) (objstore.Item, error)          { return objstore.Item{}, nil }
func (null) Set([]byte, []byte, objstore.Options) error { return nil }
func (null) Delete([]byte) error                        { return nil }
func (null) Prepend([]byte, []byte) error               { return nil }
func (null) SetNow(uint32)                              {}

func TestReplayAllocates0(t *testing.T) {
	for _, verify := range []bool{false, true} {
		g := generator(t, traces.GenConfig{Keys: 500}, "cluster14")
		var cache objstore.Cache = newMapCache().client()
		if !verify {
			cache = &null{}
		}
		c, _ := NewClient(cache, 0, Options{Verify: verify, FillOnMiss: true, TTL: TTLNone})
		s := g.Stream(0)
		warm := &limit{s, 100000}
		if err := c.Run(t.Context(), warm); err != nil {
			t.Fatal(err)
		}
		if verify { // the map allocates for what was deleted
			c.cache = &sized{}
			c.track = newTracker(16, c.me)
		}
		var rec traces.Record
		if n := testing.AllocsPerRun(20000, func() { s.Next(&rec); c.do(&rec) }); n != 0 {
			t.Errorf("verify %v: %g allocations per operation", verify, n)
		}
	}
}

// sized returns the last value set for the key asked for, or none.
type sized struct {
	null
	key, value [4096]byte
	k, n       int
}

func (s *sized) Set(key, value []byte, _ objstore.Options) error {
	s.k, s.n = copy(s.key[:], key), copy(s.value[:], value)
	return nil
}

func (s *sized) Get(key []byte) (objstore.Item, error) {
	if string(s.key[:s.k]) != string(key) {
		return objstore.Item{}, objstore.ErrNotFound
	}
	return objstore.Item{Value: s.value[:s.n]}, nil
}

type limit struct {
	traces.Source
	n int
}

func (l *limit) Next(rec *traces.Record) bool {
	l.n--
	return l.n >= 0 && l.Source.Next(rec)
}

// BenchmarkOverhead is what the replayer adds to an operation, the generator included.
func BenchmarkOverhead(b *testing.B) {
	for _, name := range []string{"cluster14", "cluster53"} {
		for _, verify := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/verify=%v", name, verify), func(b *testing.B) {
				g := generator(b, traces.GenConfig{Keys: 1e6}, name)
				c, _ := NewClient(&absent{}, 0, Options{Verify: verify})
				b.ReportAllocs()
				b.ResetTimer()
				if err := c.Run(b.Context(), &limit{g.Stream(0), b.N}); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

// absent finds nothing, so that no value is checked: it costs next to nothing.
type absent struct{ null }

func (*absent) Get([]byte) (objstore.Item, error) { return objstore.Item{}, objstore.ErrNotFound }

func BenchmarkNow(b *testing.B) {
	for b.Loop() {
		wallNow()
	}
}

func BenchmarkCheckValue(b *testing.B) {
	for _, n := range []int{414, 9213} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			v := block(n, kindBase, testKey, 1)
			b.SetBytes(int64(n))
			for b.Loop() {
				if _, _, what := checkValue(v, testKey, 1); what != "" {
					b.Fatal(what)
				}
			}
		})
	}
}
