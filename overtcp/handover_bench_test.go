package overtcp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/lock"
)

// rivalEnv is a compute node that acquires a lock, holds it for some time and releases it, over and over.
const rivalEnv = "DECLOCK_TEST_RIVAL"

// spin takes some time with the processor.
func spin(d time.Duration) {
	for began := time.Now(); time.Since(began) < d; {
	}
}

type rival struct {
	io.Closer
	cancel context.CancelFunc
	ended  chan struct{}
}

func startRival(with string) (io.Closer, error) {
	address, text, _ := strings.Cut(with, " ")
	hold, err := time.ParseDuration(text)
	if err != nil {
		return nil, err
	}
	c, err := declock.Open(context.Background(), address)
	if err != nil {
		return nil, err
	}
	locks, err := c.Locks(context.Background(), "locks", 1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &rival{c, cancel, make(chan struct{})}
	go func() {
		defer close(r.ended)
		for ctx.Err() == nil {
			g, err := c.Lock(ctx, locks.At(0))
			if err == nil {
				spin(hold)
				err = g.Unlock()
			}
			if err != nil {
				return
			}
		}
	}()
	return r, nil
}

func (r *rival) Close() error {
	r.cancel()
	<-r.ended
	return r.Closer.Close()
}

// What it costs that a lock goes from one compute node to another over the loopback, and back: two clients, each a process, that want nothing else, and a memory node. For each
// handover it has the context switches of the other compute node and of the memory node, and, if there is perf and it may, their system calls. docs/handover-tcp.md has the figures.
func BenchmarkHandover(b *testing.B) {
	for _, hold := range []time.Duration{0, 200 * time.Microsecond} {
		b.Run(hold.String(), func(b *testing.B) { handOver(b, hold) })
	}
}

func handOver(b *testing.B, hold time.Duration) {
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(b, dir)
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=10s", filepath.Join(dir, "etcd.sock"))
	mn := startSelf(b, roomyEnv+"="+address)
	c, err := declock.Open(b.Context(), address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	locks, err := c.Locks(b.Context(), "locks", 1)
	if err != nil {
		b.Fatal(err)
	}
	other := startSelf(b, rivalEnv+"="+address+" "+hold.String())
	var last lock.Token
	turn := func() {
		g, err := c.Lock(b.Context(), locks.At(0))
		if err != nil {
			b.Fatal(err)
		}
		last = g.Token()
		spin(hold)
		if err := g.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
	for range 500 {
		turn()
	}
	// The counters begin some 50 ms after they were started; the benchmark should last for seconds.
	pids := map[string]int{"mn": mn.Process.Pid, "cn": other.Process.Pid}
	first, before := last, map[string]int{}
	calls := countCalls(b, pids)
	for name, pid := range pids {
		before[name] = switchesOf(b, pid)
	}
	for b.Loop() {
		turn()
	}
	n := float64(last>>10 - first>>10) // acquisitions by either: see cql.tokenSeqBits
	b.ReportMetric(n/float64(b.N), "handovers/op")
	b.ReportMetric(b.Elapsed().Seconds()*1e6/n-hold.Seconds()*1e6, "us/handover")
	for name, pid := range pids {
		b.ReportMetric(float64(switchesOf(b, pid)-before[name])/n, name+"-switches")
	}
	for name, k := range calls() {
		b.ReportMetric(k/n, name)
	}
}

// switchesOf returns how often threads of a process have given their processors up, or lost them.
func switchesOf(b *testing.B, pid int) (n int) {
	b.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for _, f := range files {
		text, _ := os.ReadFile(f) // else the thread has ended
		for line := range strings.Lines(string(text)) {
			if name, k, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(name, "ctxt_switches") {
				i, _ := strconv.Atoi(strings.TrimSpace(k))
				n += i
			}
		}
	}
	return n
}

// countCalls begins to count system calls of processes, all and by kind, and returns what ends that: no counts where it cannot be.
func countCalls(b *testing.B, pids map[string]int) (end func() map[string]float64) {
	b.Helper()
	events := "raw_syscalls:sys_enter"
	for _, name := range []string{"read", "write", "ppoll", "epoll_pwait", "epoll_ctl", "futex", "pread64", "nanosleep"} {
		events += ",syscalls:sys_enter_" + name
	}
	type counter struct {
		cmd *exec.Cmd
		out bytes.Buffer
	}
	counters := map[string]*counter{}
	ctx, cancel := context.WithCancel(context.Background())
	for name, pid := range pids {
		c := &counter{cmd: exec.CommandContext(ctx, "perf", "stat", "-x", ",", "-e", events, "-p", strconv.Itoa(pid))}
		c.cmd.Stderr = &c.out
		c.cmd.Cancel = func() error { return c.cmd.Process.Signal(os.Interrupt) }
		c.cmd.WaitDelay = 2 * time.Second // it may not listen yet, or not at all
		if c.cmd.Start() == nil {
			counters[name] = c
		}
	}
	return func() map[string]float64 {
		cancel()
		counts := map[string]float64{}
		for name, c := range counters {
			_ = c.cmd.Wait()
			for line := range strings.Lines(c.out.String()) { // count,unit,event,...
				if f := strings.Split(line, ","); len(f) > 2 {
					if k, err := strconv.ParseFloat(f[0], 64); err == nil {
						counts[name+"-"+strings.TrimPrefix(strings.TrimPrefix(f[2], "syscalls:sys_enter_"), "raw_syscalls:")] = k
					}
				}
			}
		}
		return counts
	}
}
