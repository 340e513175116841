package check

import (
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
)

// A turn is one acquisition and release of a client: all that exploring.play remembers.
type turn struct {
	k      lock.Locker
	first  bool
	round  int
	hold   lock.Hold
	ask    lock.Request
	reads  [1]fabric.Op
	before [1]fabric.Op
	event  oracle.Event
	lost   bool
}

// remembers returns the hash of what a client goes by that waits for the fabric at some place of the program (see
// sim.Cluster.ClientMemory): its turn, and its Locker. It is false where variables of functions hold more.
func (t *turn) remembers(stack []uintptr) (uint64, bool) {
	for _, pc := range stack {
		if !tidy(pc) {
			return 0, false
		}
	}
	return digestOf(t), true
}

// Functions that remember nothing in variables while they wait for the fabric but what they have from their callers, what follows from
// the operation under way, and what is constant. A function that is not here costs states, and no schedule.
var tidyFunctions = map[string]bool{}

func init() {
	for pkg, names := range map[string]string{
		"cql.(*Client).":          "Enqueue EnqueueCautious enqueueByCAS writeEntry Await Recheck headLives AwaitReset Release passOn passOnWriter passOnReader refetch",
		"hier.(*Locker).":         "Acquire acquire acquireRemote enqueue await acquireLocal hold read do perform Release release giveUp",
		"lab/check.(*exploring).": "client play",
		"lab/check.":              "Exploration.buildWith.func1",
		"fabric/sim.":             "(*Port).Do (*Port).Recv (*Port).Pause (*Port).recv (*Port).pause (*Port).waitChain (*Port).blockInTime (*Cluster).Go.func1 (*Task).run (*coroutine).run",
	} {
		for _, n := range strings.Fields(names) {
			tidyFunctions[modulePath+pkg+n] = true
		}
	}
}

const modulePath = "github.com/declock/declock/"

var tidyPlaces sync.Map // by program counter: tidy

// tidy reports whether a place in the program is in such a function (or in several, inlined).
func tidy(pc uintptr) bool {
	if known, ok := tidyPlaces.Load(pc); ok {
		return known.(bool)
	}
	all := true
	for frames, more := runtime.CallersFrames([]uintptr{pc}), true; more && all; {
		var f runtime.Frame
		f, more = frames.Next()
		all = tidyFunctions[f.Function] || strings.HasPrefix(f.Function, "iter.") || strings.HasPrefix(f.Function, "runtime.")
	}
	tidyPlaces.Store(pc, all)
	return all
}

// What a Locker and its cql.Client have that their client does not go by when it goes on: who they are, what they count, and memory for operations
// under way, and for what was read last.
var notRemembered = map[reflect.Type][]string{
	reflect.TypeFor[hier.Locker](): {"table", "port", "node", "clock", "stats", "cfg", "one", "last"},
	reflect.TypeFor[cql.Client]():  {"port", "lay", "cfg", "node", "stats", "quick", "ops", "image"},
}

// remembered returns the indices of the fields of such a type that count.
var remembered = func() map[reflect.Type][]int {
	m := map[reflect.Type][]int{}
	for t, names := range notRemembered {
		without := map[int]bool{}
		for _, n := range names {
			without[fieldOf(t, n).Index[0]] = true
		}
		for i := range t.NumField() {
			if !without[i] {
				m[t] = append(m[t], i)
			}
		}
	}
	return m
}()
