package overtcp_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

// roomyEnv is a memory node with room for large values, plainEnv a server to which one connection writes and from which it reads largeSize bytes at a time.
const (
	roomyEnv  = "DECLOCK_TEST_ROOMY_MEMORY_NODE"
	plainEnv  = "DECLOCK_TEST_PLAIN_SERVER"
	largeSize = 4 << 20
)

func serveRoomy(address string) (io.Closer, error) { return serveMemoryOf(address, 512<<20) }

func servePlain(socket string) (io.Closer, error) {
	// The port is free as soon as it is known: it is in a file, as is the memory that clients write to.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(socket, []byte(l.Addr().String()), 0o600); err != nil {
		return nil, err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
	return l, nil
}

// echo takes a value and answers with a byte, or is asked for one, by another byte, and sends it.
func echo(c net.Conn) {
	const values = 16
	memory, one := bytes.Repeat([]byte("elsewhere"), values*largeSize/9+1), make([]byte, 1)
	for i := 0; ; i = (i + 1) % values {
		if _, err := io.ReadFull(c, one); err != nil {
			return
		}
		v := memory[i*largeSize : (i+1)*largeSize]
		var err error
		if one[0] == 'w' {
			if _, err = io.ReadFull(c, v); err == nil {
				_, err = c.Write(one)
			}
		} else {
			_, err = c.Write(v)
		}
		if err != nil {
			return
		}
	}
}

// What values of 4 MiB take over TCP, to a memory node that is another process, in turns with a plain connection that carries as many bytes to and from another process. The
// figures are medians.
func BenchmarkLarge(b *testing.B) {
	dir, err := os.MkdirTemp("", "declock-overtcp")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	startEtcd(b, dir)
	address := fmt.Sprintf("tcp://%s/test?insecure=true&listen=127.0.0.1:0&dead-after=10s", filepath.Join(dir, "etcd.sock"))
	startSelf(b, roomyEnv+"="+address)
	startSelf(b, plainEnv+"="+filepath.Join(dir, "plain"))
	where, err := os.ReadFile(filepath.Join(dir, "plain"))
	if err != nil {
		b.Fatal(err)
	}
	plain, err := net.Dial("tcp", string(where))
	if err != nil {
		b.Fatal(err)
	}
	defer plain.Close()
	c, err := declock.Open(b.Context(), address)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	st, err := c.Store(b.Context(), "objects", declock.StoreConfig{Objects: 1000, MaxValue: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	value, dst := bytes.Repeat([]byte("value..."), largeSize/8), make([]byte, largeSize)
	key := func(i int) []byte { return fmt.Append(nil, "key ", i%16) }
	steps := []func(i int) error{
		func(i int) error { return st.Set(b.Context(), key(i), value, declock.SetOptions{}) },
		func(int) error {
			if _, err := plain.Write(append([]byte{'w'}, value[:1023]...)); err != nil {
				return err
			}
			if _, err := plain.Write(value[1023:]); err != nil {
				return err
			}
			_, err := io.ReadFull(plain, dst[:1])
			return err
		},
		func(i int) error { _, err := st.Get(b.Context(), key(i+8), dst[:0]); return err },
		func(int) error {
			if _, err := plain.Write([]byte{'r'}); err != nil {
				return err
			}
			_, err := io.ReadFull(plain, dst)
			return err
		},
		func(i int) error {
			return st.Use(b.Context(), func(c *objstore.Client) error {
				keys, results := [][]byte{key(i), key(i + 4), key(i + 8), key(i + 12)}, make([]objstore.Result, 4)
				for n := 0; len(keys) > 0; keys, results = keys[n:], results[n:] {
					var err error
					if n, _, err = c.GetMulti(keys, results, dst[:0]); err != nil || len(results[0].Value) != largeSize {
						return fmt.Errorf("%d bytes, %w", len(results[0].Value), errors.Join(err, results[0].Err))
					}
				}
				return nil
			})
		},
	}
	var took [5][]float64
	for i := range 32 {
		if err := steps[0](i); err != nil {
			b.Fatal(err)
		}
	}
	for i := 0; b.Loop(); i++ {
		for j, f := range steps {
			began := time.Now()
			if err := f(i); err != nil {
				b.Fatal(err)
			}
			took[j] = append(took[j], time.Since(began).Seconds())
		}
	}
	median := func(j int) float64 {
		slices.Sort(took[j])
		return took[j][len(took[j])/2]
	}
	b.ReportMetric(largeSize/median(0)/1e6, "set-MB/s")
	b.ReportMetric(largeSize/median(1)/1e6, "plain-write-MB/s")
	b.ReportMetric(largeSize/median(2)/1e6, "get-MB/s")
	b.ReportMetric(largeSize/median(3)/1e6, "plain-read-MB/s")
	b.ReportMetric(median(1)/median(0), "set/plain")
	b.ReportMetric(median(3)/median(2), "get/plain")
	b.ReportMetric(4*median(3)/median(4), "batch/plain")
}
