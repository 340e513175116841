// Package reporttest tests what commands print as JSON.
package reporttest

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// CheckNames objects to names in v's JSON that are not of the style of all others: lower case, with underscores.
func CheckNames(t *testing.T, v any) {
	t.Helper()
	checkNames(t, reflect.TypeOf(v), map[reflect.Type]bool{})
}

var jsonName = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

func checkNames(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		checkNames(t, of.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[of] || of.Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	seen[of] = true
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if !jsonName.MatchString(name) {
			t.Errorf("%v.%s is %q in JSON", of, f.Name, name)
		}
		checkNames(t, f.Type, seen)
	}
}
