package declock

import (
	"errors"
	"sync"
	"time"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
)

// A process whose lease has run out, by its own clock, may be declared dead, and its locks be given to others, without hearing of it: it may reach neither the coordinator nor the
// memory node of a lock. As long as that memory node answers, it is not: a memory node answers no process that the cluster has given up.
const (
	// cutOffLook is how often the lease is looked at while guards watch for losses.
	cutOffLook = 500 * time.Millisecond
	// cutOffLooks is how many times as long a memory node has to answer then.
	cutOffLooks = 2
)

// lookForCutOff begins to look whether this process may have lost its locks without hearing of it, as long as guards watch. mu is held.
func (l *watches) lookForCutOff(c *Cluster) {
	if l.looking || isClosed(l.ended) {
		return
	}
	l.looking = true
	l.running.Go(func() {
		for {
			select {
			case <-l.ended:
				return
			case <-time.After(l.every):
			}
			if !l.watching() {
				return
			}
			if f := c.node.Fabric(); !f.Leased() {
				l.cutOff(f)
			}
		}
	})
}

// watching reports whether guards watch. If not, the caller looks no more.
func (l *watches) watching() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = len(l.of) > 0
	return l.looking
}

// endLooking ends lookForCutOff for ever.
func (l *watches) endLooking() {
	l.mu.Lock()
	if !isClosed(l.ended) {
		close(l.ended)
	}
	l.mu.Unlock()
	l.running.Wait()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// cutOff notifies the guards of locks whose memory nodes do not answer. The lease has run out.
func (l *watches) cutOff(f fabric.Node) {
	at := map[fabric.MemID][]grant{}
	l.mu.Lock()
	for g, w := range l.of {
		if !w.closed {
			at[g.lock.MN()] = append(at[g.lock.MN()], g)
		}
	}
	l.mu.Unlock()
	var asking sync.WaitGroup
	for mn, grants := range at {
		asking.Go(func() {
			if l.answers(f, mn) || f.Leased() {
				return
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			for _, g := range grants {
				if w := l.of[g]; w != nil {
					w.close()
				}
			}
		})
	}
	asking.Wait()
}

// answers reports whether a memory node answers this process in time. Without room for a client to ask with, it cannot find out, and says no.
func (l *watches) answers(f fabric.Node, mn fabric.MemID) bool {
	late := time.Now().Add(cutOffLooks * l.every)
	p, err := f.Open()
	for ; err != nil; p, err = f.Open() {
		switch {
		case errors.Is(err, fabric.ErrClosed): // Close says it
			return true
		case !errors.Is(err, fabric.ErrTooManyClients), time.Now().After(late):
			return false
		}
		if !l.pause() {
			return true
		}
	}
	defer p.Close()
	defer time.AfterFunc(time.Until(late), p.Interrupt).Stop()
	b := p.Alloc(8)
	defer p.Free(b)
	for {
		ops := [1]fabric.Op{fabric.Read(fabric.At(mn, memory.TimesyncOffset), b)}
		switch err := p.Do(ops[:]); {
		case err == nil, errors.Is(err, fabric.ErrClosed):
			return true
		case errors.Is(err, fabric.ErrFenced), time.Now().After(late):
			return false
		}
		if !l.pause() {
			return true
		}
	}
}

// pause waits before something is tried again, and reports whether watches have not ended meanwhile.
func (l *watches) pause() bool {
	select {
	case <-l.ended:
		return false
	case <-time.After(l.every / 10):
		return true
	}
}
