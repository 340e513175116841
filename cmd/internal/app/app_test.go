package app

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/traces"
)

func TestFlagsMayStandBehindArguments(t *testing.T) {
	a := Declock(&command.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	for _, c := range []struct{ in, want string }{
		{"declock replay t.csv --verify --cns 2", "declock replay --verify --cns 2 t.csv"},
		{"declock replay --cns 2 t.csv --json", "declock replay --cns 2 --json t.csv"},
		{"declock replay - --cns=2", "declock replay --cns=2 -"},
		{"declock replay --verify t.csv", "declock replay --verify t.csv"},
		{"declock trace stat f --json", "declock trace stat --json f"},
		{"declock inspect header mn0+0x40 --cluster shm:x", "declock inspect header --cluster shm:x mn0+0x40"},
		{"declock replay --verify -- -x.csv", "declock replay --verify -- -x.csv"},
		{"declock inspect nosuch --cluster shm:x", "declock inspect nosuch"},
		{"declock nosuch --cluster shm:x --json", "declock nosuch"},
		{"declock replay --nosuch t.csv", "declock replay --nosuch t.csv"},
		{"declock help replay", "declock help replay"},
		{"declock", "declock"},
	} {
		if got := strings.Join(command.Reorder(a, strings.Fields(c.in)), " "); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseAddr(t *testing.T) {
	for in, want := range map[string]fabric.Addr{"mn0+0x40": fabric.At(0, 64), "mn3+128": fabric.At(3, 128),
		"mn255+0": fabric.At(255, 0), "mn0.1+0x40": fabric.At(0, 64).In(1), fabric.At(7, 8).In(255).String(): fabric.At(7, 8).In(255)} {
		if got, err := parseAddr(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "mn", "mn0", "0+1", "mn0+", "mnx+1", "mn0+-1", "mn0+0xffffffffffffffff", "mn99999+1", "mn256+0", "mn300+0x0", "mn0.256+8", "mn0.+8", "mn.1+8"} {
		if _, err := parseAddr(in); exit.Of(err) != exit.Usage {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// Names of hidden commands are known to package fleet.
func TestHiddenCommands(t *testing.T) {
	a := Declock(&command.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	var hidden []string
	for _, c := range a.Commands {
		if c.Hidden {
			hidden = append(hidden, c.Name)
		}
	}
	slices.Sort(hidden)
	if got := strings.Join(hidden, " "); got != "__cn __mn" {
		t.Errorf("hidden: %s", got)
	}
}

func TestMemoryOfGeneratedTraces(t *testing.T) {
	for _, c := range []struct {
		preset string
		keys   uint64
		spare  uint64
		want   func(uint64) bool
	}{
		{"cluster14", 100, 1 << 40, func(n uint64) bool { return n == minMemory }},
		{"cluster14", 100_000, 1 << 40, func(n uint64) bool { return n > 100<<20 && n < 256<<20 }},
		{"cluster53", 100_000, 1 << 40, func(n uint64) bool { return n > 3<<30 && n < 4<<30 }},
		{"cluster53", 1_000_000, 8 << 30, func(n uint64) bool { return n == 4<<30 }},
		{"cluster53", traces.MaxKeys, 1 << 40, func(n uint64) bool { return n == 1<<39 }},
	} {
		o := &replayOptions{do: control.Replay{Preset: c.preset, Keys: c.keys}}
		if n := o.memory(c.spare); !c.want(n) || n%64 != 0 {
			t.Errorf("%s with %d keys: %d bytes", c.preset, c.keys, n)
		}
	}
}
