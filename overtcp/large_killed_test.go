package overtcp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/declock/declock"
	"github.com/declock/declock/internal/boottime"
	"github.com/declock/declock/objstore"
)

// largeClientEnv makes this binary a compute node whose clients change large values until it is killed: the number of its first client, the directory of the test, and the address of the cluster.
const largeClientEnv = "DECLOCK_TEST_LARGE_CLIENT"

// Values are groups of largeBytes, each of which consists of lines with the name of the group and their numbers: so whoever has a value sees whether it is whole. A
// group has some segments, and ends within one.
const (
	largeKeys    = 2 // of each round
	largeClients = 3 // of each process
	largeLine    = 32
	largeBytes   = 750 * largeLine
	largeFormat  = "%-20s%11d\n"
)

func group(name string) []byte {
	var b []byte
	for i := range largeBytes / largeLine {
		b = fmt.Appendf(b, largeFormat, name, i)
	}
	return b
}

// namesOf returns the names of the groups of a value, or an error if it is a mix.
func namesOf(value []byte) (names string, err error) {
	if len(value)%largeBytes != 0 {
		return "", fmt.Errorf("a value of %d bytes", len(value))
	}
	for ; len(value) > 0; value = value[largeBytes:] {
		name := strings.TrimSpace(string(value[:20]))
		if !bytes.Equal(value[:largeBytes], group(name)) {
			return "", fmt.Errorf("group %q is not whole, behind %q", name, names)
		}
		names += name
	}
	return names, nil
}

func openLarge(ctx context.Context, c *declock.Cluster) (*declock.Store, error) {
	return c.Store(ctx, "large", declock.StoreConfig{Objects: 3000, MaxValue: 1 << 20, Segment: 8192, NoEvict: true})
}

// A largeWorker has clients that write down what they begin and what has come of it: what is written is there after the process was killed.
type largeWorker struct {
	dir string
	st  *declock.Store
	mu  sync.Mutex
	log *os.File
}

func serveLargeClient(with string) (io.Closer, error) {
	var first int
	var w largeWorker
	var address string
	if _, err := fmt.Sscan(with, &first, &w.dir, &address); err != nil {
		return nil, err
	}
	c, err := declock.Open(context.Background(), address)
	if err != nil {
		return nil, err
	}
	if w.st, err = openLarge(context.Background(), c); err != nil {
		return nil, err
	}
	if w.log, err = os.Create(filepath.Join(w.dir, fmt.Sprintf("log%d", first))); err != nil {
		return nil, err
	}
	for i := range largeClients {
		go w.client(first + i)
	}
	return c, nil
}

func (w *largeWorker) client(id int) {
	for n := 0; ; n++ {
		b, err := os.ReadFile(filepath.Join(w.dir, "round"))
		round, _ := strconv.Atoi(string(b))
		o := storeOp{Client: id, Number: round, Key: rand.IntN(largeKeys), Value: fmt.Sprintf("%d.%d,", id, n)}
		o.Op = [...]string{"set", "stream", "append", "range", "range", "delete", "get", "read"}[rand.IntN(8)]
		o.Began = boottime.Now()
		w.write(&o)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), storeOpLimit)
			err = o.doLarge(ctx, w.st)
			cancel()
		}
		if o.Ended = boottime.Now(); err != nil {
			o.Err = err.Error()
		}
		w.write(&o)
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
	}
}

// write writes a line, by one system call.
func (w *largeWorker) write(o *storeOp) {
	b, _ := json.Marshal(o)
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = w.log.Write(append(b, '\n'))
}

// doLarge executes an operation on a large value.
func (o *storeOp) doLarge(ctx context.Context, st *declock.Store) (err error) {
	key := fmt.Appendf(nil, "key%d.%d", o.Number, o.Key)
	var value []byte
	switch o.Op {
	case "set":
		return st.Set(ctx, key, group(o.Value), declock.SetOptions{})
	case "stream":
		return stream(ctx, st, key, group(o.Value))
	case "append":
		err = st.Append(ctx, key, group(o.Value))
	case "range": // its last group is another one
		err = st.Update(ctx, key, objstore.Update{Read: -1, IfFound: true, Apply: func(x *objstore.Object) objstore.Change {
			v := bytes.Clone(x.Value)
			copy(v[len(v)-largeBytes:], group(o.Value))
			return objstore.Change{Action: objstore.Put, Value: v}
		}})
	case "delete":
		err = st.Delete(ctx, key)
	case "get":
		value, err = st.Get(ctx, key, nil)
	case "read":
		var r *declock.ValueReader
		if r, err = st.Reader(ctx, key); err == nil {
			value, err = io.ReadAll(r)
		}
	}
	missing := errors.Is(err, objstore.ErrNotFound)
	if missing {
		err = nil
	}
	switch {
	case err != nil:
		return err
	case !o.changes():
		if o.Got, err = namesOf(value); err != nil {
			o.Got = "a mix"
		}
		return err
	case missing:
		o.Got = "no"
	default:
		o.Got = "yes"
	}
	return nil
}

// stream stores a value in pieces.
func stream(ctx context.Context, st *declock.Store, key, value []byte) error {
	w, err := st.Writer(ctx, key, int64(len(value)), declock.SetOptions{})
	for len(value) > 0 && err == nil {
		n := min(len(value), 5000)
		_, err = w.Write(value[:n])
		value = value[n:]
	}
	if w != nil {
		err = errors.Join(err, w.Close())
	}
	return err
}

// A largeLoad is two processes that change large values, and are killed.
type largeLoad struct {
	*replicas
	own     *declock.Cluster
	st      *declock.Store
	workers [2]*exec.Cmd
	started int
}

func (l *largeLoad) startWorker(i int) {
	l.workers[i] = startSelf(l.t, fmt.Sprintf("%s=%d %s %s", largeClientEnv, largeClients*l.started, l.dir, l.address))
	l.started++
}

// begin says that a round has begun.
func (l *largeLoad) begin(round int) {
	name := filepath.Join(l.dir, "round")
	if err := errors.Join(os.WriteFile(name+".new", fmt.Append(nil, round), 0o600), os.Rename(name+".new", name)); err != nil {
		l.t.Fatal(err)
	}
}

// history returns what the processes have written down. What a process was at when it was killed may have taken place.
func (l *largeLoad) history() (ops []storeOp) {
	for k := range l.started {
		f, err := os.Open(filepath.Join(l.dir, fmt.Sprintf("log%d", largeClients*k)))
		if err != nil {
			l.t.Fatal(err)
		}
		defer f.Close()
		under := map[int]storeOp{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var o storeOp
			if json.Unmarshal(lines.Bytes(), &o) != nil {
				continue // it was being written
			}
			if delete(under, o.Client); o.Ended == 0 {
				under[o.Client] = o
			} else {
				ops = append(ops, o)
			}
		}
		for _, o := range under {
			o.Err = "killed"
			ops = append(ops, o)
		}
	}
	return ops
}

// Processes that change large values, by sets, streams, appends and changes of a part, are killed, and memory nodes with copies of the values are: each value that is read, then and afterwards, is one that was
// stored as a whole, the operations on each key are linearizable, and no segment and no memory is left.
func TestLargeValuesKilled(t *testing.T) {
	t.Parallel()
	x := newReplicas(t)
	l := &largeLoad{replicas: x}
	l.own, _ = open(t, x.address)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	if l.st, err = openLarge(ctx, l.own); err != nil {
		t.Fatal(err)
	}
	l.begin(0)
	for i := range l.workers {
		l.startWorker(i)
	}
	for round := range *failovers {
		l.begin(round)
		victim := x.primary()
		time.Sleep(200 * time.Millisecond)
		kill(t, l.workers[round%2])
		time.Sleep(50 * time.Millisecond)
		kill(t, x.mns[victim])
		time.Sleep(500 * time.Millisecond)
		l.startWorker(round % 2)
		x.start(victim)
		x.whole()
	}
	for _, w := range l.workers {
		kill(t, w)
	}
	ops, killed := l.history(), 0
	for round := range *failovers {
		for key := range largeKeys {
			o := storeOp{Client: 1000, Number: round, Key: key, Op: "get", Began: boottime.Now()}
			if err := o.doLarge(ctx, l.st); err != nil {
				t.Errorf("round %d, key %d, when all is over: %v", round, key, err)
			}
			o.Ended = boottime.Now()
			ops = append(ops, o)
		}
	}
	for _, o := range ops {
		switch {
		case o.Err == "killed":
			killed++
		case o.Err != "" && !(o.Op == "read" && strings.Contains(o.Err, objstore.ErrChanged.Error())):
			t.Errorf("%s of client %d, after %v: %s", o.Op, o.Client, o.Ended-o.Began, o.Err)
		}
	}
	t.Logf("%d operations, %d of processes that were killed", len(ops), killed)
	if r := porcupine.CheckOperationsTimeout(storeModel.ToModel(), historyOf(ops), time.Minute); r != porcupine.Ok {
		t.Errorf("the history is not linearizable: %v", r)
	}
	l.takenBack(ctx)
}

// takenBack deletes all values, and waits until nothing is left of what killed processes have written and had in their lists.
func (l *largeLoad) takenBack(ctx context.Context) {
	for round := range *failovers {
		for key := range largeKeys {
			o := storeOp{Number: round, Key: key, Op: "delete"}
			if err := o.doLarge(ctx, l.st); err != nil {
				l.t.Error(err)
			}
		}
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		var r *objstore.Report
		err := l.st.Use(ctx, func(c *objstore.Client) (err error) {
			r, err = c.Check(objstore.CheckOptions{Backups: true})
			return err
		})
		left := uint64(0)
		for i := range r.Nodes {
			left += r.Nodes[i].Elsewhere
		}
		if err == nil && r.Sound() && r.Segments == 0 && left == 0 {
			return
		}
		if time.Now().After(until) {
			l.t.Fatalf("%v\n%v", r, err)
		}
	}
}
