package memcached

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
)

// Ten thousand idle connections, each of which has sent a request, cost some KiB each and no session; the next ones are served as before. It has
// as many as this process may have files for, of which each needs two.
func TestIdleConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	n := min(10_000, int(files.Cur-500)/2)
	_, address := startServer(t, openCluster(t), Options{MaxConns: n + 10})
	c := dial(t, address)
	c.want("set k 0 0 1\r\n1\r\n", "STORED\r\n")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	answer := make([]byte, len("VALUE k 0 1\r\n1\r\nEND\r\n"))
	for range n {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err = io.WriteString(nc, "get k\r\n"); err == nil {
			_, err = io.ReadFull(nc, answer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse)) / int64(n)
	t.Logf("%d connections, %d bytes each, both ends", n, each)
	if each > 24<<10 {
		t.Errorf("an idle connection costs %d bytes", each)
	}
	c.want("get k\r\n", "VALUE k 0 1\r\n1\r\nEND\r\n")
}
