package overtcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/rpc"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/internal/boottime"
	"github.com/declock/declock/objstore"
)

// storeClientEnv makes this binary a compute node whose clients use stores: the socket on which it is asked to, and the address of the cluster.
const storeClientEnv = "DECLOCK_TEST_STORE_CLIENT"

// Clients use a store on each memory-node number, so that it is known on which an operation waits.
const (
	failoverNumbers = 3
	failoverKeys    = 3 // of each store
	failoverClients = 2 // of each compute node and store or tree
	// failoverTreeKeys are those of each tree, of which the nodes hold few: they are split and unlinked all the time.
	failoverTreeKeys = 60
)

// A storeOp is an operation on a key, as its client saw it. Times are those of the machine: they can be compared between processes.
type storeOp struct {
	Client, Number, Key int
	Op, Value           string // set, append, insert, delete, get; of large values also stream, range, read; what is stored
	Got                 string // of a get; "": nothing is there. Of others: whether the key was there, "yes" or "no", where that matters
	Began, Ended        time.Duration
	Err                 string // "": it has succeeded
}

// changes reports whether it may have changed something.
func (o *storeOp) changes() bool { return o.Op != "get" && o.Op != "read" }

// A StoreWorker runs clients, as it is asked to.
type StoreWorker struct {
	address string
	cluster *declock.Cluster
	over    atomic.Bool
	running sync.WaitGroup

	mu  sync.Mutex
	ops []storeOp
}

// A StoreRound says which stores clients use, and which numbers the clients have.
type StoreRound struct {
	Round, First int
	Limit        time.Duration // of each operation
	Trees        bool          // instead of stores
	Pause        time.Duration // the most between operations
}

// A loaded is a store or a tree.
type loaded struct {
	store *declock.Store
	tree  *declock.Tree
}

func serveStoreClient(with string) (io.Closer, error) {
	var socket, address string
	if _, err := fmt.Sscan(with, &socket, &address); err != nil {
		return nil, err
	}
	w := &StoreWorker{address: address}
	if err := w.open(); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	s := rpc.NewServer()
	if err := s.Register(w); err != nil {
		return nil, err
	}
	go s.Accept(l)
	return l, nil
}

func (w *StoreWorker) open() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), storeOpLimit)
	defer cancel()
	w.cluster, err = declock.Open(ctx, w.address)
	return err
}

// failoverStore opens the store of a round on a number.
func failoverStore(ctx context.Context, c *declock.Cluster, round, number int) (*declock.Store, error) {
	return c.Store(ctx, failoverName(round, number), declock.StoreConfig{Objects: 1000, MaxValue: 4096, NoEvict: true, Nodes: []fabric.MemID{fabric.MemID(number)}})
}

// failoverLoaded opens the store or tree of a round on a number. The last tree is on all.
func failoverLoaded(ctx context.Context, c *declock.Cluster, round, number int, trees bool) (x loaded, err error) {
	if !trees {
		x.store, err = failoverStore(ctx, c, round, number)
		return x, err
	}
	nodes := []fabric.MemID{fabric.MemID(number)}
	if number == failoverNumbers-1 {
		nodes = []fabric.MemID{2, 0, 1}
	}
	x.tree, err = c.Tree(ctx, failoverName(round, number), declock.TreeConfig{MaxKey: 16, NodeSize: 256, MaxInline: 32, Nodes: nodes})
	return x, err
}

func failoverName(round, number int) string { return fmt.Sprintf("s%d.%d", number, round) }

// Start has clients begin to work.
func (w *StoreWorker) Start(r StoreRound, _ *struct{}) error {
	w.over.Store(false)
	w.ops = nil
	select {
	case <-w.cluster.Done(): // it was given up
		w.cluster.Close()
		if err := w.open(); err != nil {
			return err
		}
	default:
	}
	for number := range failoverNumbers {
		x, err := failoverLoaded(context.Background(), w.cluster, r.Round, number, r.Trees)
		if err != nil {
			return err
		}
		for range failoverClients {
			id := r.First
			r.First++
			w.running.Go(func() { w.client(id, number, x, &r) })
		}
	}
	return nil
}

// Stop ends the clients, and returns what they have done and seen.
func (w *StoreWorker) Stop(_ struct{}, ops *[]storeOp) error {
	w.over.Store(true)
	w.running.Wait()
	*ops = w.ops
	return nil
}

func (w *StoreWorker) client(id, number int, x loaded, r *StoreRound) {
	var ops []storeOp
	for n := 0; !w.over.Load(); n++ {
		o := storeOp{Client: id, Number: number, Key: rand.IntN(failoverKeys), Value: fmt.Sprintf("%d.%d,", id, n)}
		o.Op = [...]string{"set", "append", "append", "delete", "get", "get", "get", "get"}[rand.IntN(8)]
		if x.tree != nil {
			o.Key = rand.IntN(failoverTreeKeys)
			o.Op = [...]string{"set", "set", "insert", "delete", "delete", "get", "get", "get"}[rand.IntN(8)]
			if n%4 == 0 {
				o.Value += strings.Repeat("x", rand.IntN(1000))
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), r.Limit)
		o.Began = boottime.Now()
		err := o.do(ctx, x)
		o.Ended = boottime.Now()
		cancel()
		if err != nil {
			o.Err = err.Error()
		}
		ops = append(ops, o)
		time.Sleep(rand.N(r.Pause))
		if errors.Is(err, fabric.ErrFenced) || errors.Is(err, declock.ErrClosed) {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ops = append(w.ops, ops...)
}

// do executes an operation.
func (o *storeOp) do(ctx context.Context, x loaded) (err error) {
	key := fmt.Appendf(nil, "key%d", o.Key)
	if x.tree != nil {
		return o.doTree(ctx, key, x.tree)
	}
	s := x.store
	var b []byte
	switch o.Op {
	case "get":
		b, err = s.Get(ctx, key, nil)
		o.Got = string(b)
		if errors.Is(err, objstore.ErrNotFound) {
			err = nil
		}
		return err
	case "set":
		return s.Set(ctx, key, []byte(o.Value), declock.SetOptions{})
	case "append":
		err = s.Append(ctx, key, []byte(o.Value))
	default:
		err = s.Delete(ctx, key)
	}
	o.Got = "yes"
	if errors.Is(err, objstore.ErrNotFound) {
		o.Got, err = "no", nil
	}
	return err
}

func (o *storeOp) doTree(ctx context.Context, key []byte, t *declock.Tree) (err error) {
	var b []byte
	switch o.Op {
	case "get":
		b, err = t.Get(ctx, key, nil)
		o.Got = string(b)
		if errors.Is(err, btree.ErrNotFound) {
			err = nil
		}
		return err
	case "set":
		return t.Put(ctx, key, []byte(o.Value))
	case "insert":
		err = t.Insert(ctx, key, []byte(o.Value))
		if o.Got = "no"; errors.Is(err, btree.ErrExists) {
			o.Got, err = "yes", nil
		}
		return err
	}
	o.Got, err = "yes", t.Delete(ctx, key)
	if errors.Is(err, btree.ErrNotFound) {
		o.Got, err = "no", nil
	}
	return err
}

// storeModel is one key. "" is a key that is not there. An operation that has failed may have taken place or not, as long as anybody looks.
var storeModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[[2]int][]porcupine.Operation{}
		for _, o := range history {
			in := o.Input.(*storeOp)
			i := [2]int{in.Number, in.Key}
			parts[i] = append(parts[i], o)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, _ any) []any {
		value, in := state.(string), input.(*storeOp)
		next, got := in.apply(value)
		switch {
		case in.Err != "" && next != value:
			return []any{value, next}
		case in.Err != "" || got == in.Got:
			return []any{next}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// apply returns what the key is after the operation, and what its client sees.
func (o *storeOp) apply(value string) (next, got string) {
	switch {
	case !o.changes():
		return value, value
	case o.Op == "set" || o.Op == "stream":
		return o.Value, ""
	case o.Op == "insert" && value == "":
		return o.Value, "no"
	case o.Op == "insert":
		return value, "yes"
	case value == "":
		return "", "no"
	case o.Op == "append":
		return value + o.Value, "yes"
	case o.Op == "range":
		return value[:strings.LastIndexByte(value[:len(value)-1], ',')+1] + o.Value, "yes"
	}
	return "", "yes"
}

// historyOf returns operations as porcupine has them. Gets that have failed say nothing.
func historyOf(ops []storeOp) (list []porcupine.Operation) {
	for i := range ops {
		o := &ops[i]
		if o.Err != "" && !o.changes() {
			continue
		}
		end := int64(o.Ended)
		if o.Err != "" {
			end = math.MaxInt64
		}
		list = append(list, porcupine.Operation{ClientId: o.Client, Input: o, Call: int64(o.Began), Return: end})
	}
	return list
}
