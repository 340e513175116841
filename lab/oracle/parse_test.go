package oracle_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// parseEvent parses what Event.String prints.
func parseEvent(t *testing.T, line string) (e oracle.Event) {
	t.Helper()
	text, errText, failed := strings.Cut(line, " error=")
	if failed {
		e.Err = errors.New(errText)
	}
	f := strings.Fields(text)
	if len(f) < 3 {
		t.Fatalf("event %q: too short", line)
	}
	at, err := strconv.ParseInt(f[0], 10, 64)
	e.Time = fabric.Time(at)
	for e.Kind <= oracle.Kept && strings.Fields(e.Kind.String())[0] != f[2] {
		e.Kind++
	}
	if err != nil || e.Kind > oracle.Kept {
		t.Fatalf("event %q: no time or no such kind", line)
	}
	var mn uint16
	if n, _ := fmt.Sscanf(f[1], "mn%d", &mn); n == 1 {
		e.Lock = fabric.At(fabric.MemID(mn), 0)
		return e
	}
	var cn uint8
	var index int
	if n, _ := fmt.Sscanf(f[1], "cn%d/%d", &cn, &index); n == 0 {
		t.Fatalf("event %q: no client", line)
	}
	e.Client = fabric.Client(fabric.CNID(cn), index)
	if len(f) == 3 {
		return e
	}
	var off uint64
	if n, _ := fmt.Sscanf(f[3], "mn%d+%v", &mn, &off); n != 2 || len(f) < 5 {
		t.Fatalf("event %q: no lock and mode", line)
	}
	e.Lock = fabric.At(fabric.MemID(mn), off)
	for e.Mode < lock.Update && e.Mode.String() != f[4] {
		e.Mode++
	}
	for _, x := range f[5:] {
		name, value, _ := strings.Cut(x, "=")
		v, _ := strconv.ParseUint(value, 0, 64)
		switch name {
		case "token":
			e.Token = lock.Token(v)
		case "value":
			e.Value, e.Writes = v, e.Kind == oracle.Releasing
		case "torn":
			e.Torn = true
		}
	}
	return e
}
