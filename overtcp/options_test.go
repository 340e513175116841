package overtcp

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric/tcp"
)

// Without TLS, a node of a cluster whose etcd is on another host must say where it listens: on its own loopback no other finds it.
func TestInsecureOnSeveralHostsSaysWhereToListen(t *testing.T) {
	for _, c := range []struct {
		rest string
		ok   bool
	}{
		{"//127.0.0.1:2379/x?insecure=true", true},
		{"//localhost:2379,[::1]:2379/x?insecure=true", true},
		{"///tmp/etcd.sock/x?insecure=true", true},
		{"//10.0.0.1:2379/x?insecure=true", false},
		{"//127.0.0.1:2379,etcd2.example.com:2379/x?insecure=true", false},
		{"//10.0.0.1:2379/x?insecure=true&listen=10.0.0.2:0", true},
		{"//10.0.0.1:2379/x?insecure=true&listen=127.0.0.1:0", true},
		{"//10.0.0.1:2379/x?insecure=true&advertise=10.0.0.2:7490", true},
	} {
		o, err := Parse(c.rest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.base(); err == nil != c.ok || !c.ok && !errors.Is(err, tcp.ErrOptions) {
			t.Errorf("%s: %v", c.rest, err)
		}
	}
}
