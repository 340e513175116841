package check

import "slices"

// shortOfRoom draws that memory is short, and that nothing is evicted: runs change their class while objects, or values of the tree, of many sizes come and go,
// and the store moves what is in use. (From g11 on.)
func (s *Scenario) shortOfRoom(seed uint64) {
	d := &drawer{newRand(seed, streamRoom)}
	stores := []Class{Store, StoreCrash, StoreRestart, StoreBreak, StoreEvict}
	switch {
	case slices.Contains(stores, s.Class) && d.percent(35):
		s.NoEvict, s.Values = 1, pick(d, 200, 1000, 3000)
		if s.Keys < 60 {
			s.Keys = d.between(6, 24)
		}
		all := uint64(s.Keys*(128+s.Values/2)) * uint64(d.between(30, 120)) / 100
		s.Room = int(all/uint64(s.MNs)) + 2*(128+s.Values)
	case slices.Contains([]Class{Tree, TreeCrash}, s.Class) && d.percent(35):
		s.Values = pick(d, 1000, 3000)
		s.Room = d.between(2<<10, 14<<10)
	}
}

// small returns the size of a region of a tree that is short of memory: what the region and the tree need themselves, and the room.
func (s *Scenario) small() uint64 { return uint64(treeOwn+s.Room) &^ 1023 }

// treeOwn is the size of the region's own data, and of the tree's, in a small region.
const treeOwn = 48 << 10
