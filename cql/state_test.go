package cql

import (
	"reflect"
	"testing"
)

// fieldCount is how many fields each type has whose AppendState says what tells two of its values apart. A field that is new belongs there, unless
// it is a counter or scratch memory.
var fieldCount = map[reflect.Type]int{
	reflect.TypeFor[Ticket]():      15, // Without, Done: until Release has returned
	reflect.TypeFor[Train]():       10,
	reflect.TypeFor[Carried]():     3,
	reflect.TypeFor[Agent]():       16,
	reflect.TypeFor[leading]():     7,
	reflect.TypeFor[asked]():       7,
	reflect.TypeFor[recentReset](): 3,
}

func TestAppendStateKnowsAllFields(t *testing.T) {
	for typ, n := range fieldCount {
		if typ.NumField() != n {
			t.Errorf("%v has %d fields, was %d: does AppendState say all that tells two of them apart?", typ, typ.NumField(), n)
		}
	}
}
