package qplock_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/qplock"
	"github.com/declock/declock/lock"
)

// A client that holds a lock gives up on another, and from then on its ID is the agent's. What it holds goes to the next all the same.
func TestReleaseUnderAnIDThatWasLeft(t *testing.T) {
	const us = fabric.Microsecond
	for _, cfg := range []qplock.Config{{}, {ALock: true}, {Local: 1, Remote: 1}, {Plain: true}} {
		for k := range 4 {
			near, nextNear, done := k&1 != 0, k&2 != 0, 0
			play(t, cfg, func(s *asymmetric) {
				acquire := func(l *qplock.Locker, a fabric.Addr, deadline fabric.Time, want error) (h lock.Hold) {
					if err := l.Acquire(&h, &lock.Request{Lock: a, Mode: lock.Exclusive, Deadline: deadline}); !errors.Is(err, want) {
						t.Errorf("acquire: %v, want %v", err, want)
					}
					return h
				}
				other := s.lock.Add(128)
				s.client(near, func(p fabric.Port, l *qplock.Locker) {
					h := acquire(l, other, 0, nil)
					_ = p.Pause(500 * us)
					_ = l.Release(&h, nil)
				})
				s.client(near, func(p fabric.Port, l *qplock.Locker) {
					_ = p.Pause(10 * us)
					h := acquire(l, s.lock, 0, nil)
					acquire(l, other, 100*us, lock.ErrTimeout)
					_ = p.Pause(200 * us)
					if err := l.Release(&h, nil); err != nil {
						t.Error(err)
					}
					done++
				})
				for i := range 3 {
					s.client(nextNear, func(p fabric.Port, l *qplock.Locker) {
						s.hold(p, l, fabric.Time(120+i*5)*us, 5*us)
						done++
					})
				}
			})
			if done != 4 {
				t.Errorf("%+v, near %v, the next near %v: %d of 4 are done", cfg, near, nextNear, done)
			}
		}
	}
}
