// Package securetest makes certificates for tests: it is never part of a program.
package securetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock/internal/secure"
)

// An Authority signs certificates, into files.
type Authority struct {
	t     testing.TB
	dir   string
	key   *ecdsa.PrivateKey
	cert  *x509.Certificate
	files int // so far
}

// New returns an authority of its own.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: now.Add(-48 * time.Hour), NotAfter: now.Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign}
	a.key, a.cert = key, template
	der := a.sign(template, &key.PublicKey)
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *Authority) sign(template *x509.Certificate, public *ecdsa.PublicKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Files returns the files of a node with a common name, which may be also what the names say, and is at 127.0.0.1.
func (a *Authority) Files(common string, names ...string) secure.Files {
	a.t.Helper()
	return a.Valid(common, time.Now().Add(-time.Hour), time.Now().Add(time.Hour), names...)
}

// Valid returns files of which the certificate is valid for some time.
func (a *Authority) Valid(common string, from, to time.Time, names ...string) secure.Files {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: common}, DNSNames: names,
		NotBefore: from, NotAfter: to, KeyUsage: x509.KeyUsageDigitalSignature, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.files++
	name := fmt.Sprintf("%s-%d", common, a.files)
	return secure.Files{CA: filepath.Join(a.dir, "ca.pem"), Cert: a.write(name+".pem", "CERTIFICATE", a.sign(template, &key.PublicKey)),
		Key: a.write(name+".key", "PRIVATE KEY", pkcs)}
}

// Config returns mutual TLS with such a certificate, which does not follow its files.
func (a *Authority) Config(common string, names ...string) *tls.Config {
	a.t.Helper()
	f := a.Files(common, names...)
	cfg, err := f.Config()
	if err != nil {
		a.t.Fatal(err)
	}
	own, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		a.t.Fatal(err)
	}
	cfg.Certificates, cfg.GetCertificate, cfg.GetClientCertificate = []tls.Certificate{own}, nil, nil
	return cfg
}
