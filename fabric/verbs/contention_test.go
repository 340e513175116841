//go:build cgo && !shmonly

package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peertest"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// Contention: clients of several processes update what locks guard.
const (
	mechanismEnv = "DECLOCK_VERBS_MECHANISM"

	contentionCNs     = 3
	contentionClients = 2
	contentionLocks   = 2
	contentionUpdates = 10 // of each client

	guardedAt    = 1 << 19 // what the first lock guards
	guardedStep  = 4096
	guardedWords = 16 // more than a NIC moves at once: they can tear
)

func contentionSystem(name string) (*locks.System, error) {
	leaseNs := lease
	if name == "drtm" { // its writers wait until the leases of readers have ended, and a reader of drtm:half has half of a lease at least
		name, leaseNs = "drtm:half", lease/10
	}
	m, err := locks.Lookup(name)
	if err != nil {
		return nil, err
	}
	c := locks.Config{CNs: contentionCNs, Clients: contentionClients, Counter: clockWord, Tokens: true, LeaseNs: leaseNs}
	return m.New(c)
}

// contend is one compute node of a contention. It returns when its clients are done, but for its agent, which
// stop ends.
func contend(n fabric.Node, name string) (stop func() error, err error) {
	sys, err := contentionSystem(name)
	if err != nil {
		return nil, err
	}
	ln, err := sys.Join(n)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, err)
	}
	var agent, clients sync.WaitGroup
	if ln.Run != nil {
		agent.Go(func() {
			if err := ln.Run(fail); err != nil {
				fail(err)
			}
		})
	}
	for range contentionClients {
		clients.Go(func() {
			if err := contender(n, ln, sys); err != nil {
				fail(err)
			}
		})
	}
	clients.Wait()
	return func() error {
		n.Agent().Interrupt()
		agent.Wait()
		return errors.Join(all...)
	}, nil
}

// contender updates what the locks guard, and now and then only looks.
func contender(n fabric.Node, ln *locks.Node, sys *locks.System) error {
	p, err := n.Open()
	if err != nil {
		return err
	}
	defer p.Close()
	k := ln.Locker(p)
	step := (sys.Layout().Size + 63) &^ 63
	words := make([]uint64, guardedWords)
	var h lock.Hold
	for i := range uint64(contentionUpdates * 3 / 2) {
		which := i % contentionLocks
		guarded := fabric.At(0, guardedAt+which*guardedStep)
		r := lock.Request{Lock: fabric.At(0, 4096+which*step), Mode: lock.Exclusive, Deadline: p.Now() + 60*fabric.Second}
		if i%3 == 2 {
			r.Mode = lock.Shared
		}
		if err := k.Acquire(&h, &r); err != nil {
			return fmt.Errorf("%v: acquire %v: %w", p.ID(), r.Mode, err)
		}
		buf := p.Alloc(8 * guardedWords)
		err := p.Do([]fabric.Op{fabric.Read(guarded, buf)})
		for w := range words {
			words[w] = binary.LittleEndian.Uint64(buf[8*w:])
			if words[w] != words[0] {
				err = errors.Join(err, fmt.Errorf("%v holds lock %d %v, and another writes: %v", p.ID(), which, r.Mode, words[:w+1]))
				break
			}
		}
		var before []fabric.Op
		if r.Mode == lock.Exclusive {
			for w := range words {
				binary.LittleEndian.PutUint64(buf[8*w:], words[0]+1)
			}
			before = []fabric.Op{fabric.Write(guarded, buf)}
		}
		if err = errors.Join(err, k.Release(&h, before)); err != nil {
			return fmt.Errorf("%v: %w", p.ID(), err)
		}
		p.Free(buf)
	}
	return nil
}

// contenderRole is a compute node of a contention in a process of its own.
func contenderRole(n fabric.Node, out io.Writer) error {
	stop, err := contend(n, os.Getenv(mechanismEnv))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "done")
	_, _ = io.ReadAll(os.Stdin) // others may still need the agent
	return stop()
}

// Clients of several processes take turns with a few locks: under each mechanism every update counts, and no client
// writes while another holds the lock.
func TestProcessesContend(t *testing.T) {
	for _, name := range tested(t) {
		t.Run(name, func(t *testing.T) {
			if name == "parlock" {
				t.Skip("its servers are on all compute nodes, and here clients begin before all have joined")
			}
			c := cluster(t, 1<<20, 1)
			t.Setenv(mechanismEnv, name)
			at := coordtest.Serve(t, c.Members.Now())
			var children []*peertest.Process
			for range contentionCNs - 1 {
				children = append(children, startChild(t, "contender", at))
			}
			stop, err := contend(c.Node(0), name)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range children {
				k.Line("done")
			}
			for _, k := range children {
				k.Finish()
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			c.Node(0).Agent().ClearInterrupt()
			checkContention(t, c.Node(0).Agent())
		})
	}
}

func checkContention(t *testing.T, p fabric.Port) {
	var updates uint64
	for i := range uint64(contentionUpdates * 3 / 2) {
		if i%3 != 2 {
			updates++
		}
	}
	updates *= contentionCNs * contentionClients
	var got uint64
	for i := range uint64(contentionLocks) {
		ops := []fabric.Op{fabric.Load(fabric.At(0, guardedAt+i*guardedStep))}
		if err := p.Do(ops); err != nil {
			t.Fatal(err)
		}
		got += ops[0].Old
	}
	if got != updates {
		t.Errorf("%d updates have been done, and %d count", updates, got)
	}
}
