package item

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

func openCluster(t testing.TB) *declock.Cluster {
	t.Helper()
	c, err := declock.Open(t.Context(), "shm:", declock.WithMemory(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func openItems(t testing.TB, c *declock.Cluster) *Items {
	t.Helper()
	x, err := Open(t.Context(), c, "items", declock.StoreConfig{Objects: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Close)
	return x
}

// put stores a value, to expire at a time.
func (x *Items) put(t testing.TB, key, value string, expiry int64) {
	t.Helper()
	if _, err := x.Update(t.Context(), []byte(key), Update{Apply: func(*Object) Change {
		return Change{Action: objstore.Put, Value: append(make([]byte, HeadSize), value...), Expiry: expiry}
	}}); err != nil {
		t.Fatal(err)
	}
}

// get returns a value; "" if there is none.
func (x *Items) get(t testing.TB, key string) (value string) {
	t.Helper()
	found, err := x.View(t.Context(), []byte(key), func(it Item) { value = string(it.Value) })
	if err != nil {
		t.Fatal(err)
	}
	if !found {
		return ""
	}
	return value
}

// A seen is what a get has seen.
type seen struct {
	from, to time.Duration
	hit      bool
}

// A flush is one step for all servers of a store: when a get has missed an item because of it, on whichever server, no later get finds an item that was there
// before. And what is stored after it stays.
func TestFlushIsOneStep(t *testing.T) {
	cluster := openCluster(t)
	var servers []*Items
	for range 3 {
		servers = append(servers, openItems(t, cluster))
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	const keys = 4
	begun := time.Now()
	for round := range rounds {
		for k := range keys {
			servers[0].put(t, fmt.Sprint(k), "v", 0)
		}
		var stop atomic.Bool
		var mu sync.Mutex
		var all []seen
		var wg sync.WaitGroup
		for i, x := range servers {
			wg.Go(func() {
				var mine []seen
				for n := i; !stop.Load(); n++ {
					s := seen{from: time.Since(begun)}
					s.hit = x.get(t, fmt.Sprint(n%keys)) != ""
					s.to = time.Since(begun)
					mine = append(mine, s)
				}
				mu.Lock()
				all = append(all, mine...)
				mu.Unlock()
			})
		}
		if err := servers[round%3].Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		missed := time.Since(begun) // the first miss is over then
		time.Sleep(2 * pollEvery)
		stop.Store(true)
		wg.Wait()
		slices.SortFunc(all, func(a, b seen) int { return int(a.to - b.to) })
		for _, s := range all {
			if !s.hit {
				missed = min(missed, s.to)
			}
		}
		for _, s := range all {
			if s.hit && s.from > missed {
				t.Fatalf("round %d: a get that began at %v found an item; it was flushed before %v", round, s.from, missed)
			}
		}
		servers[0].put(t, "after", "1", 0)
		if servers[1].get(t, "after") != "1" {
			t.Error("what was stored after the flush is not there")
		}
	}
}

// Flushes at the same time, of several servers, all take place, and leave nothing under way. One that a crashed server has left is ended by the next.
func TestFlushesAtATime(t *testing.T) {
	cluster := openCluster(t)
	one, two := openItems(t, cluster), openItems(t, cluster)
	for round := range 3 {
		one.put(t, "k", "v", 0)
		if round == 2 {
			if err := one.flushes.changeRecord(t.Context(), func(r *record) bool { r.underWay = 99; return true }); err != nil {
				t.Fatal(err)
			}
			if two.get(t, "k") != "v" {
				t.Error("a flush that was left has flushed")
			}
		}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				if err := []*Items{one, two}[i%2].Flush(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if one.get(t, "k") != "" || two.get(t, "k") != "" {
			t.Error("it is not flushed")
		}
	}
	if r, err := one.flushes.readRecord(t.Context()); err != nil || r.underWay != 0 || r.due != 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// An operation that began before a flush, and finds an item that was stored after it, takes place after the flush: nothing of the time before replaces it.
func TestOperationFromBeforeFlush(t *testing.T) {
	cluster := openCluster(t)
	late, other := openItems(t, cluster), openItems(t, cluster)
	late.put(t, "k", "1", 0)
	before := late.flushes.last.number.Load()
	for range 3 {
		if err := other.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		other.put(t, "k", "2", 0)
		// The server takes the number from before the flush for that of now, as an operation has it that was stopped after its first step.
		late.flushes.last.mu.Lock()
		late.flushes.last.number.Store(before)
		late.flushes.last.readAt.Store(int64(late.clock() + time.Minute))
		late.flushes.last.mu.Unlock()
		saw := ""
		if _, err := late.Update(t.Context(), []byte("k"), Update{Read: -1, Apply: func(o *Object) Change {
			saw = string(o.Value)
			return Change{Action: objstore.Put, Value: append(make([]byte, HeadSize), "3"...)}
		}}); err != nil {
			t.Fatal(err)
		}
		if got := other.get(t, "k"); saw != "2" || got != "3" {
			t.Errorf("saw %q, and then there is %q", saw, got)
		}
		late.flushes.last.mu.Lock()
		late.flushes.last.readAt.Store(0)
		late.flushes.last.mu.Unlock()
	}
}

// An item expires at its millisecond: not earlier, and for clients not later, whatever second the store has it expire in. A new expiry replaces the one there was.
func TestExpiryInMilliseconds(t *testing.T) {
	for _, ms := range []int64{1, 999, 1000, 1001, 1_800_000_000_000, 1_800_000_000_001, 1_800_000_000_999, LastExpiry - 1, LastExpiry} {
		s, early := expiryOf(ms)
		if got := int64(s)*1000 - int64(early); got != ms || early > 999 {
			t.Errorf("%d ms is second %d less %d ms: %d", ms, s, early, got)
		}
	}
	x := openItems(t, openCluster(t))
	for i := range 20 {
		at := time.Now().Add(time.Duration(20+7*i) * time.Millisecond).UnixMilli()
		x.put(t, "k", "v", 0)
		if i%2 == 0 {
			x.put(t, "k", "v", at)
		} else if _, err := x.Update(t.Context(), []byte("k"), Update{Read: -1, Apply: func(*Object) Change { return Change{Action: objstore.Expire, Expiry: at} }}); err != nil {
			t.Fatal(err)
		}
		for {
			before := time.Now().UnixMilli()
			there := x.get(t, "k") != ""
			if !there && time.Now().UnixMilli() < at {
				t.Fatalf("gone %d ms early", at-time.Now().UnixMilli())
			}
			if there && before > at {
				t.Fatalf("there %d ms after its end", before-at)
			}
			if !there {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	x.put(t, "k", "v", time.Now().Add(50*time.Millisecond).UnixMilli())
	if _, err := x.Update(t.Context(), []byte("k"), Update{Read: -1, Apply: func(*Object) Change { return Change{Action: objstore.Expire} }}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond)
	if x.get(t, "k") != "v" {
		t.Error("a key that does not expire any more is gone")
	}
}

// A head is read as it was written; what no server has stored is no item.
func TestHead(t *testing.T) {
	for _, h := range []Head{{}, {Unique: 1<<64 - 1, Flush: 7, State: mostState}} {
		b := make([]byte, HeadSize)
		h.Encode(b)
		var got Head
		if ok := got.Decode(b); !ok || got != h {
			t.Errorf("%+v is read as %+v, %v", h, got, ok)
		}
	}
	for i, v := range map[int]byte{12: mostState + 1, 13: 1} {
		b := make([]byte, HeadSize)
		b[i] = v
		if new(Head).Decode(b) {
			t.Errorf("% x is a head", b)
		}
	}
	if new(Head).Decode(make([]byte, HeadSize-1)) {
		t.Error("a part of a head is one")
	}
}

// A store that is dropped is made anew by the next operation.
func TestDropped(t *testing.T) {
	c := openCluster(t)
	x := openItems(t, c)
	x.put(t, "k", "v", 0)
	for _, name := range []string{"items", "items" + ControlSuffix} {
		if err := c.DropStore(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if name == "items" && x.get(t, "k") != "" {
			t.Error("an item of a store that was dropped")
		}
		x.put(t, "k", "w", 0)
		if x.get(t, "k") != "w" {
			t.Error("what was stored then is not there")
		}
	}
}

// What is put into a store that is made anew, since both were dropped, has the number of the new record: it is there still when that has been read.
func TestPutAfterDrop(t *testing.T) {
	c := openCluster(t)
	x := openItems(t, c)
	for range 2 {
		if err := x.flushes.changeRecord(t.Context(), func(r *record) bool { r.number -= 1000; return true }); err != nil { // that of the next is another
			t.Fatal(err)
		}
		if _, err := x.flushes.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		x.put(t, "a", "v", 0)
		for _, name := range []string{"items" + ControlSuffix, "items"} {
			if err := c.DropStore(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		// The server has the number from before, as one has it of which the watcher has not read since.
		x.flushes.last.mu.Lock()
		x.flushes.last.readAt.Store(int64(x.clock()))
		x.flushes.last.mu.Unlock()
		x.put(t, "b", "w", 0)
		if _, err := x.flushes.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x.get(t, "b") != "w" {
			t.Fatal("what was put after the drop is gone")
		}
		if x.get(t, "a") != "" {
			t.Error("an item of a store that was dropped")
		}
	}
}

// Scan finds a key that is there all the time, however often its item is replaced by one of another size meanwhile.
func TestScanOfBucketThatChanges(t *testing.T) {
	c := openCluster(t)
	x, other := openItems(t, c), openItems(t, c)
	x.put(t, "k", "v", 0)
	perNode, _ := x.objects().Buckets()
	mn, at := x.objects().Locate([]byte("k"))
	bucket := uint64(slices.Index(x.objects().Nodes(), mn))*perNode + at
	var stop atomic.Bool
	var writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				other.put(t, "k", strings.Repeat("v", 1+i*37%3000), 0)
			}
		})
	}
	missed := 0
	const scans = 10_000
	for range scans {
		keys, _, err := x.Scan(t.Context(), bucket, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) != 1 || string(keys[0]) != "k" {
			missed++
		}
	}
	stop.Store(true)
	writers.Wait()
	if missed > 0 {
		t.Errorf("%d of %d scans missed the key, or found others", missed, scans)
	}
}

// The record is read often as long as operations ask for it or a flush is to come, and seldom after a second without both.
func TestUnusedServerReadsSeldom(t *testing.T) {
	wait, unneeded := untilPoll(true, 7)
	for n := range idleAfter {
		if wait != pollEvery {
			t.Fatalf("a wait of %v after %d readings in vain", wait, n)
		}
		wait, unneeded = untilPoll(false, unneeded)
	}
	if wait != idlePoll {
		t.Errorf("a wait of %v after %d readings in vain", wait, idleAfter)
	}
	if wait, unneeded = untilPoll(true, unneeded); wait != pollEvery || unneeded != 0 {
		t.Errorf("in use again: a wait of %v", wait)
	}
}
