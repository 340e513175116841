package objstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// Clients of several compute nodes on a few keys: what is read was written, and
// belongs to the key; memory is full now and then.
func TestConcurrent(t *testing.T) {
	const keys, clients, steps = 40, 12, 150
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := newWorld(t, sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}}, 2, 1<<20, 3)
			cfg := w.config()
			cfg.Objects = 30
			if seed%2 == 1 {
				cfg.MemoryLimit = 40 << 10
			}
			stores := []*Store{w.open(0, cfg), w.open(1, cfg), w.open(2, cfg)}
			for i := range clients {
				c := w.client(i%3, stores[i%3])
				w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
					for range steps {
						concurrentStep(t, c, int(c.port.Rand()%keys))
					}
				})
			}
			wantErr(t, "run", w.c.Run(), nil)
			c := w.client(0, stores[0])
			for _, s := range stores {
				wantErr(t, "drain", w.client(0, s).Drain(), nil)
			}
			r := mustBeSound(t, c)
			for _, n := range r.Nodes {
				if n.Elsewhere != 0 {
					t.Fatal(r)
				}
			}
		})
	}
}

func concurrentStep(t *testing.T, c *Client, key int) {
	k := keyOf(key)
	var err error
	switch c.port.Rand() % 8 {
	case 0, 1, 2:
		err = c.Set(k, valueOf(key, int(c.port.Rand()%1000)), Options{})
	case 3:
		err = c.Delete(k)
	case 4:
		err = c.Append(k, nil)
	case 5:
		err = c.Touch(k, 1000)
	default:
		var it Item
		it, err = c.Get(k)
		if _, ok := parseValue(it.Value, key); err == nil && !ok {
			t.Errorf("get %q: %q", k, it.Value)
		}
	}
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrNoSpace) {
		t.Errorf("key %q: %v", k, err)
	}
}

// Counters: no incr is lost.
func TestConcurrentIncr(t *testing.T) {
	const clients, steps = 9, 60
	w := newWorld(t, sim.Config{Seed: 3}, 1, 4<<20, 3)
	cs := make([]*Client, clients)
	for i := range cs {
		if i < 3 {
			cs[i] = w.client(i, w.open(i, w.config()))
		} else {
			cs[i] = w.client(i%3, cs[i%3].s)
		}
	}
	wantErr(t, "set", cs[0].Set(b("n"), b("0"), Options{}), nil)
	seen := map[uint64]bool{}
	for i, c := range cs {
		w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
			for range steps {
				v, err := c.Incr(b("n"), 1)
				if err != nil || seen[v] {
					t.Errorf("incr: %d (seen %v), %v", v, seen[v], err)
				}
				seen[v] = true
			}
		})
	}
	wantErr(t, "run", w.c.Run(), nil)
	wantValue(t, cs[0], "n", fmt.Sprint(clients*steps))
	mustBeSound(t, cs[0])
}

// What a key went through, for porcupine.
type (
	linInput struct {
		op    string
		key   int
		value string
		cas   uint64
	}
	linOutput struct {
		value string
		cas   uint64
		found bool
		ok    bool
	}
	// linState is the value of a key, and the unique it was seen with, if it was.
	linState struct {
		value string
		found bool
		cas   uint64
	}
)

var linModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[int][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(linInput).key
			parts[k] = append(parts[k], o)
		}
		var list [][]porcupine.Operation
		for _, p := range parts {
			list = append(list, p)
		}
		return list
	},
	Init: func() any { return linState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(linState), input.(linInput), output.(linOutput)
		switch in.op {
		case "get":
			if out.found != s.found || out.value != s.value || s.cas != 0 && out.cas != s.cas {
				return false, s
			}
			s.cas = out.cas
			return true, s
		case "set":
			return true, linState{value: in.value, found: true}
		case "delete":
			return out.ok == s.found, linState{}
		case "add":
			if out.ok == s.found {
				return false, s
			}
			if out.ok {
				return true, linState{value: in.value, found: true}
			}
			return true, s
		case "append":
			if out.ok != s.found {
				return false, s
			}
			if out.ok {
				return true, linState{value: s.value + in.value, found: true}
			}
			return true, s
		case "cas":
			// The unique came from a get, so the state has been seen with it if it is present.
			match := s.found && s.cas == in.cas
			if out.ok != match {
				return false, s
			}
			if out.ok {
				return true, linState{value: in.value, found: true}
			}
			return true, s
		}
		panic(in.op)
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

func TestLinearizable(t *testing.T) {
	const keys, clients, steps = 3, 6, 60
	for seed := range uint64(12) {
		w := newWorld(t, sim.Config{Seed: seed, Tear: sim.Tear{Prob: 0.5, Grain: 8}}, 1, 4<<20, 3)
		cfg := w.config()
		cfg.Objects = 1 + seed%2*100 // one bucket for all, or one for each
		stores := []*Store{w.open(0, cfg), w.open(1, cfg), w.open(2, cfg)}
		var history []porcupine.Operation
		for i := range clients {
			c := w.client(i%3, stores[i%3])
			w.c.GoOn(c.port, fmt.Sprint(i), func(fabric.Port) {
				unique := uint64(1)
				for k := range steps {
					in := linInput{key: int(c.port.Rand() % keys), value: fmt.Sprintf("<%d.%d>", i, k), cas: unique}
					begin := w.c.Now()
					out := linOp(t, c, &in)
					history = append(history, porcupine.Operation{ClientId: i, Input: in, Output: out,
						Call: int64(begin), Return: int64(w.c.Now())})
					if in.op == "get" && out.found {
						unique = out.cas
					}
				}
			})
		}
		wantErr(t, "run", w.c.Run(), nil)
		if r := porcupine.CheckOperationsTimeout(linModel, history, 20*time.Second); r != porcupine.Ok {
			t.Fatalf("seed %d: history is %v", seed, r)
		}
	}
}

// linOp does one operation at random and says what came of it.
func linOp(t *testing.T, c *Client, in *linInput) (out linOutput) {
	key := keyOf(in.key)
	var err error
	switch in.op = []string{"get", "get", "set", "delete", "add", "append", "cas"}[c.port.Rand()%7]; in.op {
	case "get":
		var it Item
		it, err = c.Get(key)
		out.value, out.cas, out.found = string(it.Value), it.CAS, err == nil
	case "set":
		err = c.Set(key, b(in.value), Options{})
	case "delete":
		err = c.Delete(key)
	case "add":
		err = c.Add(key, b(in.value), Options{})
	case "append":
		err = c.Append(key, b(in.value))
	case "cas":
		err = c.CompareAndSwap(key, b(in.value), Options{}, in.cas)
	}
	out.ok = err == nil
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrExists) {
		t.Errorf("%+v: %v", *in, err)
	}
	return out
}
