package peer

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/declock/declock/internal/secure/securetest"
)

// A certificate with numbers of memory nodes, however they are written, is for those only.
func TestNumberedCertificates(t *testing.T) {
	a := securetest.New(t)
	for _, x := range []struct {
		names []string
		three bool // whether it may be memory node 3
	}{
		{[]string{NameMN}, true},
		{[]string{NameMN, "mn3.declock"}, true},
		{[]string{NameMN, "MN3.declock", "mn4.declock"}, true},
		{[]string{NameMN, "mn4.declock"}, false},
		{[]string{NameMN, "MN4.declock"}, false},
		{[]string{NameMN, "mn70000.declock"}, false},
		{[]string{NameMN, "mnx.declock"}, true},
		{[]string{NameCN, "mn3.declock"}, false},
	} {
		c, err := OwnCertificate(a.Config("host", x.names...))
		if err != nil {
			t.Fatal(err)
		}
		if err := MayServe(c, 3); (err == nil) != x.three {
			t.Errorf("%v: %v", x.names, err)
		}
	}
}

func TestOnlyMutualTLSIsTaken(t *testing.T) {
	pool := x509.NewCertPool()
	good := tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, RootCAs: pool}
	if err := CheckTLS(&good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*tls.Config){
		"one side only":   func(c *tls.Config) { c.ClientAuth = tls.VerifyClientCertIfGiven },
		"all CAs":         func(c *tls.Config) { c.RootCAs = nil },
		"no verification": func(c *tls.Config) { c.InsecureSkipVerify = true },
		"another configuration for some": func(c *tls.Config) {
			c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		},
	} {
		c := good.Clone()
		change(c)
		if CheckTLS(c) == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
