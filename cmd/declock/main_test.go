package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests run the real programs, built once, as real processes. Each has a
// directory of its own for clusters, and looks afterwards that neither a process nor a
// file is left. No test passes or fails by time: patience only bounds a hang.
var patience = 2 * time.Minute

// programs is the directory of the binaries.
var programs string

func TestMain(m *testing.M) {
	beEtcd()
	beSlowLink()
	os.Exit(func() int {
		if programs = os.Getenv(programsEnv); programs != "" {
			patience = 10 * time.Minute // a guest waits for processors
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "declock-bin")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", dir, "../declock", "../declock-mn", "../declock-cn", "../declock-lab")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
			return 1
		}
		programs = dir
		return m.Run()
	}())
}

// A world is a directory for clusters, and the processes in it.
type world struct {
	t      *testing.T
	dir    string
	behind []string // what programs are started with, as "ip netns exec NAME"
}

// newWorld makes a directory on a memory file system if there is one. When the test is
// over nothing may be left in it, and no process that works in it.
func newWorld(t *testing.T) *world {
	t.Helper()
	base := "/dev/shm"
	if st, err := os.Stat(base); err != nil || !st.IsDir() {
		base = ""
	}
	dir, err := os.MkdirTemp(base, "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir}
	t.Cleanup(func() {
		w.assertClean()
		for _, pid := range w.processes("") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		os.RemoveAll(dir)
	})
	return w
}

// assertClean waits until no process and no file is left.
func (w *world) assertClean() {
	w.t.Helper()
	var left []string
	ok := eventually(func() bool {
		left = nil
		for _, pid := range w.processes("") {
			left = append(left, fmt.Sprintf("process %d: %s", pid, strings.Join(cmdline(pid), " ")))
		}
		_ = filepath.WalkDir(w.dir, func(path string, _ os.DirEntry, err error) error {
			if path != w.dir && err == nil {
				left = append(left, path)
			}
			return nil
		})
		return len(left) == 0
	})
	if !ok {
		w.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

// processes returns the processes of this world whose command line has a word; empty: all.
func (w *world) processes(word string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		args := cmdline(pid)
		if contains(args, w.dir) && (word == "" || contains(args, word)) && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func cmdline(pid int) []string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.Split(string(b), "\x00")
}

// zombie reports whether a process has ended and only waits to be collected.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// eventually asks until the answer is yes, or patience has run out. It asks less often as time passes: many questions start a
// process, and what is waited for needs the processors.
func eventually(ok func() bool) bool {
	limit := time.Now().Add(patience)
	for pause := 5 * time.Millisecond; !ok(); pause = min(pause*5/4, 200*time.Millisecond) {
		if time.Now().After(limit) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// A process is a program under way.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr syncBuffer
	done           chan struct{}
	code           int
}

// syncBuffer can be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start starts declock; a first argument "declock-mn" or "declock-cn" is another program. "DIR" stands
// for the world's directory. It has a process group of its own, as from a shell.
func (w *world) start(args ...string) *process { return w.startWith("", args...) }

func (w *world) startWith(stdin string, args ...string) *process {
	w.t.Helper()
	return w.startAs(stdin, w.behind, nil, args...)
}

// startBehind starts a program behind another, as "ip netns exec NAME", with an environment besides the own.
// "SELF" is the test program.
func (w *world) startBehind(before, env []string, args ...string) *process {
	w.t.Helper()
	return w.startAs("", before, env, args...)
}

func (w *world) startAs(stdin string, before, env []string, args ...string) *process {
	w.t.Helper()
	program := "declock"
	if len(args) > 0 && strings.HasPrefix(args[0], "declock-") {
		program, args = args[0], args[1:]
	}
	args = append([]string(nil), args...)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "DIR", w.dir)
	}
	command := append(append([]string(nil), before...), filepath.Join(programs, program))
	if len(args) > 0 && args[0] == "SELF" {
		self, err := os.Executable()
		if err != nil {
			w.t.Fatal(err)
		}
		command[len(command)-1], args = self, args[1:]
	}
	p := &process{t: w.t, cmd: exec.Command(command[0], append(command[1:], args...)...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(stdin), &p.stdout, &p.stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		var e *exec.ExitError
		switch {
		case errors.As(err, &e):
			p.code = e.ExitCode()
		case err != nil:
			p.code = -2
		}
		close(p.done)
	}()
	w.t.Cleanup(func() {
		select {
		case <-p.done:
		default:
			_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
			<-p.done
		}
	})
	return p
}

// wait waits for the end, and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.code
	case <-time.After(patience):
		p.t.Fatalf("%v does not end\nstdout: %s\nstderr: %s", p.cmd.Args, p.stdout.String(), p.stderr.String())
		return -1
	}
}

// says waits for a text on standard output.
func (p *process) says(text string) {
	p.t.Helper()
	ok := eventually(func() bool {
		select {
		case <-p.done:
			return true
		default:
			return strings.Contains(p.stdout.String(), text)
		}
	})
	if !ok || !strings.Contains(p.stdout.String(), text) {
		p.t.Fatalf("%v does not say %q\nstdout: %s\nstderr: %s", p.cmd.Args, text, p.stdout.String(), p.stderr.String())
	}
}

// run runs declock to its end, and demands an exit code.
func (w *world) run(code int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	return w.runWith("", code, args...)
}

func (w *world) runWith(stdin string, code int, args ...string) (stdout, stderr string) {
	w.t.Helper()
	p := w.startWith(stdin, args...)
	if got := p.wait(); got != code {
		w.t.Fatalf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", args, got, code, p.stdout.String(), p.stderr.String())
	}
	assertNoStack(w.t, p.stderr.String())
	return p.stdout.String(), p.stderr.String()
}

func assertNoStack(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "goroutine ") || strings.Contains(text, "panic:") {
		t.Errorf("a Go stack:\n%s", text)
	}
}

// A result is what --json prints.
type result struct {
	Experiment string
	Fabric     string
	Seed       uint64
	Commit     string
	Config     map[string]any
	Rows       []map[string]any
}

func decode(t *testing.T, text string) result {
	t.Helper()
	var r result
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("no JSON object: %v\n%s", err, text)
	}
	if d.More() {
		t.Fatalf("more than one JSON object:\n%s", text)
	}
	return r
}

// measuring waits until a replay in this world measures, and returns how many operations were done.
func (w *world) measuring(p *process) {
	w.t.Helper()
	ok := eventually(func() bool {
		select {
		case <-p.done:
			w.t.Fatalf("ended too early with %d\nstdout: %s\nstderr: %s", p.code, p.stdout.String(), p.stderr.String())
		default:
		}
		for _, r := range w.status() {
			for _, c := range list(r["compute"]) {
				status, _ := c["status"].(map[string]any)
				job, _ := status["job"].(map[string]any)
				if ops, _ := job["ops"].(float64); ops > 0 {
					return true
				}
			}
		}
		return false
	})
	if !ok {
		w.t.Fatalf("the replay does not begin to measure\nstderr: %s", p.stderr.String())
	}
}

// status returns the rows of declock status.
func (w *world) status() []map[string]any {
	w.t.Helper()
	out, _ := w.run(0, "status", "--dir", "DIR", "--json")
	return decode(w.t, out).Rows
}

func list(v any) (out []map[string]any) {
	items, _ := v.([]any)
	for _, i := range items {
		if m, ok := i.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}
