package memory

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// traceOf returns where a chain of a term shows that has reached some replicas.
func traceOf(term uint32, numbers ...uint32) *Trace {
	r := &Trace{}
	for _, x := range numbers {
		r.add(x, term)
	}
	return r
}

// A change that has reached some backups shows at a primary that is one of them. If another term has passed since the last look, one of them may have served, and a primary that is none of them be its copy. What may show once
// may show for good.
func TestTrace(t *testing.T) {
	type look struct {
		primary, term uint32
		shows         bool
	}
	for what, x := range map[string]struct {
		trace *Trace
		looks []look
	}{
		"nothing":                       {nil, []look{{3, 9, false}}},
		"nothing yet":                   {&Trace{}, []look{{3, 9, false}}},
		"the same primary":              {traceOf(5, 3), []look{{1, 5, false}, {1, 5, false}}},
		"the one that has it":           {traceOf(5, 3), []look{{3, 6, true}}},
		"the first of two":              {traceOf(5, 3, 4), []look{{3, 6, true}}},
		"the second of two":             {traceOf(5, 3, 4), []look{{4, 6, true}}},
		"each term is looked at":        {traceOf(5, 3), []look{{2, 6, false}, {4, 7, false}, {1, 8, false}}},
		"a term that nobody looked at":  {traceOf(5, 3), []look{{4, 7, true}}},
		"such a term later":             {traceOf(5, 3), []look{{2, 6, false}, {4, 8, true}}},
		"it has served before this one": {traceOf(5, 3), []look{{3, 6, true}, {4, 7, true}}},
	} {
		for i, l := range x.looks {
			b := &Backups{group: fabric.Replicas{Primary: l.primary, Term: l.term}}
			if got := x.trace.Shows(b); got != l.shows {
				t.Errorf("%s: look %d: %v", what, i, got)
			}
		}
	}
}

// What other attempts have reached counts, however many there were.
func TestTraceOfSeveralAttempts(t *testing.T) {
	at := func(primary, term uint32) *Backups {
		return &Backups{group: fabric.Replicas{Primary: primary, Term: term}}
	}
	for _, primary := range []uint32{3, 4, 5} {
		r := traceOf(5, 3, 4)
		r.Add(traceOf(6, 5))
		if !r.Shows(at(primary, 7)) {
			t.Errorf("it does not show at replica %d", primary)
		}
	}
	for _, primary := range []uint32{4, 5} {
		r := traceOf(5, 3)
		r.Add(traceOf(6, 4, 5))
		if !r.Shows(at(primary, 7)) {
			t.Errorf("an attempt that has reached two does not show at replica %d", primary)
		}
	}
	r := traceOf(5, 3)
	if !r.Shows(at(3, 6)) {
		t.Error("it does not show")
	}
	if r.Add(traceOf(7, 5)); !r.Shows(at(4, 8)) {
		t.Error("what has shown does not any more, after another attempt")
	}
	r = traceOf(5, 3)
	r.Add(traceOf(6, 4))
	if r.Shows(at(5, 7)) {
		t.Error("it shows at one that none has reached")
	}
	r = &Trace{}
	for n := range uint32(2*fabric.MaxBackups + 1) {
		if r.Shows(at(100, 1)) {
			t.Errorf("%d of them are too many", n)
		}
		r.Add(traceOf(1, n+1))
	}
	if !r.Shows(at(100, 1)) {
		t.Error("those that there is no room for are not missed")
	}
}
