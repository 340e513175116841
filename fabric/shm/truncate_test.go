//go:build amd64 || arm64

package shm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

// work uses all of the memory and receives, until one of them fails. It says what failed, and how Close went.
func work(o Options) error {
	n, err := Join(context.Background(), o)
	if err != nil {
		return err
	}
	p, err := n.Open()
	if err != nil {
		return err
	}
	last := n.Memory()[0].Size - 8
	buf := p.Alloc(3 * pageSize)
	fmt.Println("ready")
	for limit := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(limit); {
		err = p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 0), 1), fabric.Read(fabric.At(0, last+8-uint64(len(buf))), buf), fabric.CAS(fabric.At(0, last), 0, 0)})
		n.View()
		if err == nil {
			if _, err = p.Recv(p.Now() + fabric.Millisecond); errors.Is(err, fabric.ErrDeadline) {
				err = nil
			}
		}
	}
	// What was under way may have an unknown outcome; what comes next is refused.
	next := p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))})
	fmt.Println(errors.Is(err, ErrTruncated) || errors.Is(err, fabric.ErrFenced), fabric.Refused(next), errors.Is(next, ErrTruncated),
		errors.Is(next, fabric.ErrNodeDown), errors.Is(next, fabric.ErrFenced), next)
	fmt.Println("closed", n.Close())
	return nil
}

func TestTruncatedUnderAnotherProcess(t *testing.T) {
	for _, file := range []string{clusterFile, "mn0", "cn1"} {
		for _, half := range []int64{0, 1} {
			if file == "cn1" && half == 1 {
				continue // the rings of others, which it looks at when they have sent: see TestInboxTruncated
			}
			t.Run(fmt.Sprintf("%s to %d halves", file, half), func(t *testing.T) {
				o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, MaxCN: 255}
				server, err := Serve(o)
				if err != nil {
					t.Fatal(err)
				}
				lines := startWorker(t, o)
				path := filepath.Join(clusterDir(o.Dir, o.Name), file)
				st, err := os.Stat(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(path, st.Size()/2*half); err != nil {
					t.Fatal(err)
				}
				got := lines()
				want := "true true true false true "
				if file == "mn0" {
					want = "true true true true false "
				}
				if !strings.HasPrefix(got, want) || !strings.Contains(got, path) {
					t.Errorf("the worker says %q, want %q.. and the path", got, want)
				}
				if got = lines(); !strings.HasPrefix(got, "closed") || (got == "closed <nil>") != (file != clusterFile) {
					t.Errorf("the worker says %q", got)
				}
				if err := server.Close(); (err == nil) != (file != clusterFile) {
					t.Errorf("Close of the server: %v", err)
				}
			})
		}
	}
}

// startWorker starts a process that works, and returns what returns its lines.
func startWorker(t *testing.T, o Options) (line func() string) {
	t.Helper()
	spec, _ := json.Marshal(childSpec{"work", o})
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r := bufio.NewReader(out)
	line = func() string {
		s, _ := r.ReadString('\n')
		return strings.TrimSuffix(s, "\n")
	}
	if got := line(); got != "ready" {
		t.Fatal(got)
	}
	return line
}

func truncated(t *testing.T, o Options, file string, size int64) string {
	t.Helper()
	path := filepath.Join(clusterDir(o.Dir, o.Name), file)
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantTruncated(t *testing.T, what string, err, class error, path string) {
	t.Helper()
	if !errors.Is(err, class) || !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), path) {
		t.Errorf("%s: %v; want %v, and the path", what, err, class)
	}
}

// One process finds a part of the memory lost: the memory node is down for those too that do not touch that part, and for those that join.
func TestMemoryTruncatedForOne(t *testing.T) {
	o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20}
	serve(t, o)
	one, other := open(t, join(t, o)), open(t, join(t, o))
	do := func(p fabric.Port, offset uint64) error {
		return p.Do([]fabric.Op{fabric.FAA(fabric.At(0, offset), 1)})
	}
	if err := errors.Join(do(one, 0), do(other, 0)); err != nil {
		t.Fatal(err)
	}
	path := truncated(t, o, "mn0", 1<<19)
	if err := do(other, 0); err != nil {
		t.Error("before it has been noticed:", err)
	}
	wantTruncated(t, "what is under way", do(one, 1<<20-8), fabric.ErrUnknownOutcome, path)
	wantTruncated(t, "the next", do(one, 0), fabric.ErrNodeDown, path)
	wantTruncated(t, "another process", do(other, 0), fabric.ErrNodeDown, path)
	late := join(t, o)
	wantTruncated(t, "a node that joins", do(open(t, late), 0), fabric.ErrNodeDown, path)
	info, err := Inspect(o.Dir, o.Name)
	if err != nil || info.Broken != nil || len(info.Memory) != 1 {
		t.Fatalf("Inspect: %+v, %v", info, err)
	}
	wantTruncated(t, "Inspect", info.Memory[0].Broken, ErrTruncated, path)
}

// A chain runs into memory that is lost: what it has read before on other pages may be zeros, so that nothing of it counts.
func TestChainIntoTruncatedMemory(t *testing.T) {
	o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20}
	serve(t, o)
	p := open(t, join(t, o))
	path := truncated(t, o, "mn0", 1<<19)
	err := p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0)), fabric.Load(fabric.At(0, 1<<20-8)), fabric.Load(fabric.At(0, 0))})
	wantTruncated(t, "the chain", err, fabric.ErrUnknownOutcome, path)
	var ce *fabric.ChainError
	if !errors.As(err, &ce) || ce.Index != 0 {
		t.Errorf("%v: want it to be of operation 0", err)
	}
}

// The inbox of a process is truncated while all of it sleeps: a sender gets an error, and the process is woken, fences itself and leaves as lost.
func TestInboxTruncated(t *testing.T) {
	o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20}
	serve(t, o)
	victim, sender := join(t, o), join(t, o)
	v, p := open(t, victim), open(t, sender)
	m := fabric.Message{Kind: fabric.MsgUser}
	if err := p.Send(v.ID(), &m); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Recv(v.Now() + 10*fabric.Second); err != nil {
		t.Fatal(err)
	}
	path := truncated(t, o, victim.ID().String(), 0)
	wantTruncated(t, "Send", p.Send(v.ID(), &m), fabric.ErrNodeDown, path)
	select {
	case <-victim.Fenced():
	case <-time.After(10 * time.Second):
		t.Fatal("it does not notice")
	}
	wantTruncated(t, "an operation of its", v.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))}), fabric.ErrFenced, path)
	wantTruncated(t, "a message of its", v.Send(p.ID(), &m), fabric.ErrFenced, path)
	wantTruncated(t, "Err", victim.Err(), fabric.ErrFenced, path)
	before := sender.View()
	if err := victim.Close(); err != nil {
		t.Error(err)
	}
	if after := sender.View(); after.Lost != before.Lost+1 || after.Live.Has(victim.ID()) {
		t.Errorf("the view is %+v, was %+v", after, before)
	}
	again := join(t, o)
	if err := p.Send(open(t, again).ID(), &m); err != nil {
		t.Error("to the node that was opened again:", err)
	}
}

// The file of the cluster is truncated: no node is taken for gone, and no files are removed.
func TestClusterTruncated(t *testing.T) {
	for _, size := range []int64{0, clusterSize / 2} {
		o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, MaxCN: 255}
		server, err := Serve(o)
		if err != nil {
			t.Fatal(err)
		}
		n := join(t, o)
		p, was := open(t, n), n.View()
		path := truncated(t, o, clusterFile, size)
		if v := n.View(); v != was {
			t.Errorf("the view is %+v, was %+v", v, was)
		}
		wantTruncated(t, "an operation", p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))}), fabric.ErrFenced, path)
		_, err = Join(context.Background(), o)
		if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), path) {
			t.Error("Join:", err)
		}
		if info, err := Inspect(o.Dir, o.Name); err != nil || !errors.Is(info.Broken, ErrFormat) {
			t.Errorf("Inspect: %+v, %v", info, err)
		}
		if err := Remove(o.Dir, o.Name); !errors.Is(err, ErrInUse) {
			t.Error("Remove while it is in use:", err)
		}
		wantTruncated(t, "Close", n.Close(), ErrTruncated, path)
		select {
		case <-server.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the server does not notice")
		}
		wantTruncated(t, "Err", server.Err(), ErrTruncated, path)
		wantTruncated(t, "Close of the server", server.Close(), ErrTruncated, path)
		if err := Remove(o.Dir, o.Name); err != nil {
			t.Error("Remove:", err)
		}
	}
}

// A memory node that is not used notices that its file was truncated.
func TestServerTruncated(t *testing.T) {
	o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20}
	server := serve(t, o)
	done := server.Done()
	p := open(t, join(t, o))
	path := truncated(t, o, "mn0", 1<<19)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the server does not notice")
	}
	wantTruncated(t, "Err", server.Err(), fabric.ErrNodeDown, path)
	wantTruncated(t, "an operation elsewhere", p.Do([]fabric.Op{fabric.Load(fabric.At(0, 0))}), fabric.ErrNodeDown, path)
}
