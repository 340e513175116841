package main

import (
	"crypto/tls"
	"fmt"

	"github.com/declock/declock/internal/secure"
)

// withTLS reads certificates, if TLS is asked for.
func (o *options) withTLS() (err error) {
	if !o.tls {
		return nil
	}
	files := secure.Files{Cert: o.o["ssl_chain_cert"], Key: o.o["ssl_key"]}
	auth := map[string]tls.ClientAuthType{"": tls.NoClientCert, "0": tls.NoClientCert, "1": tls.VerifyClientCertIfGiven, "2": tls.RequireAndVerifyClientCert,
		"3": tls.VerifyClientCertIfGiven}[o.o["ssl_verify_mode"]]
	if auth != tls.NoClientCert {
		files.CA = o.o["ssl_ca_cert"]
	}
	if o.server.TLS, err = files.Server(); err != nil {
		return err
	}
	o.server.TLS.ClientAuth = auth
	switch v := o.o["ssl_min_version"]; v {
	case "", "0", "1", "2":
	case "3":
		o.server.TLS.MinVersion = tls.VersionTLS13
	default:
		return fmt.Errorf("invalid ssl_min_version %q", v)
	}
	return nil
}
