package memcached

import (
	"fmt"
	"strings"
	"testing"
)

// What memcached answers to requests of its ASCII protocol, is answered.
func TestASCII(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	long := strings.Repeat("k", 250)
	for _, x := range [][2]string{
		{"get a\r\n", "END\r\n"},
		{"set a 7 0 3\r\nabc\r\n", "STORED\r\n"},
		{"get a b a\r\n", "VALUE a 7 3\r\nabc\r\nVALUE a 7 3\r\nabc\r\nEND\r\n"},
		{"get a\n", "VALUE a 7 3\r\nabc\r\nEND\r\n"},
		{"add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"},
		{"replace a 8 0 1\r\n1\r\n", "STORED\r\n"},
		{"replace b 8 0 1\r\n1\r\n", "NOT_STORED\r\n"},
		{"append b 0 0 1\r\n1\r\n", "NOT_STORED\r\n"},
		{"append a 5 99 1\r\n2\r\n", "STORED\r\n"},
		{"prepend a 5 99 2\r\n00\r\n", "STORED\r\n"},
		{"get a\r\n", "VALUE a 8 4\r\n0012\r\nEND\r\n"},
		{"incr a 30\r\n", "42\r\n"},
		{"get a\r\n", "VALUE a 8 4\r\n42  \r\nEND\r\n"},
		{"decr a 100\r\n", "0\r\n"},
		{"incr a 18446744073709551615\r\n", "18446744073709551615\r\n"},
		{"incr a 2\r\n", "1\r\n"},
		{"incr a -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"},
		{"incr b 1\r\n", "NOT_FOUND\r\n"},
		{"set n 0 0 1\r\nq\r\n", "STORED\r\n"},
		{"decr n 1\r\n", notNumeric + "\r\n"},
		{"cas b 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"},
		{"cas a 0 0 1 1\r\nx\r\n", "EXISTS\r\n"},
		{"touch a 100\r\n", "TOUCHED\r\n"},
		{"touch b 100\r\n", "NOT_FOUND\r\n"},
		{"gat 0 n b\r\n", "VALUE n 0 1\r\nq\r\nEND\r\n"},
		{"gat x n\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
		{"delete n 0\r\n", "DELETED\r\n"},
		{"delete n\r\n", "NOT_FOUND\r\n"},
		{"delete n 5\r\n", badLine + ".  Usage: delete <key> [noreply]\r\n"},
		{"set n 0 0 1 noreply\r\n5\r\nget n\r\n", "VALUE n 0 1\r\n5\r\nEND\r\n"},
		{"incr n 1 noreply\r\ndelete b noreply\r\ntouch n 0 noreply\r\nverbosity 1 noreply\r\nget n\r\n", "VALUE n 0 1\r\n6\r\nEND\r\n"},
		{"set past 0 -1 1\r\nx\r\n", "STORED\r\n"},
		{"get past\r\n", "END\r\n"},
		{"set n 0 1000 1\r\nx\r\ntouch n -1\r\nget n\r\n", "STORED\r\nTOUCHED\r\nEND\r\n"},
		{"set " + long + " 0 0 0\r\n\r\n", "STORED\r\n"},
		{"get " + long + "\r\n", "VALUE " + long + " 0 0\r\n\r\nEND\r\n"},
		{"get a " + long + "k\r\n", badLine + "\r\n"},
		{"set a 0 0 2\r\nlonger\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
		{"set a x 0 2\r\n", badLine + "\r\n"},
		{"set a -1 0 2\r\n", badLine + "\r\n"},
		{"set a 0 0 -2\r\n", badLine + "\r\n"},
		{"set a 0 0\r\nget\r\nset a 0 0 1 noreply x\r\n\r\n a\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\nERROR\r\n"},
		{"set a 0 0 1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n", "SERVER_ERROR object too large for cache\r\n"},
		{"get a\r\n", "END\r\n"}, // what was to be replaced is not there any more
		{"verbosity 1\r\n", "OK\r\n"},
		{"verbosity\r\n", "ERROR\r\n"},
		{"version\r\n", "VERSION 1.6.18\r\n"},
		{"flush_all\r\n", "OK\r\n"},
		{"get n " + long + "\r\n", "END\r\n"},
		{"set n 0 0 1\r\nx\r\nget n\r\n", "STORED\r\nVALUE n 0 1\r\nx\r\nEND\r\n"},
		{"flush_all x\r\n", "CLIENT_ERROR invalid exptime argument\r\n"},
		{"stats detail\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"},
		{"stats nothing\r\n", "ERROR\r\n"},
	} {
		c.want(x[0], x[1])
	}
	c.send("quit\r\n")
	if !c.ended() {
		t.Error("quit does not close the connection")
	}
}

// The largest value that memcached takes with 1 MiB of item is taken, and one byte more is not.
func TestLargestItem(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	most := 1<<20 - itemOverhead - 1
	value := strings.Repeat("v", most)
	c.want(fmt.Sprintf("set k 0 0 %d\r\n%s\r\n", most, value), "STORED\r\n")
	c.want("get k\r\n", fmt.Sprintf("VALUE k 0 %d\r\n%s\r\nEND\r\n", most, value))
	c.want("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n")
	c.want(fmt.Sprintf("set k 0 0 %d\r\n%sv\r\n", most+1, value), "SERVER_ERROR object too large for cache\r\n")
}

// The unique of a key grows with each of its changes, on whichever server, and when it was deleted in between. A get, a touch and a request that
// changes nothing leave it.
func TestUniqueGrows(t *testing.T) {
	cluster := openCluster(t)
	_, one := startServer(t, cluster, Options{})
	_, two := startServer(t, cluster, Options{})
	clients := []*client{dial(t, one), dial(t, two)}
	unique := func(c *client) (n uint64) {
		t.Helper()
		line := c.line("gets k\r\n")
		if _, err := fmt.Sscanf(line, "VALUE k 0 1 %d\r\n", &n); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		c.want("", "1\r\nEND\r\n")
		return n
	}
	var last uint64
	for i, request := range []string{"set k 0 0 1\r\n1\r\n", "set k 0 0 1\r\n1\r\n", "delete k\r\nset k 0 0 1\r\n1\r\n", "replace k 0 0 1\r\n1\r\n", "incr k 0\r\n",
		"flush_all\r\nset k 0 0 1\r\n1\r\n", "append k 0 0 0\r\n\r\n", "ms k 1\r\n1\r\n", "md k I\r\n", "ma k D0\r\n", "delete k\r\nadd k 0 0 1\r\n1\r\n"} {
		c := clients[i%2]
		c.send(request)
		c.send("mn\r\n")
		for {
			line, err := c.r.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == "MN\r\n" {
				break
			}
		}
		now := unique(c)
		if now <= last {
			t.Errorf("%q: unique %d after %d", request, now, last)
		}
		for _, c := range clients {
			c.send("touch k 0 noreply\r\nadd k 0 0 1 noreply\r\n2\r\n")
			if again := unique(c); again != now {
				t.Errorf("unique %d, then %d of the same item", now, again)
			}
		}
		last = now
	}
}
