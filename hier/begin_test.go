package hier

import (
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A tenure begins without the grants, the note and the value of the one before: its tokens count from 0, and as many handovers
// follow as in the first.
func TestTenureBeginsAnew(t *testing.T) {
	x := &local{relation: relation{state: acquiring, incarnation: &incarnation{}, tenure: tenure{seq: cql.MaxSeq, streak: 7, sharing: 5}}}
	x.handoff.addr, x.handoff.data, x.handoff.deferred, x.handoff.dirty = 8, []byte{1}, 1, true
	k := &Locker{table: NewTable(Policy{})}
	k.begin(x, &cql.Ticket{Lock: fabric.At(0, 4096), Index: 9, Mode: lock.Exclusive})
	if x.token() != cql.Token(0, 9, 0) || x.streak != 0 || x.sharing != 0 {
		t.Errorf("token %v, streak %d, sharing since %d", x.token(), x.streak, x.sharing)
	}
	if len(x.handoff.data) != 0 || x.handoff.addr != 0 || x.handoff.deferred != 0 || x.handoff.dirty {
		t.Errorf("%d bytes of %v are left, owed %d, dirty %v", len(x.handoff.data), x.handoff.addr, x.handoff.deferred, x.handoff.dirty)
	}
}
