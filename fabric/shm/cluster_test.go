package shm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

func TestNames(t *testing.T) {
	dir := testDir(t)
	for _, name := range []string{"", ".", "..", ".x", "a/b", "a b", "a\n", "ä", strings.Repeat("x", 65)} {
		o := Options{Name: name, Dir: dir, Size: testSize}
		if _, err := Serve(o); !errors.Is(err, ErrName) {
			t.Errorf("Serve of %q: %v", name, err)
		}
		if _, err := Join(context.Background(), o); !errors.Is(err, ErrName) {
			t.Errorf("Join of %q: %v", name, err)
		}
		if err := Remove(dir, name); !errors.Is(err, ErrName) {
			t.Errorf("Remove of %q: %v", name, err)
		}
	}
	serve(t, Options{Name: strings.Repeat("x", 64), Dir: dir})
}

func TestBadOptions(t *testing.T) {
	good := Options{Name: "x", Dir: testDir(t), Size: testSize}
	for what, spoil := range map[string]func(*Options){
		"MaxCN":        func(o *Options) { o.MaxCN = 256 },
		"no size":      func(o *Options) { o.Size = 0 },
		"memory node":  func(o *Options) { o.Mem = MaxMN },
		"a path":       func(o *Options) { o.Path = "relative" },
		"a directory":  func(o *Options) { o.Path = o.Dir },
		"huge policy":  func(o *Options) { o.Huge = 9 },
		"no directory": func(o *Options) { o.Dir += "/none" },
	} {
		o := good
		spoil(&o)
		if s, err := Serve(o); !errors.Is(err, ErrOptions) {
			t.Errorf("%s: %v, %v", what, s, err)
		}
	}
}

// More than there is is refused at once, and leaves nothing behind.
func TestNotEnoughMemory(t *testing.T) {
	if _, err := Serve(Options{Name: "x", Dir: testDir(t), Size: 1 << 47}); !errors.Is(err, ErrNoSpace) {
		t.Error(err)
	}
}

func TestSparse(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: 1 << 36, Sparse: true}
	serve(t, o)
	p := open(t, join(t, o))
	if err := p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 1<<36-8), 1)}); err != nil {
		t.Error(err)
	}
}

func TestHugePages(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: testSize, Huge: HugeTry}
	s := serve(t, o)
	kind, why := s.Huge()
	t.Logf("huge pages: %q %s", kind, why)
	if (kind == "") == (why == "") || s.Size()%hugePageSize != 0 {
		t.Errorf("%q, because %q; size %d", kind, why, s.Size())
	}
	if err := open(t, join(t, o)).Do([]fabric.Op{fabric.FAA(fabric.At(0, s.Size()-8), 1)}); err != nil {
		t.Error(err)
	}
	o.Mem, o.Huge = 1, HugeRequire
	s, err := Serve(o)
	if kind == "" && !errors.Is(err, ErrNoHuge) || kind != "" && err != nil {
		t.Errorf("required: %v", err)
	}
	if err == nil {
		s.Close()
	}
}

func TestNoCluster(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	if _, err := Join(context.Background(), o); !errors.Is(err, ErrNoCluster) {
		t.Errorf("Join: %v", err)
	}
	if _, err := Inspect(o.Dir, o.Name); !errors.Is(err, ErrNoCluster) {
		t.Errorf("Inspect: %v", err)
	}
	if err := Remove(o.Dir, o.Name); !errors.Is(err, ErrNoCluster) {
		t.Errorf("Remove: %v", err)
	}
}

func TestFullCluster(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), MaxCN: 3}
	serve(t, o)
	var nodes []*node
	for id := range fabric.CNID(3) {
		n := join(t, o)
		if n.ID() != id+1 {
			t.Errorf("joined as %v, want %v", n.ID(), id+1)
		}
		nodes = append(nodes, n)
	}
	if _, err := Join(context.Background(), o); !errors.Is(err, ErrFull) {
		t.Errorf("Join of a full cluster: %v", err)
	}
	nodes[1].Close()
	if n := join(t, o); n.ID() != 2 {
		t.Errorf("joined as %v, want the free number 2", n.ID())
	}
	o.MaxCN, o.Mem, o.Size = 4, 1, testSize
	if _, err := Serve(o); !errors.Is(err, ErrOptions) {
		t.Errorf("Serve with another MaxCN: %v", err)
	}
}

// Beyond 63 compute nodes they share bits of the hint.
func TestLargestCluster(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), MaxCN: int(fabric.MaxCN)}
	serve(t, o)
	var ports []fabric.Port
	for range 70 {
		ports = append(ports, open(t, join(t, o)))
	}
	for i, p := range ports {
		to := ports[(i+63)%len(ports)]
		if err := p.Send(to.ID(), &fabric.Message{Kind: fabric.MsgUser}); err != nil {
			t.Fatal(err)
		}
		if m, err := to.Recv(to.Now() + patience); err != nil || m.From != p.ID() {
			t.Fatalf("%v to %v: %+v, %v", p.ID(), to.ID(), m, err)
		}
	}
	if hintOf(1) != hintOf(64) || hintOf(1) == hintOf(2) || hintOf(63)&hintView != 0 {
		t.Error("hintOf")
	}
}

func TestKeys(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Key: 77}
	serve(t, o)
	open(t, join(t, o))
	o.Key = 0
	open(t, join(t, o))
	o.Key = 78
	if _, err := Join(context.Background(), o); !errors.Is(err, fabric.ErrBadKey) {
		t.Errorf("Join with a wrong key: %v", err)
	}
	o.Mem, o.Size = 1, testSize
	if _, err := Serve(o); !errors.Is(err, fabric.ErrBadKey) {
		t.Errorf("Serve with a wrong key: %v", err)
	}
	// Before there is memory Join cannot know; the first operation does.
	o = Options{Name: "y", Dir: o.Dir, Key: 77}
	s := serve(t, o)
	join(t, o)
	s.Close()
	o.Key = 78
	p := open(t, join(t, o))
	o.Key = 77
	serve(t, o)
	if err := p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))}); !errors.Is(err, fabric.ErrBadKey) {
		t.Errorf("an operation with a wrong key: %v", err)
	}
}

func TestForeignFormat(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t), Size: testSize, Keep: true}
	t.Cleanup(func() {
		if err := Remove(o.Dir, o.Name); err != nil {
			t.Error(err)
		}
	})
	s := serve(t, o)
	path := s.Path()
	s.Close()
	spoil := func(path string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		f.WriteAt([]byte{99}, 8) // the version
		f.Close()
	}
	spoil(path)
	for _, keep := range []bool{true, false} {
		o.Keep = keep
		if _, err := Serve(o); !errors.Is(err, ErrFormat) {
			t.Errorf("memory of another version, keep %v: %v", keep, err)
		}
	}
	spoil(filepath.Join(clusterDir(o.Dir, o.Name), clusterFile))
	if _, err := Serve(o); !errors.Is(err, ErrFormat) {
		t.Errorf("cluster of another version: %v", err)
	}
	if info, err := Inspect(o.Dir, o.Name); err != nil || !errors.Is(info.Broken, ErrFormat) {
		t.Errorf("Inspect: %+v, %v", info, err)
	}
}

func TestKeptMemory(t *testing.T) {
	dir := testDir(t)
	for _, path := range []string{"", filepath.Join(t.TempDir(), "elsewhere")} {
		o := Options{Name: "x", Dir: dir, Size: testSize, Path: path, Keep: true}
		a := fabric.At(0, 4000)
		for round := range uint64(3) {
			s := serve(t, o)
			if s.Epoch() != uint32(round)+1 || s.Size() != testSize {
				t.Errorf("round %d: epoch %d, size %d", round, s.Epoch(), s.Size())
			}
			n := join(t, o)
			ops := []fabric.Op{fabric.FAA(a, 1)}
			if err := open(t, n).Do(ops); err != nil || ops[0].Old != round {
				t.Errorf("round %d: %d, %v", round, ops[0].Old, err)
			}
			n.Close()
			s.Close()
			o.Size = 0
		}
		o.Size = 2 * testSize
		if _, err := Serve(o); !errors.Is(err, ErrOptions) {
			t.Errorf("another size: %v", err)
		}
		if err := Remove(dir, "x"); err != nil {
			t.Error(err)
		}
	}
}

// A file of another program is not overwritten.
func TestForeignFile(t *testing.T) {
	dir := t.TempDir()
	o := Options{Name: "x", Dir: testDir(t), Size: testSize, Path: filepath.Join(dir, "precious")}
	data := strings.Repeat("precious", 1000)
	if err := os.WriteFile(o.Path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, keep := range []bool{true, false} {
		o.Keep = keep
		if _, err := Serve(o); !errors.Is(err, ErrFormat) {
			t.Errorf("keep %v: %v", keep, err)
		}
	}
	if b, _ := os.ReadFile(o.Path); string(b) != data {
		t.Error("the file has changed")
	}
	// The cluster that was made for it stays if it has failed; it has no members.
	if err := Remove(o.Dir, o.Name); err != nil && !errors.Is(err, ErrNoCluster) {
		t.Error(err)
	}
}

// A file that Path names stays, with what is in it, whatever a later server says of Keep: after a clean stop, after Remove, and where there is no room for it.
func TestPathIsNeverRemoved(t *testing.T) {
	dir := testDir(t)
	o := Options{Name: "x", Dir: dir, Size: testSize, Path: filepath.Join(t.TempDir(), "memory")}
	add := func(want uint64) {
		t.Helper()
		s := serve(t, o)
		n := join(t, o)
		ops := []fabric.Op{fabric.FAA(fabric.At(0, 4000), 1)}
		if err := open(t, n).Do(ops); err != nil || ops[0].Old != want {
			t.Errorf("%d, %v; want %d", ops[0].Old, err, want)
		}
		n.Close()
		s.Close()
		if st, err := os.Stat(o.Path); err != nil || st.Size() < testSize {
			t.Fatalf("after a stop: %v, %v", st, err)
		}
	}
	add(0)
	add(1)
	if err := Remove(dir, "x"); err != nil {
		t.Fatal(err)
	}
	add(2)
	other := o
	other.Path = ""
	serve(t, other).Close() // elsewhere from now on
	add(3)
	if err := Remove(dir, "x"); err != nil {
		t.Fatal(err)
	}
	// An empty file of the operator is taken as it is, and is empty again if there is no room.
	o.Path = filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(o.Path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	o.Size = 1 << 45
	if _, err := Serve(o); !errors.Is(err, ErrNoSpace) {
		t.Errorf("no room: %v", err)
	}
	if st, err := os.Stat(o.Path); err != nil || st.Size() != 0 || st.Mode().Perm() != 0o640 {
		t.Errorf("no room: %v, %v", st, err)
	}
	o.Size = testSize
	add(0)
	// Zeros may be another program's data.
	o.Path = filepath.Join(t.TempDir(), "zeros")
	if err := os.WriteFile(o.Path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(o); !errors.Is(err, ErrFormat) {
		t.Errorf("zeros: %v", err)
	}
	if err := Remove(dir, "x"); err != nil && !errors.Is(err, ErrNoCluster) {
		t.Error(err)
	}
}

// Memory nodes that come later are found at first use.
func TestLateMemory(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	p := open(t, n)
	ops := []fabric.Op{fabric.FAA(fabric.At(5, 0), 1)}
	if err := p.Do(ops); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("no such memory node: %v", err)
	}
	o.Mem = 5
	s := serve(t, o)
	if err := p.Do(ops); err != nil {
		t.Error(err)
	}
	if m := n.Memory(); len(m) != 2 || m[1] != (fabric.Memory{ID: 5, Size: testSize, Epoch: 1}) {
		t.Errorf("Memory: %+v", m)
	}
	s.Close()
	if err := p.Do(ops); !errors.Is(err, fabric.ErrNodeDown) {
		t.Errorf("closed: %v", err)
	}
	if m := n.Memory(); len(m) != 1 {
		t.Errorf("Memory: %+v", m)
	}
	serve(t, o)
	if err := p.Do(ops); !errors.Is(err, fabric.ErrStaleEpoch) {
		t.Errorf("restarted: %v", err)
	}
	if err := open(t, n).Do(ops); err != nil || ops[0].Old != 0 {
		t.Errorf("a new port: %d, %v", ops[0].Old, err)
	}
}

// Removing the files of a live node makes others take it for crashed.
// It is fenced then, although its process runs.
func TestFenced(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	p := open(t, n)
	if err := os.Remove(n.c.cnPath(n.id)); err != nil {
		t.Fatal(err)
	}
	if m := join(t, o); m.ID() != n.ID() {
		t.Errorf("joined as %v", m.ID())
	}
	if err := p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 0), 1)}); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Do: %v", err)
	}
	if err := p.Send(fabric.AgentOf(9), &fabric.Message{}); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Send: %v", err)
	}
}

// Nodes come and go at random while others send to them; nothing is left, no
// goroutine and no descriptor either.
func TestChurn(t *testing.T) {
	goroutines, files := runtime.NumGoroutine(), countFiles(t)
	dir := testDir(t)
	o := Options{Name: "x", Dir: dir, Size: testSize, MaxCN: 6}
	s := serve(t, o)
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			for range 15 {
				n, err := Join(context.Background(), o)
				if err != nil {
					t.Error(err)
					return
				}
				p, err := n.Open()
				if err != nil {
					t.Error(err)
					return
				}
				v := n.View()
				for id, ok := v.Live.Next(0); ok; id, ok = v.Live.Next(id) {
					err := p.Send(fabric.AgentOf(id), &fabric.Message{Kind: fabric.MsgUser})
					if err != nil && !errors.Is(err, fabric.ErrNodeDown) {
						t.Error(err)
					}
				}
				ops := []fabric.Op{fabric.FAA(fabric.At(0, 0), 1)}
				if err := p.Do(ops); err != nil {
					t.Error(err)
				}
				if err := n.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n := join(t, o)
	ops := []fabric.Op{fabric.Load(fabric.At(0, 0))}
	if err := open(t, n).Do(ops); err != nil || ops[0].Old != 75 {
		t.Errorf("%d operations, %v", ops[0].Old, err)
	}
	if v := n.View(); v.Live.Len() != 1 || v.Epoch != 151 {
		t.Errorf("view %+v", v)
	}
	n.Close()
	s.Close()
	for try := 0; runtime.NumGoroutine() > goroutines || countFiles(t) > files; try++ {
		if try == 2000 {
			t.Fatalf("%d goroutines and %d files before, %d and %d after", goroutines, files, runtime.NumGoroutine(), countFiles(t))
		}
		time.Sleep(time.Millisecond)
	}
}

func countFiles(t *testing.T) int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(entries)
}

// Close in the middle of operations of others must not bring the process down.
func TestCloseUnderLoad(t *testing.T) {
	for range 20 {
		o := Options{Name: "x", Dir: testDir(t)}
		s := serve(t, o)
		n := join(t, o)
		var wg sync.WaitGroup
		for range 3 {
			p := open(t, n)
			wg.Go(func() {
				buf := p.Alloc(4096)
				ops := []fabric.Op{fabric.FAA(fabric.At(0, 0), 1), fabric.Read(fabric.At(0, 4096), buf), fabric.Write(fabric.At(0, 8192), buf)}
				for p.Do(ops) == nil {
				}
			})
		}
		time.Sleep(time.Millisecond)
		n.Close()
		wg.Wait()
		runtime.GC() // gives the addresses back
		s.Close()
	}
}

func TestCanceledJoin(t *testing.T) {
	o := Options{Name: "x", Dir: testDir(t)}
	serve(t, o)
	n := join(t, o)
	if err := n.c.lock(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Join(ctx, o); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Join while the cluster is locked: %v", err)
	}
	n.c.unlock()
}
