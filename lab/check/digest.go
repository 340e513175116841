package check

import (
	"cmp"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"sync"
	"unsafe"

	"github.com/declock/declock/hier"
)

// A digest hashes what can be reached from a value, by reflection: all fields, those of other packages included, so that
// nothing that is added later is forgotten. Mutexes, functions and channels count nothing. Pointers are numbered as they are met, so
// that only what points where counts, not the addresses.
type digest struct {
	sum  uint64
	seen map[uintptr]uint64
}

// digestOf returns the hash of what can be reached from v.
func digestOf(v any) uint64 {
	d := digest{seen: map[uintptr]uint64{}}
	d.value(reflect.ValueOf(v))
	return d.sum
}

func (d *digest) add(v uint64) {
	d.sum = (bits.RotateLeft64(d.sum, 23) ^ v) * 0x9e3779b97f4a7c15
	d.sum ^= d.sum >> 32
}

var mutexType = reflect.TypeFor[sync.Mutex]()

func (d *digest) value(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			d.add(1)
		} else {
			d.add(0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.add(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		d.add(v.Uint())
	case reflect.Float32, reflect.Float64:
		d.add(uint64(v.Float() * 1e6))
	case reflect.String:
		for _, x := range []byte(v.String()) {
			d.add(uint64(x))
		}
		d.add(uint64(v.Len()))
	case reflect.Pointer:
		d.pointer(v)
	case reflect.Interface:
		if d.add(1); !v.IsNil() {
			d.value(v.Elem())
		}
	case reflect.Struct:
		d.fields(v)
	case reflect.Array, reflect.Slice:
		d.list(v)
	case reflect.Map:
		d.mapping(v)
	}
}

func (d *digest) fields(v reflect.Value) {
	switch t := v.Type(); {
	case t == mutexType:
		return
	case t == shardType:
		d.shard(v)
		return
	case remembered[t] != nil:
		for _, i := range remembered[t] {
			d.value(v.Field(i))
		}
		return
	}
	for i := range v.NumField() {
		d.value(v.Field(i))
	}
}

// shard adds a shard of a hier.Table. Most are empty; and what is kept for reuse is nothing but the number
// of its last tenure.
func (d *digest) shard(v reflect.Value) {
	if v.FieldByIndex(shardCount).IsZero() && v.FieldByIndex(shardSpare).IsZero() && v.FieldByIndex(shardDoubted).IsZero() {
		d.add(0)
		return
	}
	for i := range v.NumField() {
		if i != shardFree[0] {
			d.value(v.Field(i))
			continue
		}
		for x := v.Field(i); !x.IsNil(); x = x.Elem().FieldByName("next") {
			d.value(x.Elem().FieldByName("gen"))
		}
	}
}

var shardType = fieldOf(reflect.TypeFor[hier.Table](), "shards").Type.Elem()

// The fields of a shard that tell whether it is empty, and the list of what is kept for reuse.
var (
	shardCount   = fieldOf(shardType, "count").Index
	shardSpare   = fieldOf(shardType, "spare").Index
	shardDoubted = fieldOf(shardType, "doubted").Index
	shardFree    = fieldOf(shardType, "free").Index
)

// fieldOf returns a field that must be there.
func fieldOf(t reflect.Type, name string) reflect.StructField {
	f, ok := t.FieldByName(name)
	if !ok {
		panic(fmt.Sprintf("check: no %s in %v: what do clients of a node share?", name, t))
	}
	return f
}

// What others write into the Locker of a client that waits.
var (
	lockerSelf = fieldOf(reflect.TypeFor[hier.Locker](), "self").Index
	lockerOwn  = fieldOf(reflect.TypeFor[hier.Locker](), "own").Index
)

// list adds an array or slice.
func (d *digest) list(v reflect.Value) {
	d.add(uint64(v.Len()))
	if e := v.Type().Elem(); v.Len() > 0 && v.CanAddr() && e.Size() == 8 && e.Name() == "Uint64" { // atomics, hundreds
		for _, x := range unsafe.Slice((*uint64)(unsafe.Pointer(v.UnsafeAddr())), v.Len()) {
			d.add(x)
		}
		return
	}
	for i := range v.Len() {
		d.value(v.Index(i))
	}
}

func (d *digest) pointer(v reflect.Value) {
	if v.IsNil() {
		d.add(0)
		return
	}
	if n, ok := d.seen[v.Pointer()]; ok {
		d.add(n)
		return
	}
	d.seen[v.Pointer()] = uint64(len(d.seen) + 1)
	d.add(1 << 63)
	d.value(v.Elem())
}

// mapping adds a map in the order of its keys.
func (d *digest) mapping(v reflect.Value) {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int {
		if a.CanUint() {
			return cmp.Compare(a.Uint(), b.Uint())
		}
		return cmp.Compare(a.String(), b.String())
	})
	d.add(uint64(len(keys)))
	for _, k := range keys {
		d.value(k)
		d.value(v.MapIndex(k))
	}
}

// shares returns the hash of what the clients of a node share: the table, what others write into the Lockers of
// those who wait, and the clock.
func (n *node) shares() uint64 {
	d := digest{seen: map[uintptr]uint64{}}
	d.value(reflect.ValueOf(n.table))
	d.value(reflect.ValueOf(n.clock))
	for _, k := range n.lockers {
		v := reflect.ValueOf(k).Elem()
		d.value(v.FieldByIndex(lockerSelf))
		d.value(v.FieldByIndex(lockerOwn))
	}
	return d.sum
}

// keeps returns the hash of what the agent remembers while it waits.
func (n *node) keeps() uint64 { return digestOf(n.agent.State()) }
