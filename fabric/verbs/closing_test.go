//go:build cgo && !shmonly

package verbs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/declock/declock/fabric"
)

// A node may be closed while its clients are at work: they get an error, and nothing that they use is
// taken away under their hands.
func TestNodeClosesUnderItsClients(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	for range 10 {
		c.Join()
		n := c.Nodes[len(c.Nodes)-1]
		begun := make(chan bool, 6)
		for k := range 6 {
			p, err := n.Open()
			if err != nil {
				t.Fatal(err)
			}
			c.Go(p, func(p fabric.Port) {
				ops := []fabric.Op{fabric.FAA(counter, 1), fabric.Load(counter)}
				for i := 0; ; i++ {
					var err error
					switch k % 3 {
					case 0:
						err = p.Do(ops)
					case 1:
						var pending fabric.Pending
						if pending, err = p.Post(ops); err == nil {
							err = p.Wait(pending)
						}
					case 2:
						if _, err = p.Recv(p.Now() + 20*fabric.Microsecond); errors.Is(err, fabric.ErrDeadline) {
							err = nil
						}
					}
					if i == 3 {
						begun <- true
					}
					if err != nil {
						if !errors.Is(err, fabric.ErrClosed) {
							t.Errorf("client %d: %v", k, err)
						}
						return
					}
				}
			})
		}
		for range 6 {
			<-begun
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		c.Wait()
	}
}

// Other goroutines close Ports whose owners are at work, while new Ports take memory and write to it: what succeeds has its results, and nothing is left
// of the closed Ports.
func TestPortsCloseUnderTheirOwners(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	n := c.Nodes[0]
	pattern := bytes.Repeat([]byte{1, 2, 3, 4}, 256)
	data := fabric.At(0, 8192)
	writePattern(t, c, data, pattern)
	for round := range uint64(10) {
		begun := make(chan bool, 6)
		var ports []fabric.Port
		for k := range uint64(6) {
			p, err := n.Open()
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, p)
			word := fabric.At(0, 64*(round*6+k))
			c.Go(p, func(p fabric.Port) {
				buf := p.Alloc(len(pattern))
				defer p.Free(buf)
				for i := uint64(0); ; i++ {
					clear(buf)
					ops := []fabric.Op{fabric.FAA(word, 1), fabric.Read(data, buf)}
					ops[0].Old = 1 << 60
					var err error
					if k%2 == 0 {
						err = p.Do(ops)
					} else {
						var pending fabric.Pending
						if pending, err = p.Post(ops); err == nil {
							err = p.Wait(pending)
						}
					}
					if i == 2 {
						begun <- true
					}
					if err != nil {
						if !errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrUnknownOutcome) {
							t.Errorf("client %d: %v", k, err) // the memory node answers
						}
						return
					}
					if ops[0].Old != i || !bytes.Equal(buf, pattern) {
						t.Errorf("client %d: FAA %d returned %#x, and the READ %x", k, i, ops[0].Old, buf)
						return
					}
				}
			})
		}
		for range ports {
			<-begun
		}
		time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
		for _, p := range ports {
			c.Go(p, func(p fabric.Port) { _, _ = p.Close(), p.Close() })
			other, err := n.Open()
			if err != nil {
				t.Fatal(err)
			}
			copy(other.Alloc(len(pattern)), bytes.Repeat([]byte{0xee}, len(pattern)))
			if err := other.Do([]fabric.Op{fabric.Load(data)}); err != nil {
				t.Error(err)
			}
			other.Close()
		}
		c.Wait()
	}
	n.portsMu.Lock()
	if len(n.ports) != 1 {
		t.Errorf("%d Ports have not wound up, besides the agent's", len(n.ports)-1)
	}
	n.portsMu.Unlock()
	chains := 0
	for _, e := range *n.chains.list.Load() {
		if e.Load() != nil {
			chains++
		}
	}
	if chains != len(n.Agent().(*port).chains) {
		t.Errorf("%d chains are registered, the agent has %d", chains, len(n.Agent().(*port).chains))
	}
}

func writePattern(t *testing.T, c *testCluster, at fabric.Addr, pattern []byte) {
	t.Helper()
	p, err := c.Node(0).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	buf := p.Alloc(len(pattern))
	copy(buf, pattern)
	if err := p.Do([]fabric.Op{fabric.Write(at, buf)}); err != nil {
		t.Fatal(err)
	}
}

// Another goroutine closes a Port between its owner's operations: the owner still has what the last one has read, and Wait has the outcome of what was
// posted before. The memory stays when the node is closed.
func TestMemoryOfAClosedPortStaysItsOwners(t *testing.T) {
	c := cluster(t, 1<<20, 1)
	n := c.Nodes[0]
	pattern := bytes.Repeat([]byte{1, 2, 3, 4}, 256)
	data, word := fabric.At(0, 8192), fabric.At(0, 64)
	writePattern(t, c, data, pattern)
	type reader struct {
		p   fabric.Port
		buf []byte
	}
	var readers []reader
	check := func(when string) {
		for i, r := range readers {
			if !bytes.Equal(r.buf, pattern) {
				t.Fatalf("%s: what Port %d had read before is %x", when, i, r.buf)
			}
		}
	}
	for i := range uint64(20) {
		p, err := n.Open()
		if err != nil {
			t.Fatal(err)
		}
		buf := p.Alloc(len(pattern))
		if err := p.Do([]fabric.Op{fabric.Read(data, buf)}); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader{p, buf})
		ops := []fabric.Op{fabric.FAA(word, 1)}
		pending, err := p.Post(ops)
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if err := p.Wait(pending); err != nil || ops[0].Old != i {
			t.Errorf("FAA %d, posted before Close: %#x, %v", i, ops[0].Old, err)
		}
		if err := p.Wait(pending); !errors.Is(err, fabric.ErrClosed) {
			t.Errorf("Wait again: %v", err)
		}
		other, err := n.Open()
		if err != nil {
			t.Fatal(err)
		}
		copy(other.Alloc(len(pattern)), bytes.Repeat([]byte{0xee}, len(pattern)))
		other.Close()
	}
	runtime.GC()
	check("after Close of the Ports")
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	runtime.GC()
	check("after Close of the node")
	for _, r := range readers {
		r.p.Free(r.buf)
		clear(r.p.Alloc(10 << 10))
	}
}

// Programs that open and close Ports all the time do not register more and more memory, though only the garbage collector tells which is not used.
func TestMemoryOfClosedPortsIsUsedAgain(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it must be asked
	const each, most = 256 << 10, 64 << 20
	c := cluster(t, 1<<20, 1)
	pool := c.Nodes[0].pool
	registered := func() (size, left uintptr) {
		pool.mu.Lock()
		defer pool.mu.Unlock()
		return pool.size, pool.left
	}
	for before := uintptr(0); ; {
		p, err := c.Node(0).Open()
		if err != nil {
			t.Fatal(err)
		}
		p.Alloc(each)
		p.Close()
		time.Sleep(time.Millisecond)
		size, left := registered()
		if left < before {
			break
		}
		if before = left; size > most {
			t.Fatalf("%d bytes are registered, %d of them for closed Ports", size, left)
		}
	}
}
