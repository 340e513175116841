package reclaim

import (
	"testing"

	"github.com/declock/declock/fabric"
)

// A hooked port calls a function before each chain.
type hooked struct {
	fabric.Port
	hook func()
}

func (p *hooked) Do(ops []fabric.Op) error {
	p.hook()
	return p.Port.Do(ops)
}

// A node that joins the cluster and registers before a member reads the records counts as alive for that member; a crashed node does not.
func TestInUseByNodeThatJustJoined(t *testing.T) {
	w := newWorld(t, 2)
	defer w.c.Close()
	w.kill(1, 0)
	if err := w.mine[0].m.Leave(w.mine[0].Do, nil); err != nil {
		t.Fatal(err)
	}
	if used, err := InUse(w.mine[0].port, w.base, w.cns[0].View); err != nil || used {
		t.Fatalf("in use by a crashed node: %v, %v", used, err)
	}
	p := &hooked{w.mine[0].port, func() {
		w.cns = append(w.cns, w.c.AddCN())
		w.mine = append(w.mine, w.join(2))
	}}
	if used, err := InUse(p, w.base, w.cns[0].View); err != nil || !used {
		t.Fatalf("in use by a node that has just joined: %v, %v", used, err)
	}
}
