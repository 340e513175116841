package check

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// lastKept is how many operations of each client a report shows.
const lastKept = 14

// longest bounds a line: values of objects can be long.
const longest = 300

// lastOps are the last operations of each client, the oldest first.
type lastOps map[fabric.ClientID][]string

func (o lastOps) keep(c fabric.ClientID, line string) {
	if len(line) > longest {
		line = line[:longest] + "..."
	}
	list := append(o[c], line)
	o[c] = list[max(0, len(list)-lastKept):]
}

// histories returns the last operations of all clients that did any.
func (o lastOps) histories() (list []ClientHistory) {
	for _, c := range slices.Sorted(maps.Keys(o)) {
		list = append(list, ClientHistory{c, o[c]})
	}
	return list
}

// A ClientHistory is the last that a client did, the oldest first.
type ClientHistory struct {
	Client fabric.ClientID
	Lines  []string
}

// tellLast writes what clients did last, for people.
func tellLast(w io.Writer, list []ClientHistory) {
	fmt.Fprintln(w, "the last operations, * is what the client itself reports:")
	for _, h := range list {
		fmt.Fprintf(w, "  %v\n", h.Client)
		for _, l := range h.Lines {
			fmt.Fprintf(w, "    %s\n", l)
		}
	}
}

// describeLock takes apart what an operation does to the lock at an address: "" if it does nothing.
func describeLock(y cql.Layout, l fabric.Addr, e *sim.Event) string {
	if e.Step != sim.StepEffect || e.Op.Addr < l || e.Op.Size() != 8 {
		return ""
	}
	switch off := uint64(e.Op.Addr) - uint64(l); {
	case off == 0:
		return fmt.Sprintf(": %s -> %s", y.FormatHeader(cql.Header(e.Old)), y.FormatHeader(cql.Header(e.New)))
	case off < y.Lock().Size && e.Op.Kind == fabric.OpWrite:
		return fmt.Sprintf(", slot %d: %v", off/8-1, cql.Entry(e.New))
	}
	return ""
}
