package objstore

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// An object lives for its TTL at least, and for less than a second longer, whenever in a second it is stored or touched.
func TestTTLIsALeast(t *testing.T) {
	const second = fabric.Second
	for _, part := range []fabric.Time{0, 1, second / 2, second - 25*fabric.Microsecond, second - 1} {
		for _, touched := range []bool{false, true} {
			_, c := one(t, nil)
			pauseTo := func(at fabric.Time) { wantErr(t, "pause", c.port.Pause(at), nil) }
			pauseTo(5*second + part)
			ttl := uint32(1)
			if touched {
				ttl = 9
			}
			began := c.port.Now()
			wantErr(t, "set", c.Set(b("k"), b("v"), Options{TTL: ttl}), nil)
			if touched {
				began = c.port.Now()
				wantErr(t, "touch", c.Touch(b("k"), 1), nil)
			}
			ended := c.port.Now()
			pauseTo(began + second - 10*fabric.Microsecond) // a get takes less
			wantValue(t, c, "k", "v")
			pauseTo(ended + 2*second)
			wantMiss(t, c, "k")
		}
	}
}

// An object that is stored or touched with milliseconds to live is there until then and no longer, whenever in a second that is; a get that writes its access time, an append and
// an addition change nothing about it.
func TestMillisAreExact(t *testing.T) {
	const ms, second = fabric.Millisecond, fabric.Second
	for i, at := range []fabric.Time{0, 1, ms / 2, 400 * ms, second - 1} {
		for _, life := range []uint64{1, 30, 999, 1000, 1001, 90_500} {
			_, c := one(t, nil)
			pauseTo := func(at fabric.Time) { wantErr(t, "pause", c.port.Pause(at), nil) }
			pauseTo(5*second + at)
			o := Options{Millis: life}
			if i%2 == 1 {
				o = Options{TTL: 7}
			}
			began := c.port.Now()
			wantErr(t, "set", c.Set(b("k"), b("17"), o), nil)
			if i%2 == 1 {
				began = c.port.Now()
				wantErr(t, "touch", c.TouchAs(b("k"), Options{Millis: life}), nil)
			}
			ended := c.port.Now()
			if life > 60_000 {
				pauseTo(began + 40*second) // its access time is to be written
				wantValue(t, c, "k", "17")
				wantErr(t, "append", c.Append(b("k"), b("0")), nil)
				_, err := c.Incr(b("k"), 1)
				wantErr(t, "incr", err, nil)
				wantErr(t, "expire", c.Update(b("k"), Update{Read: -1, Apply: func(o *Object) Change {
					return Change{Action: Expire, Expiry: o.Expiry, Early: o.Early}
				}}), nil)
			}
			pauseTo(began + fabric.Time(life)*ms - 10*fabric.Microsecond) // a get takes less
			_, err := c.Get(b("k"))
			wantErr(t, "get before the end", err, nil)
			pauseTo(ended + fabric.Time(life+1)*ms)
			wantMiss(t, c, "k")
		}
	}
}

// A get finds an object expired and has released the lock when another client gives it more time (by a clock that is
// behind), or deletes it and puts another into the same chunk, with the same slot word: what was acknowledged stays.
func TestExpiredObjectThatChangesStays(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		for _, chain := range []int{1, 3} { // behind those under the lock the other one would wait for ever
			p, getter, other := soonExpired(t)
			tag := (getter.uniques[0].next - 1) & maxTag
			getter.SetNow(100)
			other.SetNow(99)
			var acknowledged error
			p.until, p.then = chain, func() {
				if !replaced {
					acknowledged = other.Touch(b("k"), 1000)
					return
				}
				other.SetNow(100)
				_ = other.Delete(b("k"))
				other.uniques[0].next += (tag - other.uniques[0].next) & maxTag
				acknowledged = other.Set(b("k"), b("new"), Options{})
			}
			_, _ = getter.Get(b("k"))
			if p.then != nil {
				continue // fewer chains
			}
			if _, err := other.Get(b("k")); acknowledged == nil && err != nil {
				t.Errorf("replaced: %v, behind chain %d: what was acknowledged is gone", replaced, chain)
			}
		}
	}
}

// A client that wants memory finds an object expired, and another, whose clock is behind, gives it more time before it is evicted: it is none of
// the expired ones any more, and stays.
func TestExpiredVictimThatIsTouchedStays(t *testing.T) {
	p, evicting, toucher := soonExpired(t)
	at := evicting.s.locate(b("k"))
	word, _ := evicting.s.places.get(at.hash)
	slot := evicting.s.slotsAddr(at.bucket)
	victim := candidate{bucket: at.bucket, slot: slot, word: word}
	evicting.SetNow(100)
	toucher.SetNow(99)
	p.until, p.then = 1, func() { wantErr(t, "touch", toucher.Touch(b("k"), 1000), nil) } // behind the chain that reads times of expiry
	if ch, err := evicting.evictOldest(evicting.s.h.Parts[at.node], []candidate{victim}); err != nil || !ch.none() {
		t.Errorf("evicted %v, error %v", ch, err)
	}
	if p.then != nil || evicting.Stats().Expired != 0 {
		t.Errorf("touched: %v, %d objects counted as expired", p.then == nil, evicting.Stats().Expired)
	}
	wantValue(t, toucher, "k", "v")
}
