//go:build cgo && !shmonly

package verbs

import (
	"sync"
	"sync/atomic"
)

// A registry gives things numbers, by which completions find them.
type registry[T any] struct {
	list atomic.Pointer[[]*atomic.Pointer[T]]

	mu   sync.Mutex
	used int
	free []uint32
}

// add gives a thing its number.
func (r *registry[T]) add(t *T) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		id := r.free[n-1]
		r.free = r.free[:n-1]
		(*r.list.Load())[id].Store(t)
		return id
	}
	old := r.list.Load()
	if old == nil || r.used == len(*old) {
		list := make([]*atomic.Pointer[T], max(64, 2*r.used))
		if old != nil {
			copy(list, *old)
		}
		for i := r.used; i < len(list); i++ {
			list[i] = new(atomic.Pointer[T])
		}
		r.list.Store(&list)
	}
	id := uint32(r.used)
	(*r.list.Load())[id].Store(t)
	r.used++
	return id
}

// remove takes a number back. No completion may come for it any more.
func (r *registry[T]) remove(id uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	(*r.list.Load())[id].Store(nil)
	r.free = append(r.free, id)
}

// find returns what has a number, or nil.
func (r *registry[T]) find(id uint32) *T { return (*r.list.Load())[id].Load() }
