package oververbs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/fabric/verbs"
)

// Addresses say what the flags of the commands say.
func TestParse(t *testing.T) {
	o, err := Parse("//10.0.0.1:2379,10.0.0.2:2379/demo?secret-file=/s&device=mlx5_0&port=2&gid=3&queue-pairs=4&dead-after=7s&listen=:1&etcd-ca=/ca&insecure=true")
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Etcd) != 2 || o.Cluster != "demo" || o.SecretFile != "/s" || o.Device != "mlx5_0" || o.Port != 2 || o.GID != "3" || o.QueuePairs != 4 ||
		o.DeadAfter != 7*time.Second || o.Listen != ":1" || o.EtcdTLS.CA != "/ca" || !o.Insecure {
		t.Errorf("%+v", o)
	}
	for rest, says := range map[string]string{
		"demo": "want verbs://", "//10.0.0.1:2379/demo?colour=red": "means nothing", "//10.0.0.1:2379/demo?port=x": "port=x is no number",
		"//10.0.0.1:2379/demo?dead-after=5": "no duration", "//10.0.0.1:2379/demo?insecure=maybe": "means nothing",
	} {
		if _, err := Parse(rest); !errors.Is(err, ErrAddress) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", rest, err)
		}
	}
}

// declock.Open takes addresses of RDMA, and says what is missing.
func TestOpen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	short := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(short, []byte("too short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]error{
		"verbs:demo":                 declock.ErrAddress,
		"verbs:///no/etcd.sock/demo": verbs.ErrOptions, // no secret
		"verbs:///no/etcd.sock/demo?secret-file=/none":    os.ErrNotExist,
		"verbs:///no/etcd.sock/demo?secret-file=" + short: verbs.ErrOptions,
	} {
		c, err := declock.Open(ctx, address)
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
