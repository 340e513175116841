package redis

import (
	"io"
	"net"
	"strconv"
	"testing"
	"time"
)

// Answers of which the socket takes only a part at once arrive whole and in order.
func TestAnswersTakenLate(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	if err := c.Conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	values := []string{letters('a', 60_000), letters('n', 40_000)}
	c.want("SET 0 "+values[0], "OK")
	c.want("SET 1 "+values[1], "OK")
	const gets = 300
	for i := range gets {
		c.send(request("GET", strconv.Itoa(i%2)))
		time.Sleep(50 * time.Microsecond) // each is answered by itself, until the sockets are full
	}
	for i := range gets {
		if got := c.answer(); got != values[i%2] {
			t.Fatalf("answer %d has %d bytes, want %d", i, len(got), len(values[i%2]))
		}
	}
}

// A client that ends together with its request is answered, and its connection is closed.
func TestEndWithARequest(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	for range 100 {
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = nc.SetDeadline(time.Now().Add(5 * time.Second))
		_, err = io.WriteString(nc, request("PING"))
		if err == nil {
			err = nc.(*net.TCPConn).CloseWrite()
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(nc); err != nil || string(b) != "+PONG\r\n" {
			t.Fatalf("%q, %v", b, err)
		}
		nc.Close()
	}
}
