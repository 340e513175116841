package redis

import (
	"bufio"
	"crypto/tls"
	"io"
	"testing"
	"time"

	"github.com/declock/declock/internal/secure/securetest"
)

// A client that sends half of a large value, and then nothing, is idle: its connection ends, counted as idle, and leaves neither segments nor memory that counts. So it is where the value is filled
// in as it arrives, and where it is read to a buffer first, as over TLS.
func TestIdleTimeoutWithinLargeValue(t *testing.T) {
	files := securetest.New(t).Files("node", "cn.declock")
	cfg, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, secret := range map[string]*tls.Config{"plain": nil, "TLS": cfg} {
		t.Run(name, func(t *testing.T) {
			cluster, s, address := startLarge(t, Options{IdleTimeout: 2 * time.Second, TLS: secret})
			c := dial(t, address)
			if secret != nil {
				c.Conn = tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{own}})
				c.r = bufio.NewReader(c.Conn)
			}
			c.want("PING", "PONG")
			text := request("SET", "k", letters('i', 4<<20))
			_, _ = io.WriteString(c, text[:len(text)/2]) // on a machine that stands still it may be idle before all of that is sent
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			if !c.ended() {
				t.Fatal("it goes on")
			}
			for limit := time.Now().Add(10 * time.Second); s.accept.Open() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatal("the connection is open")
				}
			}
			if n := s.counted.idled.Load(); n != 1 {
				t.Errorf("%d connections are counted as idle", n)
			}
			if n := s.buffers.Load(); n != 0 {
				t.Errorf("%d bytes are counted", n)
			}
			noSegments(t, cluster)
		})
	}
}
