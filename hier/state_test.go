package hier

import (
	"reflect"
	"testing"
)

// fieldCount is how many fields each type has whose AppendState says what tells two of its values apart. A field that is new belongs there, unless
// it is a counter or scratch memory.
var fieldCount = map[reflect.Type]int{
	reflect.TypeFor[Table]():          8,
	reflect.TypeFor[shard]():          6,
	reflect.TypeFor[local]():          4,
	reflect.TypeFor[relation]():       12,
	reflect.TypeFor[tenure]():         9,
	reflect.TypeFor[pace]():           3,
	reflect.TypeFor[handoff]():        6,
	reflect.TypeFor[waiter]():         11,
	reflect.TypeFor[pendingRelease](): 4,
	reflect.TypeFor[incarnation]():    11,
	reflect.TypeFor[recovery]():       12,
	reflect.TypeFor[leftover]():       6,
	reflect.TypeFor[sighting]():       4,
	reflect.TypeFor[fences]():         4,
	reflect.TypeFor[attachment]():     3,
	reflect.TypeFor[Locker]():         21,
	reflect.TypeFor[Agent]():          13,
}

func TestAppendStateKnowsAllFields(t *testing.T) {
	for typ, n := range fieldCount {
		if typ.NumField() != n {
			t.Errorf("%v has %d fields, was %d: does AppendState (state.go) say all that tells two of them apart?", typ, typ.NumField(), n)
		}
	}
}
