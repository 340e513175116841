// Package background calls functions that may take long in the background, for callers whose wait is bounded: looks into memory
// nodes, which may not answer.
package background

import (
	"sync"
	"time"
)

// A Look has the last result of a function. Its zero value is ready for use, by any goroutine.
type Look[T any] struct {
	mu   sync.Mutex
	over chan struct{} // of the call under way; nil: there is none
	last T
}

// Get waits for the end of a call of f: that under way, or else one that it starts. Its wait is bounded; then it returns the last result, and false.
func (l *Look[T]) Get(wait time.Duration, f func() T) (last T, ended bool) {
	l.mu.Lock()
	over := l.over
	if over == nil {
		over = make(chan struct{})
		l.over = over
		go func() {
			result := f()
			l.mu.Lock()
			defer l.mu.Unlock()
			l.last, l.over = result, nil
			close(over)
		}()
	}
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-over:
		ended = true
	case <-timer.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, ended
}

// Wait waits for the end of the call that is under way.
func (l *Look[T]) Wait() {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over != nil {
		<-over
	}
}
