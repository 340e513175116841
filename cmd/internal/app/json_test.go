package app

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/report/reporttest"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
	"github.com/declock/declock/traces"
	"github.com/declock/declock/traces/replay"
)

// All names of what --json and /status print are of one style: lower case, with underscores.
func TestNamesInJSON(t *testing.T) {
	for _, v := range []any{report.Report{}, clusterRow{}, scheme.ComputeInfo{}, control.Status{}, fabric.Memory{}, lockRow{}, holderRow{}, objstore.BucketDump{}, storeRow{}, treeRow{}, btree.Dump{},
		Total{}, replay.Row{}, presetRow{}, traces.Summary{}} {
		reporttest.CheckNames(t, v)
	}
}

// The manual says what a replay counts besides operations.
func TestReplayCountsAreInTheManual(t *testing.T) {
	manual, err := os.ReadFile("../../../docs/monitoring.md")
	if err != nil {
		t.Skip(err)
	}
	counts := reflect.TypeFor[replay.Counts]()
	for i := range counts.NumField() {
		if name := counts.Field(i).Tag.Get("json"); !strings.Contains(string(manual), "`"+name+"`") {
			t.Errorf("docs/monitoring.md does not say what %s counts", name)
		}
	}
}
