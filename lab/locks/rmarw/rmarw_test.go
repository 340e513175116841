package rmarw_test

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks/rmarw"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/lock/locktest"
)

const us = fabric.Microsecond

// join returns how a node gets locks of a variant.
func join(cfg rmarw.Config) locktest.Join[*rmarw.Locker] {
	return func(n fabric.Node) (func(fabric.Port) *rmarw.Locker, locktest.Agent) {
		return func(p fabric.Port) *rmarw.Locker { return rmarw.New(p, cfg) }, rmarw.NewAgent(n, cfg)
	}
}

func TestConformance(t *testing.T) {
	for name, cfg := range map[string]rmarw.Config{
		"tokens":          {},
		"plain":           {Plain: true},
		"modes that pass": {Writers: 2, Readers: 8}, // no more than its readers hold the lock together in a test
	} {
		m := locktest.Mechanism{Layout: cfg.Layout(), NoTokens: cfg.Plain, Start: join(cfg).Start, Corrupt: []byte{7: 0xff, 15: 0x40}}
		t.Run(name, func(t *testing.T) { locktest.Form(t, 3, m, name == "tokens") })
	}
}

type actor = locktest.Actor[*rmarw.Locker]

// The words of a lock, held and left. Format: do not change.
func TestWordsGolden(t *testing.T) {
	s := locktest.Play(t, 1, join(rmarw.Config{}), func(k *actor) {
		k.Acquire(lock.Exclusive)
		k.Words("held by cn1/1", 0x1001, 1<<31, 0)
		k.Release()
		k.Words("free after a writer", 0, 0, 1)
		k.Acquire(lock.Shared)
		k.Words("held by a reader", 0, 1, 1)
		k.Release()
	})
	s.Words("free after a reader", 0, 1<<32|1, 1)
	if tail, write, arrive, depart := rmarw.Decode(0x1001, 3<<32|1<<31|5); tail != fabric.Client(1, 1) || !write || arrive != 5 || depart != 3 {
		t.Error(tail, write, arrive, depart)
	}
}

// What a lock without contention costs is what ShiftLock's comparison counts: 4 atomics and 3 READs of a writer, 2 atomics of a reader.
func TestOperations(t *testing.T) {
	locktest.Play(t, 1, join(rmarw.Config{Plain: true}), func(k *actor) {
		for mode, want := range map[lock.Mode][2]uint64{lock.Exclusive: {4, 7}, lock.Shared: {1, 2}} {
			before := k.P.Stats().Total()
			k.Acquire(mode)
			acquired := k.P.Stats().Total() - before
			k.Release()
			if all := k.P.Stats().Total() - before; [2]uint64{acquired, all} != want {
				t.Errorf("%v: %d operations to acquire, %d in all, want %d", mode, acquired, all, want)
			}
		}
	})
}

// After so many writers in a row, readers that wait get the lock before the next writer.
func TestReadersAfterWriters(t *testing.T) {
	var order []lock.Mode
	locktest.Play(t, 6, join(rmarw.Config{Writers: 3}), func(k *actor) {
		mode := lock.Exclusive
		if k.I == 1 {
			mode = lock.Shared
		}
		k.At(fabric.Time(k.I) * 10 * us)
		k.Acquire(mode)
		order = append(order, mode)
		k.After(100 * us)
		k.Release()
	})
	if len(order) != 6 || order[2] != lock.Exclusive || order[3] != lock.Shared {
		t.Errorf("grants in the order %v, want a reader after 3 writers", order)
	}
}

// The reader that is too many resets the counts if no writer waits, and backs out if one does.
func TestReadersAreBounded(t *testing.T) {
	cfg := rmarw.Config{Readers: 4}
	s := locktest.Play(t, 1, join(cfg), func(k *actor) {
		for range 10 {
			if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Shared, Deadline: fabric.Millisecond}); err != nil { // the counts are not reset
				t.Error(err)
				return
			}
			k.Release()
		}
	})
	if _, _, arrive, depart := rmarw.Decode(0, s.PeekWord(s.Lock.Add(8))); arrive != depart || arrive > 4 {
		t.Errorf("after 10 readers: arrive %d, depart %d", arrive, depart)
	}
	var order []lock.Mode
	locktest.Play(t, 3, join(cfg), func(k *actor) {
		switch k.I {
		case 0: // holds from the beginning to the end
			k.Acquire(lock.Shared)
			k.At(300 * us)
			k.Release()
		case 1:
			k.At(50 * us)
			k.Acquire(lock.Exclusive)
			order = append(order, lock.Exclusive)
			k.Release()
		case 2:
			k.At(100 * us)
			for range 4 { // the last is too many, and waits for the writer
				k.Acquire(lock.Shared)
				order = append(order, lock.Shared)
				k.Release()
			}
		}
	})
	if len(order) != 5 || order[3] != lock.Exclusive {
		t.Errorf("grants in the order %v, want the writer before the fifth reader", order)
	}
}

// Many readers that have to reset the counts again and again do not keep each other from it.
func TestManyReadersReset(t *testing.T) {
	s := locktest.Play(t, 32, join(rmarw.Config{Readers: 40}), func(k *actor) {
		for range 100 {
			if err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Shared, Deadline: 100 * fabric.Millisecond}); err != nil {
				t.Error(err)
				return
			}
			k.Release()
		}
	})
	if s.Now() > 20*fabric.Millisecond {
		t.Errorf("3200 readers take %d us", s.Now()/us)
	}
}

// A writer that gives up while it waits for readers passes its place on.
func TestGiveUpBeforeReaders(t *testing.T) {
	grants := 0
	s := locktest.Play(t, 3, join(rmarw.Config{}), func(k *actor) {
		k.At(fabric.Time(k.I) * 20 * us)
		switch k.I {
		case 0:
			k.Acquire(lock.Shared)
			k.At(200 * us)
			k.Release()
		case 1:
			err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: 100 * us})
			if !errors.Is(err, lock.ErrTimeout) {
				t.Errorf("beside a reader: %v", err)
			}
		case 2:
			k.Acquire(lock.Exclusive)
			k.Release()
			grants++
		}
	})
	if s.Words("free", 0); grants != 1 {
		t.Errorf("%d grants, want 1", grants)
	}
}

// A writer that gives up after it has set the write bit, beside a reader that came just before, does not hand on a lock that it did not have.
func TestGiveUpBesideReader(t *testing.T) {
	beside := 0
	for at := range fabric.Time(100) {
		var readUntil, written fabric.Time
		locktest.Play(t, 3, join(rmarw.Config{}), func(k *actor) {
			switch k.I {
			case 0:
				k.At(at * 100)
				k.Acquire(lock.Shared)
				k.At(200 * us)
				readUntil = k.P.Now()
				k.Release()
			case 1:
				err := k.L.Acquire(&k.H, &lock.Request{Lock: k.Lock, Mode: lock.Exclusive, Deadline: 100 * us})
				if err != nil {
					beside++
					return
				}
				k.Release()
			case 2:
				k.At(20 * us)
				k.Acquire(lock.Exclusive)
				written = k.P.Now()
				k.Release()
			}
		})
		if written < readUntil {
			t.Errorf("reader that comes at %d ns: it reads until %d us, and a writer is granted at %d us", at*100, readUntil/us, written/us)
		}
	}
	if beside == 0 {
		t.Error("the writer never gives up")
	}
}

// The agent of a writer that has given up lets readers in after so many writers in a row, too.
func TestAgentLetsReadersIn(t *testing.T) {
	var order []lock.Mode
	locktest.Play(t, 6, join(rmarw.Config{Writers: 3}), func(k *actor) {
		r := lock.Request{Lock: k.Lock, Mode: lock.Exclusive}
		switch k.I {
		case 1:
			r.Mode = lock.Shared
		case 3: // the third writer in a row
			r.Deadline = 60 * us
		}
		k.At(fabric.Time(k.I) * 10 * us)
		if err := k.L.Acquire(&k.H, &r); k.I == 3 {
			if !errors.Is(err, lock.ErrTimeout) {
				t.Error(err)
			}
			return
		}
		order = append(order, r.Mode)
		k.After(100 * us)
		k.Release()
	})
	if len(order) != 5 || order[1] != lock.Exclusive || order[2] != lock.Shared {
		t.Errorf("grants in the order %v, want a reader after 3 writers, of which the last has given up", order)
	}
}

// slowReset is a Port that pauses before a client sets the reset bit, which is a masked CAS by a reader.
type slowReset struct {
	fabric.Port
	on bool
}

func (p *slowReset) Do(ops []fabric.Op) error {
	if p.on && len(ops) == 2 && ops[0].Kind == fabric.OpMaskedCAS {
		if err := p.Pause(p.Now() + 50*us); err != nil {
			return err
		}
	}
	return p.Port.Do(ops)
}

// A reader that has seen no writer, and resets the counts later, has not backed out before: so a writer that has come meanwhile waits for it, and its bit is not cleared.
func TestResetBesideNewWriter(t *testing.T) {
	cfg, node := rmarw.Config{Plain: true, Readers: 4}, 0
	slow := func(n fabric.Node) (func(fabric.Port) *rmarw.Locker, locktest.Agent) {
		first := node == 0
		node++
		return func(p fabric.Port) *rmarw.Locker { return rmarw.New(&slowReset{p, first}, cfg) }, rmarw.NewAgent(n, cfg)
	}
	writes, beside, resets := false, false, false
	locktest.Play(t, 2, slow, func(k *actor) {
		if k.I == 0 { // the fifth resets
			for i := range 5 {
				k.Acquire(lock.Shared)
				beside = beside || writes
				if i == 4 {
					_, _, arrive, _ := rmarw.Decode(0, k.PeekWord(k.Lock.Add(8)))
					resets = arrive < 4
				}
				k.Release()
			}
			return
		}
		for k.P.Now() < 30*us { // until the fifth has looked at the queue
			if _, _, arrive, depart := rmarw.Decode(0, k.PeekWord(k.Lock.Add(8))); arrive >= 4 && depart == 4 {
				break
			}
			k.After(100)
		}
		k.After(6 * us)
		k.Acquire(lock.Exclusive)
		writes = true
		k.After(200 * us)
		writes = false
		k.Release()
	})
	if beside || !resets {
		t.Errorf("a reader beside a writer: %v; the counts have been reset: %v", beside, resets)
	}
}
