//go:build linux && cgo

package verbs

import (
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

// quickCluster is a cluster that notices soon who does not answer.
func quickCluster(t *testing.T, mems, cns int) *testCluster {
	t.Helper()
	needDevice(t)
	c := &testCluster{t: t, change: func(o *Options) { o.DeadAfter = 8 * time.Second }}
	t.Cleanup(c.Close)
	for id := range mems {
		c.serve(fabric.MemID(id), 1<<20, 1, "127.0.0.1:0")
	}
	for range cns {
		c.join()
	}
	return c
}

// add adds to a word of a memory node, until it can or a while is over.
func add(p fabric.Port, mem int, within time.Duration) error {
	ops := []fabric.Op{fabric.FAA(fabric.At(fabric.MemID(mem), 64), 1)}
	err := p.Do(ops)
	for limit := time.Now().Add(within); err != nil && time.Now().Before(limit); err = p.Do(ops) {
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// A memory node that lives and does not answer the lead cannot be told who has died: who is dead could still write to it. So
// nobody uses it any more by the time that anybody hears of the death, until it has thrown everybody out and
// joined anew. The others go on.
func TestSilentMemoryNodeIsCutOff(t *testing.T) {
	const mems, silent = 4, 2
	c := quickCluster(t, mems, 3)
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	for mem := range mems {
		if err := add(p, mem, 0); err != nil {
			t.Fatalf("memory node %d: %v", mem, err)
		}
	}
	s := c.servers[silent]
	s.mu.Lock() // its control service hangs; its device does not
	gone := c.Node(2).ID()
	c.Kill(2)
	awaitView(t, c.Node(0), gone)
	for i := range 2 {
		if r := c.nodes[i].remotes[silent].Load(); r.alive.Load() {
			t.Errorf("cn%d knows of the death and still uses a memory node that does not", i+1)
		}
	}
	for mem := range mems {
		switch err := add(p, mem, 0); {
		case mem != silent && err != nil:
			t.Errorf("memory node %d: %v", mem, err)
		case mem == silent && !errors.Is(err, fabric.ErrNodeDown):
			t.Errorf("the silent memory node: %v", err)
		}
	}
	s.mu.Unlock()
	if err := add(p, silent, 30*time.Second); err != nil {
		t.Errorf("the memory node answers again: %v", err)
	}
	s.mu.Lock()
	for _, g := range s.guests {
		if g.ID == gone {
			t.Errorf("%v is dead and attached", gone)
		}
	}
	s.mu.Unlock()
}
