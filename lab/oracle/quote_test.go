package oracle

import (
	"strings"
	"testing"
)

// Long values are shown by their head, their length and a hash; short ones whole.
func TestLongValuesAreShortened(t *testing.T) {
	long := strings.Repeat("abc", 100)
	o := &StoreOp{Client: 7, Method: "get", Key: "key1", Result: Done, Value: long}
	if got, want := o.String(), `client 7 get key1: done "abcabcabcabcabca".. (300 bytes, hash `; !strings.HasPrefix(got, want) || len(got) > 90 {
		t.Errorf("%s, want %s..", got, want)
	}
	other := *o
	other.Value = long[:299] + "x"
	if o.String() == other.String() {
		t.Error("values that differ look alike")
	}
	o.Value = strings.Repeat("x", maxQuoted)
	if got := o.String(); !strings.Contains(got, `"`+o.Value+`"`) {
		t.Errorf("a short value is shown as %s", got)
	}
}
