package app

import (
	"bytes"
	"testing"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/scheme"
)

// The status shows of each memory, and copy, which compute nodes execute operations by their own CPUs, which do not, and why.
func TestWaysInStatus(t *testing.T) {
	node := func(name string, ways ...control.Way) computeRow {
		return computeRow{ComputeInfo: scheme.ComputeInfo{Node: name}, Status: &control.Status{Ways: ways}}
	}
	var out bytes.Buffer
	writeWays(&out, []computeRow{
		node("cn1", control.Way{Memory: "mn10", Local: true}, control.Way{Memory: "mn2", Local: true}, control.Way{Memory: "mn2", Copy: 3, Local: true}),
		node("cn2", control.Way{Memory: "mn10", Why: "no reason"}, control.Way{Memory: "mn2", Local: true}),
		{}, // it says nothing
		node("cn3", control.Way{Memory: "mn10", Why: "no reason"}),
		node("cn4", control.Way{Memory: "mn10", Why: "another"}),
	})
	want := `  operations on  by the own CPU of  over the network of
  mn2            cn1, cn2           -
  mn2, copy 3    cn1                -
  mn10           cn1                cn2, cn3 (no reason); cn4 (another)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	if writeWays(&out, []computeRow{node("cn1")}); out.Len() != 0 {
		t.Errorf("of a fabric with one way only:\n%s", out.String())
	}
}
