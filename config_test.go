package declock

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/objstore"
)

// Each field of a StoreConfig and a TreeConfig comes to the field of the store and the tree that has its name, and these have no other but what the cluster fills in, and what is for
// experiments.
func TestConfigsAreWhole(t *testing.T) {
	c, _ := openPools(t)
	var st StoreConfig
	var tr TreeConfig
	names := map[string]string{"LockTimeout": "LockTimeoutNs", "AccessRefresh": "AccessRefreshS"}
	fill := func(v reflect.Value, want func() reflect.Value, internal ...string) {
		t.Helper()
		v = v.Elem()
		for i := range v.NumField() {
			f, name := v.Field(i), v.Type().Field(i).Name
			before := want()
			value := uint64(7 + i) // of no other field
			switch f.Kind() {
			case reflect.Bool:
				f.SetBool(true)
			case reflect.Slice:
				f.Set(reflect.MakeSlice(f.Type(), 1, 1))
			case reflect.Int, reflect.Int64:
				if f.Type() == reflect.TypeFor[time.Duration]() {
					value *= uint64(time.Second)
				}
				f.SetInt(int64(value))
			default:
				f.SetUint(value)
			}
			to := cmp.Or(names[name], name)
			if x := want().FieldByName(to); !x.IsValid() {
				t.Errorf("%v.%s: there is no %s", v.Type(), name, to)
			} else if to == "AccessRefreshS" && x.Uint() != value/uint64(time.Second) {
				t.Errorf("%v.%s: %s is %v of %v", v.Type(), name, to, x, f)
			} else if to != "AccessRefreshS" && !reflect.DeepEqual(x.Convert(f.Type()).Interface(), f.Interface()) {
				t.Errorf("%v.%s: %s is %v of %v", v.Type(), name, to, x, f)
			}
			for k, after := 0, want(); k < before.NumField(); k++ {
				if x := after.Field(k); after.Type().Field(k).Name != to && x.Kind() != reflect.Func && !reflect.DeepEqual(before.Field(k).Interface(), x.Interface()) {
					t.Errorf("%v.%s changes %s", v.Type(), name, after.Type().Field(k).Name)
				}
			}
		}
		unset := []string{}
		for k, w := 0, want(); k < w.NumField(); k++ {
			if name := w.Type().Field(k).Name; w.Field(k).IsZero() != slices.Contains(internal, name) {
				unset = append(unset, name)
			}
		}
		if len(unset) > 0 {
			t.Errorf("%v: %v", v.Type(), unset)
		}
	}
	fill(reflect.ValueOf(&st), func() reflect.Value {
		cfg, err := st.of(c, "s")
		if err != nil {
			t.Fatal(err)
		}
		return reflect.ValueOf(cfg)
	}, "EpochNs", "Paper")
	fill(reflect.ValueOf(&tr), func() reflect.Value {
		cfg, err := tr.of(c, "t")
		if err != nil {
			t.Fatal(err)
		}
		return reflect.ValueOf(cfg)
	})
}

// Durations: a part of a second counts as one, and what is below 0, or longer than can be kept, is refused.
func TestConfigDurations(t *testing.T) {
	c, ctx := openPools(t)
	how := StoreConfig{LockTimeout: 3 * time.Millisecond, AccessRefresh: time.Second + time.Millisecond}
	if cfg, err := how.of(c, "s"); err != nil || cfg.LockTimeoutNs != 3_000_000 || cfg.AccessRefreshS != 2 {
		t.Errorf("%+v, %v", cfg, err)
	}
	for _, how := range []StoreConfig{{LockTimeout: -1}, {AccessRefresh: -1}, {AccessRefresh: 1<<63 - 1}} {
		if _, err := c.Store(ctx, "s", how); !errors.Is(err, objstore.ErrConfig) {
			t.Errorf("%+v: %v", how, err)
		}
	}
	if _, err := c.Tree(ctx, "t", TreeConfig{LockTimeout: -1}); !errors.Is(err, btree.ErrConfig) {
		t.Error(err)
	}
}
