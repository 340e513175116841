package hier

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// A client that is admitted ends the doubt that it knew of. Another client of the node may have left a place behind meanwhile:
// that one is not admitted yet, and counts until somebody asks again.
func TestALaterDoubtStays(t *testing.T) {
	l := fabric.At(0, 4096)
	table := NewTable(Policy{Kind: Flat})
	table.doubt(l)
	known := table.doubted(l)
	table.doubt(l)
	table.trust(l, known)
	later := table.doubted(l)
	if later == 0 {
		t.Fatal("the end of a doubt has ended a later one")
	}
	if table.trust(l, later); table.doubted(l) != 0 || table.doubts.Load() != 0 {
		t.Errorf("after the last: doubt %d, %d in all", table.doubted(l), table.doubts.Load())
	}
}

// Of more doubts than a shard keeps the oldest are forgotten, and those of other locks stay.
func TestTheOldestDoubtsAreForgotten(t *testing.T) {
	table := NewTable(Policy{Kind: Flat})
	shard := table.shardOf(fabric.At(0, 4096))
	var locks []fabric.Addr
	for off := uint64(4096); len(locks) < maxDoubts+2; off += 8 {
		if l := fabric.At(0, off); table.shardOf(l) == shard {
			locks = append(locks, l)
			table.doubt(l)
		}
	}
	for i, l := range locks {
		if has := table.doubted(l) != 0; has != (i >= 2) {
			t.Errorf("doubt %d of %d: kept %v", i, len(locks), has)
		}
	}
}
