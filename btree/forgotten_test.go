package btree

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// A compute node that closes a tree before the round is over that is to find the blocks which have become free on a missing part stays registered, and says that they are lost: others find them when it has
// left the cluster. When the round is over, it has none.
func TestLeaveBeforeTheForgottenAreFound(t *testing.T) {
	for _, over := range []bool{false, true} {
		w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 2, 4<<20, 2)
		tree := w.open(0, w.config())
		first := w.client(0, tree)
		for i := range 40 {
			wantErr(t, "put", first.Put(keyOf(i), large(i)), nil)
		}
		w.c.KillMN(w.mns[1])
		c := w.client(1, w.open(1, w.config()))
		for i := range 40 {
			if err := c.Put(keyOf(i), large(i+1)); err != nil {
				wantErr(t, "put", err, fabric.ErrNodeDown)
			}
		}
		want := c.Found().Lost
		if want == 0 {
			t.Fatal("nothing that is replaced was on the memory node that is down")
		}
		w.c.RestartServer(w.mns[1])
		c, first = w.client(1, c.t.newest.Load()), w.client(0, tree)
		_, err := c.ReclaimStep(w.cns[1].View) // takes the part in, and asks for a round
		wantErr(t, "step", err, nil)
		for i := 0; over && i < 40; i++ {
			_, err := first.ReclaimStep(w.cns[0].View)
			wantErr(t, "step", err, nil)
			_, err = c.ReclaimStep(w.cns[1].View)
			wantErr(t, "step", err, nil)
		}
		if over {
			if got := c.Found().Blocks; got < want {
				t.Errorf("%d blocks are found, want %d", got, want)
			}
			want = 0
		}
		if wantErr(t, "leave", c.Leave(), nil); c.Found().Lost != want {
			t.Errorf("the round is over: %v: %d blocks are lost, want %d", over, c.Found().Lost, want)
		}
		w.c.Kill(w.cns[1])
		wantErr(t, "pause", first.port.Pause(first.port.Now()+fabric.Second), nil)
		for range 60 {
			_, err := first.ReclaimStep(w.cns[0].View)
			wantErr(t, "step", err, nil)
		}
		if got := first.Found().Blocks; got < want {
			t.Errorf("%d blocks are found when the compute node has left, want %d", got, want)
		}
		w.c.Close()
	}
}
