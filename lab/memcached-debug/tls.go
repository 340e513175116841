package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
)

// withTLS reads certificates, if TLS is asked for.
func (o *options) withTLS() error {
	if !o.tls {
		return nil
	}
	cert, err := tls.LoadX509KeyPair(o.o["ssl_chain_cert"], o.o["ssl_key"])
	if err != nil {
		return err
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	if file := o.o["ssl_ca_cert"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cfg.ClientCAs = x509.NewCertPool()
		if !cfg.ClientCAs.AppendCertsFromPEM(text) {
			return errors.New("no certificate in " + file)
		}
	}
	o.server.TLS = cfg
	return nil
}
