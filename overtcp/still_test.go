package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

// stillEnv makes this binary a compute node whose sessions hand locks over among themselves, and which writes down what becomes of that: its number, the directory of the test, and
// the address of the cluster.
const stillEnv = "DECLOCK_TEST_STILL"

const (
	stillNodes    = 3
	stillLocks    = 4 // of each node
	stillSessions = 3 // of each lock
)

func stillLog(dir string, n int) string { return filepath.Join(dir, fmt.Sprint("still", n)) }

func startStill(with string) (io.Closer, error) {
	var n int
	var dir, address string
	if _, err := fmt.Sscan(with, &n, &dir, &address); err != nil {
		return nil, err
	}
	ctx := context.Background()
	c, err := declock.Open(ctx, address)
	if err != nil {
		return nil, err
	}
	locks, err := c.Locks(ctx, "l", stillNodes*stillLocks)
	if err != nil {
		return nil, err
	}
	log, err := os.Create(stillLog(dir, n))
	if err != nil {
		return nil, err
	}
	for i := range stillLocks * stillSessions {
		s, err := c.Session()
		if err != nil {
			return nil, err
		}
		go func() {
			for {
				g, err := s.Lock(ctx, locks.At(n*stillLocks+i%stillLocks))
				if err != nil { // its node has been cut off
					return
				}
				// A process that is stopped between the grant and the time that is noted here would be accused wrongly: a hold is some thousand times as long.
				granted := time.Now().UnixNano()
				time.Sleep(5*time.Millisecond + time.Duration(rand.IntN(5000))*time.Microsecond)
				began := time.Now().UnixNano()
				err = g.Unlock()
				_, _ = fmt.Fprintln(log, granted, began, uint64(g.Token()), err == nil, errors.Is(err, lock.ErrLost))
			}
		}()
	}
	return c, nil
}

// Compute nodes stand still for longer than their leases, and other nodes are granted what they held. When they go on, their sessions are granted nothing, though others of the same process
// wait for what they hold, and each release says that the lock is lost.
func TestComputeNodesStandStill(t *testing.T) {
	x := newReplicas(t)
	c, _ := open(t, x.address)
	locks, err := c.Locks(t.Context(), "l", stillNodes*stillLocks)
	if err != nil {
		t.Fatal(err)
	}
	var nodes [stillNodes]*exec.Cmd
	for n := range nodes {
		nodes[n] = startSelf(t, fmt.Sprintf("%s=%d %s %s", stillEnv, n, x.dir, x.address))
	}
	time.Sleep(200 * time.Millisecond)
	signal := func(s syscall.Signal) (at int64) {
		at = time.Now().UnixNano()
		for _, n := range nodes {
			if err := n.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
		}
		return at
	}
	signal(syscall.SIGSTOP)
	var others sync.WaitGroup
	for i := range stillNodes * stillLocks {
		s, err := c.Session()
		if err != nil {
			t.Fatal(err)
		}
		others.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if _, err := s.Lock(ctx, locks.At(i)); err != nil {
				t.Errorf("lock %d: %v", i, err)
			}
		})
	}
	others.Wait()
	goOn := signal(syscall.SIGCONT)
	time.Sleep(500 * time.Millisecond)
	for n := range nodes {
		lines, err := os.ReadFile(stillLog(x.dir, n))
		if err != nil {
			t.Fatal(err)
		}
		handed, lost := 0, 0
		for line := range strings.Lines(string(lines)) {
			var granted, began int64
			var token uint64
			var unlocked, isLost bool
			if _, err := fmt.Sscan(line, &granted, &began, &token, &unlocked, &isLost); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			switch {
			case granted >= goOn:
				t.Errorf("node %d: token %#x is granted after the end of its lease, and another node holds the lock", n, token)
			case began >= goOn && !isLost:
				t.Errorf("node %d: the release of %#x after the end of its lease does not say that the lock is lost (success: %v)", n, token, unlocked)
			case isLost:
				lost++
			default:
				handed++
			}
		}
		if handed < 20 || lost == 0 {
			t.Errorf("node %d: %d holds before it stood still, %d were lost", n, handed, lost)
		}
	}
}
