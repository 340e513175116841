package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/declock/declock"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/boottime"
	"github.com/declock/declock/memory"
)

// storeOpLimit bounds each operation by a context.
const storeOpLimit = 30 * time.Second

// A storeLoad is clients in processes of their own, which use stores on replicated numbers.
type storeLoad struct {
	*replicas
	own        *declock.Cluster
	workers    []*rpc.Client
	processes  []*exec.Cmd // of the workers
	clientWays []*heldProxy
	round      int
	trees      bool // are used, and no stores
	failed     int  // operations
	done       int
}

func newStoreLoad(x *replicas) *storeLoad {
	l := &storeLoad{replicas: x}
	l.own, _ = open(x.t, x.address)
	for i := range 2 {
		socket := filepath.Join(x.dir, fmt.Sprintf("client%d", i))
		host := len(x.mns) + i
		l.processes = append(l.processes, startSelfBehind(x.t, x.hosts.behind(host), fmt.Sprintf("%s=%s %s", storeClientEnv, socket, l.clientWay(i, x.on(host)))))
		c, err := rpc.Dial("unix", socket)
		if err != nil {
			x.t.Fatal(err)
		}
		l.workers = append(l.workers, c)
	}
	return l
}

// begin has clients work on new stores.
func (l *storeLoad) begin() {
	l.t.Helper()
	l.round++
	for i, w := range l.workers {
		if err := w.Call("StoreWorker.Start", StoreRound{l.round, 100 * i, storeOpLimit, l.trees, *storePause}, nil); err != nil {
			l.t.Fatal(err)
		}
	}
	time.Sleep(100 * time.Millisecond)
}

// end ends the load, judges what clients have seen, and drops the stores. It returns what was done.
func (l *storeLoad) end() (ops []storeOp) {
	l.t.Helper()
	for i, w := range l.workers {
		var some []storeOp
		call := w.Go("StoreWorker.Stop", struct{}{}, &some, make(chan *rpc.Call, 1))
		select {
		case <-call.Done:
		case <-time.After(storeOpLimit + 30*time.Second):
			_ = l.processes[i].Process.Signal(syscall.SIGQUIT) // it shows where its goroutines are
			time.Sleep(time.Second)
			l.t.Fatalf("operations of client %d are stuck", i)
		}
		if call.Error != nil {
			l.t.Fatal(call.Error)
		}
		ops = append(ops, some...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for number := range failoverNumbers {
		ops = append(ops, l.readAndDrop(ctx, number)...)
	}
	l.done += len(ops)
	for _, o := range ops {
		if o.Ended-o.Began > storeOpLimit+5*time.Second {
			l.t.Errorf("%s of client %d on number %d has taken %v", o.Op, o.Client, o.Number, o.Ended-o.Began)
		}
		if o.Err != "" {
			l.failed++
			l.t.Logf("%s of client %d on number %d, after %v: %s", o.Op, o.Client, o.Number, o.Ended-o.Began, o.Err)
		}
	}
	if r := porcupine.CheckOperationsTimeout(storeModel.ToModel(), historyOf(ops), time.Minute); r != porcupine.Ok {
		l.t.Errorf("the history of %d operations is not linearizable: %v", len(ops), r)
	}
	return ops
}

// readAndDrop reads all keys of the store or tree of a round on a number, and drops it. The test's own compute node joins again if it is given up meanwhile: on a busy machine this process may
// stand still for longer than its lease lasts.
func (l *storeLoad) readAndDrop(ctx context.Context, number int) (ops []storeOp) {
	l.t.Helper()
	var x loaded
	do := func(what string, f func() error) {
		l.t.Helper()
		for joined := 0; ; joined++ {
			err := error(nil)
			if x == (loaded{}) {
				x, err = failoverLoaded(ctx, l.own, l.round, number, l.trees)
			}
			if err == nil {
				err = f()
			}
			if err == nil {
				return
			}
			if !errors.Is(err, fabric.ErrFenced) || joined == 10 {
				l.t.Errorf("number %d, %s, when all is over: %v", number, what, err)
				return
			}
			l.t.Logf("number %d, %s: the test's own compute node was given up, and joins again: %v", number, what, err)
			l.own, _ = open(l.t, l.address)
			x = loaded{}
		}
	}
	keys := failoverKeys
	if l.trees {
		keys = failoverTreeKeys
	}
	for key := range keys {
		o := storeOp{Client: 1000, Number: number, Key: key, Op: "get"}
		do(fmt.Sprint("key ", key), func() error {
			o.Began = boottime.Now()
			err := o.do(ctx, x)
			o.Ended = boottime.Now()
			return err
		})
		ops = append(ops, o)
	}
	begun := false
	do("drop", func() error {
		drop := l.own.DropStore
		if l.trees {
			drop = l.own.DropTree
		}
		err := drop(ctx, failoverName(l.round, number))
		if begun && errors.Is(err, memory.ErrNotFound) { // it was dropped when the compute node was given up
			err = nil
		}
		begun = true
		return err
	})
	return ops
}

// serves returns how many numbers a memory node serves.
func serves(st *member.State, host fabric.MemID) (n int) {
	for _, g := range st.Groups {
		if g.Replicas[0].ID == host {
			n++
		}
	}
	return n
}

// outage returns how long after a moment the first operation on a number ended behind the longest time in which none did.
func outage(ops []storeOp, number int, from time.Duration) time.Duration {
	var ends []time.Duration
	for _, o := range ops {
		if o.Number == number && o.Err == "" && o.Client < 1000 {
			ends = append(ends, o.Ended)
		}
	}
	slices.Sort(ends)
	longest, on := time.Duration(0), time.Duration(0)
	for i := 1; i < len(ends); i++ {
		if ends[i] > from && ends[i]-max(ends[i-1], from) > longest {
			longest, on = ends[i]-max(ends[i-1], from), ends[i]-from
		}
	}
	return on
}

func percentile(list []time.Duration, p int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(len(list)*p/100, len(list)-1)].Round(time.Millisecond)
}

// touch has the primary of number 0, a process, touch memory that no client uses: by a compute node to which that is not lent, which would touch it itself.
func (l *storeLoad) touch(pid int) {
	l.t.Helper()
	c := l.own
	if address := strings.ReplaceAll(l.address, lent, ""); address != l.address {
		c, _ = open(l.t, address)
		defer c.Close()
	}
	p, err := c.Node().Fabric().Open()
	if err != nil {
		l.t.Fatal(err)
	}
	defer p.Close()
	var resident uint64
	for _, each := range []uint64{2 << 20, 4 << 10} { // huge pages, if there are any
		for at := uint64(replicaSize); at < replicaSize+*touched<<20; at += each {
			if err := p.Do([]fabric.Op{fabric.FAA(fabric.At(0, at), 0)}); err != nil {
				l.t.Fatal(err)
			}
		}
		statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			l.t.Fatal(err)
		}
		if _, err := fmt.Sscan(string(statm), new(uint64), &resident); err != nil {
			l.t.Fatal(err)
		}
		if resident *= uint64(os.Getpagesize()); resident >= *touched<<20 {
			return
		}
	}
	l.t.Fatalf("%d MiB are in memory, want %d", resident>>20, *touched)
}

// Memory nodes are killed under load, each of which is the primary of one number and has the backup of another: no acknowledged write is lost, none comes twice or in another
// order, and operations wait and go on.
func TestStoreFailover(t *testing.T) {
	t.Parallel()
	killed(t, false, "")
}

// The same for trees, of which one is on all numbers.
func TestTreeFailover(t *testing.T) {
	t.Parallel()
	killed(t, true, "")
}

func killed(t *testing.T, trees bool, more string) {
	x := newReplicasOn(t, nil, false, more)
	l := newStoreLoad(x)
	l.trees = trees
	var primaries, backups []time.Duration
	for round := range *failovers {
		st := x.whole()
		victim := st.Group(0).Replicas[0].ID
		if *touched > 0 {
			l.touch(x.mns[victim].Process.Pid)
		} else if round%2 == 1 { // the one with the fewest numbers
			victim = slices.MinFunc(st.MNs, func(a, b member.MN) int { return serves(st, a.ID) - serves(st, b.ID) }).ID
		}
		l.begin()
		time.Sleep(100 * time.Millisecond)
		killed := boottime.Now()
		kill(t, x.mns[victim])
		x.await("all numbers are served", func(s *member.State) bool {
			return len(s.Groups) == len(x.mns) && !slices.ContainsFunc(s.Groups, func(g *member.Group) bool { return !g.Serving || !s.Has(g.Primary()) })
		})
		time.Sleep(300 * time.Millisecond)
		ops := l.end()
		for _, g := range st.Groups {
			took := outage(ops, int(g.ID), killed)
			if g.Replicas[0].ID == victim {
				primaries = append(primaries, took)
			} else if slices.ContainsFunc(g.Replicas, func(r member.Replica) bool { return r.ID == victim }) {
				backups = append(backups, took)
			}
		}
		x.start(victim)
	}
	t.Logf("%d operations, %d failed", l.done, l.failed)
	t.Logf("from the kill to the first operation that goes on: %d primaries, p50 %v, p99 %v; %d backups, p50 %v, p99 %v", len(primaries), percentile(primaries, 50),
		percentile(primaries, 99), len(backups), percentile(backups, 50), percentile(backups, 99))
	if l.failed > 0 {
		t.Errorf("%d operations have failed", l.failed)
	}
}

// A primary that stands still for longer than its lease is deposed, and is not believed when it goes on.
func TestStoreFailoverStopped(t *testing.T) {
	t.Parallel()
	stopped(t, false, 0, "")
}

// The same for trees.
func TestTreeFailoverStopped(t *testing.T) {
	t.Parallel()
	stopped(t, true, 0, "")
}

// The same with a bound for silence that is less than the lease: operations go on soon after that.
func TestStoreFailoverSilent(t *testing.T) { stopped(t, false, 500*time.Millisecond, "") }

func stopped(t *testing.T, trees bool, silentAfter time.Duration, more string) {
	x := newReplicasOn(t, nil, false, fmt.Sprint("&silent-after=", silentAfter, more))
	l := newStoreLoad(x)
	l.trees = trees
	var took []time.Duration
	for range max(1, *failovers/3) {
		victim := x.whole().Group(0).Replicas[0].ID
		l.begin()
		time.Sleep(100 * time.Millisecond)
		stopped := boottime.Now()
		if err := x.mns[victim].Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		x.await("another serves", func(s *member.State) bool { return s.Group(0).Serving && s.Group(0).Replicas[0].ID != victim })
		time.Sleep(200 * time.Millisecond)
		if err := x.mns[victim].Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		took = append(took, outage(l.end(), 0, stopped).Round(time.Millisecond))
	}
	t.Logf("%d operations, %d failed; from the stop to the first operation that goes on: %v", l.done, l.failed, took)
	if l.failed > 0 {
		t.Errorf("%d operations have failed", l.failed)
	}
	if slices.Sort(took); silentAfter > 0 && (took[len(took)/2] < silentAfter/2 || took[len(took)/2] > deadAfter*3/4) {
		t.Errorf("half of them go on after %v or less, and silence is bounded by %v", took[len(took)/2], silentAfter)
	}
}
