package secure

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrFiles: files that are missing, cannot be read, or do not hold what they should.
var ErrFiles = errors.New("secure: bad certificate or secret file")

// Files are what mutual TLS needs: the certificates of who may sign peers, the own
// certificate and its key, all PEM.
type Files struct{ CA, Cert, Key string }

// Given tells whether any of the files is named.
func (f Files) Given() bool { return f != Files{} }

// Config returns a configuration for both ends of connections: each side shows its
// certificate, and demands one that CA has signed. Certificate and key are read
// again when their files change, so that they can be renewed under a running node; CA is not.
func (f Files) Config() (*tls.Config, error) {
	if f.CA == "" || f.Cert == "" || f.Key == "" {
		return nil, fmt.Errorf("%w: mutual TLS needs all of CA, certificate and key; got CA %q, certificate %q, key %q", ErrFiles, f.CA, f.Cert, f.Key)
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("%w: CA: %w", ErrFiles, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: CA: no certificate in %s", ErrFiles, f.CA)
	}
	k := &keeper{files: f}
	if _, err := k.get(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return k.get() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return k.get() },
	}, nil
}

// A keeper has the certificate as its files had it last.
type keeper struct {
	files Files

	mu       sync.Mutex
	cert     *tls.Certificate
	modified [2]time.Time // of certificate and key
}

// get returns the certificate. While the files are being replaced (they are missing or do not belong together)
// it is the one before.
func (k *keeper) get() (*tls.Certificate, error) {
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
