//go:build cgo && !shmonly

package verbs

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/cas"
	regions "github.com/declock/declock/memory"
)

// The B+tree does over RDMA what it does in the simulator and on shared memory: clients of two compute nodes fill one tree,
// whose nodes split under them, take every third key away again, get and scan what is left; and its structure is sound.
func TestTree(t *testing.T) {
	const size, writers, each = 4 << 20, 4, 40
	c := cluster(t, size, 2)
	open := func(i int) *port {
		p, err := c.Nodes[i%2].Open()
		if err != nil {
			t.Fatal(err)
		}
		return p.(*port)
	}
	if err := regions.Format(open(0), 0, regions.Params{Size: size, CapacityLog2: 3, VersionBits: 16}); err != nil {
		t.Fatal(err)
	}
	var trees []*btree.Tree
	for i := range c.Nodes {
		tree, err := btree.Open(open(i), btree.Config{Name: "verbs", Nodes: []fabric.MemID{0}, Lock: cas.Config{Plain: true}.Layout(),
			MaxKey: 8, NodeSize: 256, MaxInline: 16, LockTimeoutNs: 60 * fabric.Second})
		if err != nil {
			t.Fatal(err)
		}
		trees = append(trees, tree)
	}
	client := func(i int) (*port, *btree.Client) {
		p := open(i)
		k, err := trees[i%2].Client(cas.New(p, cas.Config{Plain: true}))
		if err != nil {
			t.Fatal(err)
		}
		return p, k
	}
	bytesOf := func(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
	const keys = writers * each
	for i := range uint64(writers) {
		p, k := client(int(i))
		c.Go(p, func(fabric.Port) {
			for n := i; n < keys; n += writers { // neighbours are another's
				if err := k.Put(bytesOf(n), bytesOf(^n)); err != nil {
					t.Errorf("put %d: %v", n, err)
				}
				if v, err := k.Get(bytesOf(n)); err != nil || binary.BigEndian.Uint64(v) != ^n {
					t.Errorf("get %d: %x, %v", n, v, err)
				}
				if n%3 != 0 {
					continue
				}
				if err := k.Delete(bytesOf(n)); err != nil {
					t.Errorf("delete %d: %v", n, err)
				}
			}
		})
	}
	c.Wait()
	for i := range c.Nodes {
		_, k := client(i)
		next := uint64(1)
		err := k.Each(btree.Range{}, func(key, value []byte) bool {
			if n := binary.BigEndian.Uint64(key); n != next || binary.BigEndian.Uint64(value) != ^n {
				t.Errorf("the scan has %x: %x, want key %d", key, value, next)
				return false
			}
			if next++; next%3 == 0 {
				next++
			}
			return true
		})
		if err != nil || next < keys {
			t.Errorf("the scan ends before %d: %v", next, err)
		}
		if _, err := k.Get(bytesOf(3)); !errors.Is(err, btree.ErrNotFound) {
			t.Errorf("a key that was deleted: %v", err)
		}
		r, err := k.Check(btree.CheckOptions{})
		if err != nil || !r.Sound() {
			t.Errorf("the tree: %+v, %v", r, err)
		}
	}
}
