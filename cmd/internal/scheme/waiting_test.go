package scheme

import (
	"strings"
	"testing"

	"github.com/declock/declock/fabric/member"
)

// A number that waits since etcd has lost its data is shown with the copies that it had, what it waits for, and whose copy could be adopted.
func TestWaiting(t *testing.T) {
	was := &member.Group{ID: 3, Factor: 2, Term: 4, Epoch: 9, Made: 2, Replicas: []member.Replica{{Host: 7, ID: 3, Phase: member.InSync, Number: 1}, {Host: 8, ID: 5, Phase: member.InSync, Number: 2}}}
	known := member.Know(was, 2)
	l := member.NewLedger(4)
	e, err := l.ReserveMN(member.MN{ID: 5, Size: 1 << 20, Known: []member.Known{known}})
	if err != nil {
		t.Fatal(err)
	}
	l.Join(e)
	info, err := describeState("tcp://x", l.State())
	if err != nil || len(info.Groups) != 1 {
		t.Fatalf("%+v, %v", info, err)
	}
	g := info.Groups[0]
	want := "etcd has lost its data, and mn3 may have a later copy: if that is gone, declock mn adopt --from mn5"
	if g.Number != "mn3" || g.Serving || g.Waits != want || len(g.Copies) != 2 || g.Copies[0].Alive || !g.Copies[1].Alive {
		t.Errorf("%+v, want %q", g, want)
	}

	// Which copies there are, when an empty memory node with the number was first: the best comes first.
	l = member.NewLedger(4)
	for _, mn := range []member.MN{{ID: 3, Replicas: 2}, {ID: 5, Known: []member.Known{known}}, {ID: 7, Known: []member.Known{member.Know(was, 1)}}} {
		if e, err = l.ReserveMN(mn); err != nil {
			t.Fatal(err)
		}
		l.Join(e)
	}
	if info, err = describeState("tcp://x", l.State()); err != nil || len(info.Groups) != 1 || !strings.HasSuffix(info.Groups[0].Waits, "declock mn adopt --from mn7 or --from mn5 or --from mn3") {
		t.Errorf("%+v, %v", info.Groups, err)
	}
}
