package front

import (
	"sync"
	"time"
)

// A Lately is a figure that is expensive to have: one that took long is good for a while, however many ask. The zero
// Lately has none. Any number of goroutines may use it.
type Lately[T any] struct {
	mu    sync.Mutex
	last  T
	until time.Duration // last is good; 0: there is none
}

const (
	// quickly is how long a figure may take that is found anew each time.
	quickly = 100 * time.Millisecond
	// goodFor is how long a figure is good that took longer.
	goodFor = 2 * time.Second
)

// Get returns the figure: the last one, or one that find finds. clock is any that grows.
func (l *Lately[T]) Get(clock func() time.Duration, find func() (T, error)) (T, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := clock()
	if begun < l.until {
		return l.last, nil
	}
	l.until = 0
	v, err := find()
	if now := clock(); err == nil && now-begun >= quickly {
		l.last, l.until = v, now+goodFor
	}
	return v, err
}
