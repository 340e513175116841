package memcached

import (
	"encoding/binary"
	"net"
	"testing"

	"github.com/declock/declock"
)

// Whatever a client sends, in any protocol, the server ends with it, and its answer is not out of proportion.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{"get a b\r\n", "set a 1 2 3\r\nabc\r\n", "cas a 0 0 1 2 noreply\r\nx\r\n", "incr a 1\r\n", "gat 1 a\r\n", "delete a 0 noreply\r\n",
		"mg a v t c k O1 N5 R6 T7 h l s f q\r\n", "ms a 2 C5 I ME b\r\nab\r\n", "md a I T5\r\n", "ma a N0 J5 D3 MI\r\n", "me a b\r\n", "stats settings\r\n",
		"touch a 5\r\nverbosity 1\r\nversion\r\n", "stats detail on\r\nstats detail dump\r\n", "lru_crawler metadump all\r\n", "append a 0 0 1\r\nx\r\n"} {
		f.Add([]byte(s))
	}
	for _, op := range []opcode{opGet, opSet, opIncrement, opTouch, opStat, opAppendQ} {
		b := append([]byte{binRequest, byte(op), 0, 1, 8, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, 12)...)
		f.Add(append(b, make([]byte, 24)...))
	}
	cluster, err := declock.Open(f.Context(), "shm:", declock.WithMemory(32<<20))
	if err != nil {
		f.Fatal(err)
	}
	defer cluster.Close()
	s, err := New(Options{})
	if err == nil {
		err = s.Attach(cluster, declock.StoreConfig{Objects: 100})
	}
	if err != nil {
		f.Fatal(err)
	}
	defer s.Detach()
	at := new(net.UDPAddr)
	f.Fuzz(func(t *testing.T, requests []byte) {
		if n := len(s.servePacket(requests, at, at)); n > 1<<20*(1+len(requests)) {
			t.Errorf("an answer of %d B to %d B", n, len(requests))
		}
	})
}

// Numbers are those that strtoull reads.
func FuzzNumbers(f *testing.F) {
	for _, s := range []string{"0", "-1", "+7", "18446744073709551615", "18446744073709551616", " 5", "5 x", "5x", "", "-", "-18446744073709551615"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, ok := parseUint64(b)
		w, ok32 := parseUint32(b)
		if ok != ok32 || w != uint32(v) {
			t.Errorf("%q: %d %v as 64 bits, %d %v as 32", b, v, ok, w, ok32)
		}
		if s, signed := parseInt64(b); signed && ok && s >= 0 && uint64(s) != v {
			t.Errorf("%q: %d, signed %d", b, v, s)
		}
	})
}
