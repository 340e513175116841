package secure

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrFiles: files that are missing, cannot be read, or do not hold what they should.
var ErrFiles = errors.New("secure: bad certificate or secret file")

// Files are what mutual TLS needs: the authorities that sign the certificates of peers, the own
// certificate and its key, all PEM.
type Files struct{ CA, Cert, Key string }

// Given reports whether any of the files is named.
func (f Files) Given() bool { return f != Files{} }

// Config returns a configuration for both ends of connections: each side shows its
// certificate, and demands one that CA has signed. Certificate and key are read
// again when their files change, so that they can be renewed under a running node; CA is not.
func (f Files) Config() (*tls.Config, error) {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return nil, fmt.Errorf("%w: mutual TLS needs all of CA, certificate and key; got CA %q, certificate %q, key %q", ErrFiles, f.CA, f.Cert, f.Key)
	}
	cfg, err := f.Server()
	if err != nil {
		return nil, err
	}
	cfg.MinVersion = tls.VersionTLS13
	return cfg, nil
}

// Server returns a configuration for a server of any clients. They need a certificate only if there is a CA, which must have signed it. The server's is the
// renewed one, as Config has it.
func (f Files) Server() (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, fmt.Errorf("%w: a server needs a certificate and its key; got certificate %q, key %q", ErrFiles, f.Cert, f.Key)
	}
	cfg, err := f.Client()
	if err != nil {
		return nil, err
	}
	if f.CA != "" {
		cfg.ClientCAs, cfg.ClientAuth = cfg.RootCAs, tls.RequireAndVerifyClientCert
	}
	own := cfg.GetClientCertificate
	cfg.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(nil) }
	return cfg, nil
}

// Client returns a configuration for clients of a server that CA, or without that one of the system's, has signed the certificate of. They
// show their own, if there is one: as Config has it, the renewed one.
func (f Files) Client() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true} // messages are whole: a record for each packet of a new connection would be a write for each
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%w: CA: %w", ErrFiles, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: CA: no certificate in %s", ErrFiles, f.CA)
		}
	}
	if (f.Cert == "") != (f.Key == "") {
		return nil, fmt.Errorf("%w: a certificate and its key go together; got certificate %q, key %q", ErrFiles, f.Cert, f.Key)
	}
	if f.Cert != "" {
		k := &pair{files: f}
		if _, err := k.get(); err != nil {
			return nil, err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.get() }
	}
	return cfg, nil
}

// A pair is a certificate and its key, as their files had them last.
type pair struct {
	files Files

	mu       sync.Mutex
	cert     *tls.Certificate
	modified [2]time.Time // of certificate and key
}

// get returns the certificate. While the files are being replaced (they are missing or do not belong together)
// it is the one before.
func (k *pair) get() (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var now [2]time.Time
	for i, path := range []string{k.files.Cert, k.files.Key} {
		if st, err := os.Stat(path); err == nil {
			now[i] = st.ModTime()
		}
	}
	if k.cert != nil && now == k.modified {
		return k.cert, nil
	}
	c, err := tls.LoadX509KeyPair(k.files.Cert, k.files.Key)
	switch {
	case err == nil:
		k.cert, k.modified = &c, now
	case k.cert == nil:
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	return k.cert, nil
}

// Secret reads a shared secret: what is in the file, without white space at its ends. A file that others can read is
// refused.
func Secret(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: secret: %w", ErrFiles, err)
	}
	if st.Mode().IsRegular() && st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%w: secret: %s can be read by others (mode %v): chmod 600 %s", ErrFiles, path, st.Mode().Perm(), path)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: secret: %w", ErrFiles, err)
	}
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return nil, fmt.Errorf("%w: secret: %s is empty", ErrFiles, path)
	}
	return b, nil
}

// certificates reads the certificates in a file.
func certificates(path string) (list []*x509.Certificate, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFiles, err)
	}
	for {
		var b *pem.Block
		if b, text = pem.Decode(text); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrFiles, path, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: no certificate in %s", ErrFiles, path)
	}
	return list, nil
}

// Expiry returns when the certificates in a file expire: the first of them.
func Expiry(path string) (time.Time, error) {
	list, err := certificates(path)
	if err != nil {
		return time.Time{}, err
	}
	first := list[0].NotAfter
	for _, c := range list {
		if c.NotAfter.Before(first) {
			first = c.NotAfter
		}
	}
	return first, nil
}

// Check checks that the certificate is valid at a time, belongs to its key, and that CA has signed it; and what may, if it is not nil, what
// the certificate is for. CA or the certificate may be missing, as for https to an etcd that asks for none.
func (f Files) Check(now time.Time, may func(*x509.Certificate) error) error {
	roots := x509.NewCertPool()
	if f.CA != "" {
		list, err := certificates(f.CA)
		if err != nil {
			return err
		}
		for _, c := range list {
			if now.After(c.NotAfter) && len(list) == 1 {
				return fmt.Errorf("%w: the CA in %s has expired at %v", ErrFiles, f.CA, c.NotAfter)
			}
			roots.AddCert(c)
		}
	}
	if f.Cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrFiles, err)
	}
	chain, err := certificates(f.Cert)
	if err != nil {
		return err
	}
	own, between := chain[0], x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	switch {
	case now.Before(own.NotBefore):
		return fmt.Errorf("%w: the certificate in %s is valid from %v on only: is the clock of this machine right?", ErrFiles, f.Cert, own.NotBefore)
	case now.After(own.NotAfter):
		return fmt.Errorf("%w: the certificate in %s has expired at %v", ErrFiles, f.Cert, own.NotAfter)
	}
	if f.CA != "" {
		o := x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
		if _, err := own.Verify(o); err != nil {
			return fmt.Errorf("%w: the certificate in %s is not accepted by the CA in %s: %w", ErrFiles, f.Cert, f.CA, err)
		}
	}
	if may != nil {
		if err := may(own); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrFiles, f.Cert, err)
		}
	}
	return nil
}
