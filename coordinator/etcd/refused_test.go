//go:build !shmonly

package etcd_test

import (
	"errors"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/internal/secure/securetest"
)

// etcd does not accept the certificate of a node, or the node not that of etcd: joining says so, and does not look like a network that is
// down.
func TestRefusedCertificate(t *testing.T) {
	ours, theirs := securetest.New(t), securetest.New(t)
	good := ours.Files("etcd", "localhost")
	s, err := embedded.Start(bounded(t), embedded.Options{Dir: directory(t), Listen: "https://127.0.0.1:0", CA: good.CA, Cert: good.Cert, Key: good.Key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	expired := ours.Valid("expired", time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour))
	foreign := theirs.Files("node")
	for what, f := range map[string]secure.Files{
		"no certificate":                     {CA: good.CA},
		"a certificate of another authority": {CA: good.CA, Cert: foreign.Cert, Key: foreign.Key},
		"one that has expired":               {CA: good.CA, Cert: expired.Cert, Key: expired.Key},
		"another authority":                  {CA: foreign.CA, Cert: good.Cert, Key: good.Key},
	} {
		t.Run(what, func(t *testing.T) {
			cfg, err := f.Client()
			if err != nil {
				t.Fatal(err)
			}
			o := options(s.Endpoint(), "test")
			o.TLS, o.Timeout = cfg, 2*time.Second
			began := time.Now()
			_, err = connect(t, o).JoinCN(bounded(t), "cn.example:1", acknowledge)
			t.Log(time.Since(began), err)
			if !errors.Is(err, member.ErrRefused) {
				t.Errorf("%v", err)
			}
		})
	}
}
