package declock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// View shows the object of a key with the clock that its expiry counts by, which Update has as well, and allocates nothing.
func TestView(t *testing.T) {
	c, _ := open(t)
	ctx := t.Context()
	st, err := c.Store(ctx, "view", objstore.Config{})
	if err == nil {
		err = st.Set(ctx, []byte("k"), []byte("value"), declock.SetOptions{Flags: 7, TTL: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	var at fabric.Time
	size := 0
	see := func(it objstore.Item, now fabric.Time) {
		if string(it.Value) != "value" || it.Flags != 7 {
			t.Errorf("%q, flags %d", it.Value, it.Flags)
		}
		if left := int64(it.Expiry) - int64(now/fabric.Second); left < 3598 || left > 3601 {
			t.Errorf("%d s of an hour left", left)
		}
		at, size = now, size+len(it.Value)
	}
	key := []byte("k")
	if n := testing.AllocsPerRun(1000, func() {
		if err := st.View(ctx, key, see); err != nil {
			t.Fatal(err)
		}
	}); n > 0 || size == 0 {
		t.Errorf("%v allocations", n)
	}
	if err := st.View(ctx, []byte("none"), see); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("of none: %v", err)
	}
	if err := st.Update(ctx, key, objstore.Update{Apply: func(o *objstore.Object) objstore.Change {
		if o.Clock < at || uint32(o.Clock/fabric.Second) != o.Now {
			t.Errorf("clock %d, second %d, after %d", o.Clock, o.Now, at)
		}
		return objstore.Change{}
	}}); err != nil {
		t.Error(err)
	}
}
