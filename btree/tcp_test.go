package btree

import (
	"testing"

	"github.com/declock/declock/lock/locktest"
	"pgregory.net/rapid"
)

// Over TCP, with DecLock: random operations agree with a sorted map.
func TestModelTCP(t *testing.T) {
	cl := realCluster(t, locktest.TCP(), 16<<20, 1)
	l := decLocks(t, cl, 1)
	cfg := shmConfig()
	cfg.Lock, cfg.MaxKey, cfg.MaxInline, cfg.NodeSize = l.layout, 16, 16, 256
	tr, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	c, err := tr.Client(l.locker(0, shmPort(t, cl, 0)))
	wantErr(t, "client", err, nil)
	defer c.Close()
	rapid.Check(t, func(rt *rapid.T) {
		var keys []string
		wantErr(t, "scan", c.Each(Range{}, func(k, _ []byte) bool { keys = append(keys, string(k)); return true }), nil)
		for _, k := range keys { // of the run before
			wantErr(t, "delete", c.Delete([]byte(k)), nil)
		}
		modelRun(t, rt, c)
	})
}

// Over TCP, with DecLock: clients of three compute nodes at once.
func TestConcurrentTCP(t *testing.T) {
	cl := realCluster(t, locktest.TCP(), 16<<20, 3)
	concurrent(t, cl, decLocks(t, cl, 3))
}
