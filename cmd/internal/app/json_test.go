package app

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// All names of what --json and /status print are of one style: lower case, with underscores.
func TestNamesInJSON(t *testing.T) {
	for _, v := range []any{report.Report{}, clusterRow{}, control.Status{}, fabric.Memory{}, lockRow{}, bucketRow{}, storeRow{}, treeRow{}, btree.Dump{},
		report.Total{}, replay.Row{}, presetRow{}, traces.Summary{}, peersRow{}} {
		checkNames(t, reflect.TypeOf(v), map[reflect.Type]bool{})
	}
}

var jsonName = regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)

func checkNames(t *testing.T, of reflect.Type, seen map[reflect.Type]bool) {
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
