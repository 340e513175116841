package slab

import (
	"errors"
	"slices"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A memory node refuses up to three chains while a compute node takes memory, gives it back, and gives it to another class. The compute node keeps what it had in
// hand: all memory can be had again, by the same compute node, without a round.
func TestRefusedEverywhere(t *testing.T) {
	for k := 0; ; k++ {
		w := newWorld(t, 1)
		a := w.hand(0, 4<<10)
		do, left := a.Do, k
		a.Do = func(ops []fabric.Op) error {
			if left--; left < 0 && left >= -1-k%3 {
				return &fabric.ChainError{Op: ops[0], Err: fabric.ErrNodeDown}
			}
			return do(ops)
		}
		err := func() error {
			for class := range uint8(3) {
				var items []uint64
				for {
					item, err := a.get(class)
					if errors.Is(err, memory.ErrNoSpace) {
						break
					}
					if err != nil {
						return putAll(a, class, items, err)
					}
					items = append(items, item)
				}
				// Of each run a block is in use, and is not evicted: what the others are taken for is not done.
				var used []uint64
				items = slices.DeleteFunc(items, func(x uint64) bool {
					first := x*unit%w.r.PageSize() == 0
					if first {
						used = append(used, x)
					}
					return first
				})
				err := putAll(a, class, items, nil)
				if err == nil {
					_, err = a.Collect(&a.Worker, (class+1)%3, func(uint8, []uint64) ([]uint64, error) { return nil, nil }, nil)
				}
				if err := putAll(a, class, used, err); err != nil {
					return err
				}
				for {
					ok, err := a.Collect(&a.Worker, (class+1)%3, nil, nil)
					if err != nil {
						return err
					}
					if !ok {
						break
					}
				}
			}
			return nil
		}()
		done := left >= 0 // the change of owners that has begun needs no more chains
		if err != nil && (done || !errors.Is(err, fabric.ErrNodeDown)) {
			t.Fatalf("chain %d refused: %v", k, err)
		}
		a.Do = do
		if k%2 == 1 {
			w.want(a.GiveLists(&a.Worker))
		}
		for class := range uint8(3) {
			n := 0
			var items []uint64
			for {
				item, err := a.get(class)
				if errors.Is(err, memory.ErrNoSpace) {
					ok, err := a.Collect(&a.Worker, class, nil, nil)
					w.want(err)
					if ok {
						continue
					}
					break
				}
				w.want(err)
				items = append(items, item)
				n++
			}
			w.want(putAll(a, class, items, nil))
			if size := 64 * (int(class) + 1); n != 4*(1<<10/size) {
				t.Errorf("chain %d refused (%v): %d blocks of %d B after it", k, err, n, size)
			}
		}
		w.c.Close()
		if done {
			if t.Logf("%d chains", k); k < 50 {
				t.Error("that is too few")
			}
			return
		}
	}
}

// putAll gives all blocks back, and returns the first error, or err.
func putAll(a *hand, class uint8, items []uint64, err error) error {
	for _, item := range items {
		if perr := a.put(class, item); err == nil {
			err = perr
		}
	}
	if derr := a.drain(class); err == nil {
		err = derr
	}
	return err
}
