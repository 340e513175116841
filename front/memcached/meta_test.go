package memcached

import (
	"fmt"
	"strings"
	"testing"
)

// Meta commands answer as memcached's do.
func TestMeta(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for _, x := range [][2]string{
		{"mn\r\n", "MN\r\n"},
		{"mx a\r\nmg\r\n", "ERROR\r\nERROR\r\n"},
		{"mg a v\r\nmg a v Oab k\r\nmg a v q\r\nmn\r\n", "EN\r\nEN Oab ka\r\nMN\r\n"},
		{"ms a 3 F7 T100 Ox k\r\nabc\r\n", "HD Ox ka\r\n"},
		{"mg a s v f t k O9 h l\r\n", "VA 3 s3 f7 t100 ka O9 h0 l0\r\nabc\r\n"},
		{"mg a h\r\n", "HD h1\r\n"},
		{"mg a\r\nmg a q\r\n", "HD\r\nHD\r\n"},
		{"ms a 3 ME\r\nabc\r\nms b 3 MR\r\nabc\r\nms b 1 MA\r\nx\r\n", "NS\r\nNS\r\nNS\r\n"},
		{"ms a 1 MA\r\nd\r\nms a 1 MP q\r\n_\r\nmg a v\r\n", "HD\r\nVA 5\r\n_abcd\r\n"},
		{"ms a 1 MZ\r\nd\r\nms a 1 MZZ\r\nd\r\n", string(errModeSet) + "\r\n" + string(errMode) + "\r\n"},
		{"ms a 1 C5\r\nd\r\nms b 1 C5 c\r\nd\r\n", "EX\r\nNF c0\r\n"},
		{"ms a 2\r\nabc\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"},
		{"ms a\r\nms a x\r\nms a -1\r\n", badLine + "\r\n" + badLine + "\r\n" + badLine + "\r\n"},
		{"mg a v v\r\nmg a !\r\nmg a Tx\r\n", string(errTwice) + "\r\n" + string(errFlag) + "\r\n" + string(errToken) + "\r\n"},
		{"md a v v\r\nma a !\r\n", string(errAnyFlag) + "\r\n" + string(errAnyFlag) + "\r\n"},
		{"mg a O" + strings.Repeat("x", 40) + "\r\n", string(errOpaque) + "\r\n"},
		{"md a C1\r\nmd b\r\nmd a q\r\nmd a q\r\n", "EX\r\nNF\r\nNF\r\n"},
		{"ma n\r\nma n N0 J5 v\r\nma n D3 v k\r\nma n MD D100 v t\r\nma n T50 t\r\n", "NF\r\nVA 1\r\n5\r\nVA 1 kn\r\n8\r\nVA 1 t-1\r\n0\r\nHD t50\r\n"},
		{"ma n q\r\nma n MX\r\nma n C1\r\nmg n v t\r\n", string(errModeMath) + "\r\nEX\r\nVA 1 t50\r\n2\r\n"},
		{"ms Zm9v 2 b\r\nhi\r\nget foo\r\nmg Zm9v b k v\r\nmg !!! b\r\n", "HD\r\nVALUE foo 0 2\r\nhi\r\nEND\r\nVA 2 kZm9v b\r\nhi\r\n" + string(errKey) + "\r\n"},
	} {
		c.want(x[0], x[1])
	}
	if line := c.line("me foo\r\n"); !strings.HasPrefix(line, "ME foo exp=-1 la=0 cas=") || !strings.HasSuffix(line, " fetch=yes cls=1 size=64\r\n") {
		t.Errorf("me: %q", line)
	}
	c.want("me none\r\n", "EN\r\n")
}

// Of the clients that miss, find an item about to expire, or find a stale one, one is told to store it anew.
func TestOneClientWins(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	for _, x := range [][2]string{
		{"mg a v N30 t\r\nmg a v N30\r\n", "VA 0 t30 W\r\n\r\nVA 0 Z\r\n\r\n"},
		{"ms a 1 T100\r\n1\r\nmg a R50\r\nmg a R200\r\nmg a R200\r\n", "HD\r\nHD\r\nHD W\r\nHD Z\r\n"},
		{"ms a 1 T100\r\n1\r\nmd a I T30\r\nmg a t v\r\nmg a v\r\n", "HD\r\nHD\r\nVA 1 t30 X W\r\n1\r\nVA 1 Z X\r\n1\r\n"},
		{"ms a 1\r\n2\r\nmg a v\r\n", "HD\r\nVA 1\r\n2\r\n"},
		{"mg a T10 t\r\nmg a t\r\n", "HD t10\r\nHD t10\r\n"},
	} {
		c.want(x[0], x[1])
	}
	// A client whose unique is older than that of a stale item may store a value, which is stale too.
	var unique uint64
	if _, err := fmt.Sscanf(c.line("mg a c\r\n"), "HD c%d\r\n", &unique); err != nil {
		t.Fatal(err)
	}
	c.want("md a I\r\n", "HD\r\n")
	c.want(fmt.Sprintf("ms a 1 C%d I\r\n3\r\nmg a v\r\n", unique), "HD\r\nVA 1 X W\r\n3\r\n")
	c.want(fmt.Sprintf("ms a 1 C%d\r\n4\r\n", unique), "EX\r\n")
}
