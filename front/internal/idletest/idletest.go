// Package idletest has ten thousand clients of a server under test, in a process of their own: one process may not have files for both ends of so many connections.
package idletest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Clients is how many there are.
const Clients = 10_000

// mostEach bounds what an idle connection costs its server.
const mostEach = 16 << 10

// forClients names the address of the server for a test that has been started anew, to be the clients.
const forClients = "DECLOCK_IDLE_CLIENTS_OF"

// Run is a test: Clients connections, each of which has sent a request and got its answer, cost their server some KiB each. serve starts the server, and returns its address and
// what checks that it serves while they are there.
func Run(t *testing.T, request, answer string, serve func() (address string, serves func())) {
	if testing.Short() {
		t.Skip("opens thousands of connections")
	}
	if address := os.Getenv(forClients); address != "" {
		connect(t, address, request, answer)
		return
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur < Clients+100 {
		t.Skipf("needs %d files, and may have %d (%v)", Clients+100, files.Cur, err)
	}
	address, serves := serve()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), forClients+"="+address)
	stop, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	says, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	before := memory()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(says).ReadString('\n')
	each := (memory() - before) / Clients
	if err != nil || line != "connected\n" {
		t.Errorf("the clients say %q, %v", line, err)
	}
	t.Logf("%d connections, %d bytes each", Clients, each)
	if each > mostEach {
		t.Errorf("an idle connection costs %d bytes", each)
	}
	serves()
	_ = stop.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// memory is what the process has in use.
func memory() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapInuse + m.StackInuse)
}

// connect has the connections made, says so, and keeps them until its standard input ends.
func connect(t *testing.T, address, request, answer string) {
	got := make([]byte, len(answer))
	for range Clients {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(time.Minute))
		if _, err = io.WriteString(nc, request); err == nil {
			_, err = io.ReadFull(nc, got)
		}
		if err != nil || string(got) != answer {
			t.Fatalf("%q, %v", got, err)
		}
	}
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
