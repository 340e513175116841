package secure_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/declock/declock/internal/secure"
)

// An authority signs certificates into files.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.key, _ = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, _ = x509.ParseCertificate(der)
	a.write("ca.pem", "CERTIFICATE", der)
	return a
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// node writes the files of a node with a serial number, dated so that a change is seen.
func (a *authority) node(serial int64) secure.Files {
	a.t.Helper()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs, _ := x509.MarshalPKCS8PrivateKey(key)
	a.write("cert.pem", "CERTIFICATE", der)
	a.write("key.pem", "PRIVATE KEY", pkcs)
	f := secure.Files{CA: a.path("ca.pem"), Cert: a.path("cert.pem"), Key: a.path("key.pem")}
	at := time.Unix(1_000_000+serial, 0)
	for _, p := range []string{f.Cert, f.Key} {
		if err := os.Chtimes(p, at, at); err != nil {
			a.t.Fatal(err)
		}
	}
	return f
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// shake returns what both sides say of a handshake, and the server's serial number.
func shake(server, client *tls.Config) (serial int64, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer ln.Close()
	b, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return 0, err
	}
	a, err := ln.Accept()
	if err != nil {
		return 0, err
	}
	defer a.Close()
	defer b.Close()
	s := tls.Server(a, server)
	served := make(chan error, 1)
	go func() {
		err := s.Handshake()
		if err == nil {
			_, err = s.Write([]byte{1})
		}
		a.Close()
		served <- err
	}()
	client = client.Clone()
	client.ServerName = "127.0.0.1"
	c := tls.Client(b, client)
	if err = c.Handshake(); err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	if err == nil {
		serial = c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	b.Close()
	return serial, errors.Join(err, <-served)
}

func TestBothSidesProveThemselves(t *testing.T) {
	a, other := newAuthority(t), newAuthority(t)
	good, err := a.node(7).Config()
	if err != nil {
		t.Fatal(err)
	}
	if serial, err := shake(good, good); err != nil || serial != 7 {
		t.Errorf("serial %d, %v", serial, err)
	}
	bad, err := other.node(8).Config()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shake(good, bad); err == nil {
		t.Error("a client of another authority was let in")
	}
	if _, err := shake(bad, good); err == nil {
		t.Error("a server of another authority was believed")
	}
	if _, err := shake(good, &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("a client without a certificate was let in")
	}
}

// Certificates are renewed by replacing the files; halfway through, the old one stays.
func TestRenewal(t *testing.T) {
	a := newAuthority(t)
	cfg, err := a.node(1).Config()
	if err != nil {
		t.Fatal(err)
	}
	f := a.node(2)
	if serial, err := shake(cfg, cfg); err != nil || serial != 2 {
		t.Errorf("after renewal: serial %d, %v", serial, err)
	}
	if err := os.Remove(f.Key); err != nil {
		t.Fatal(err)
	}
	if serial, err := shake(cfg, cfg); err != nil || serial != 2 {
		t.Errorf("while files are missing: serial %d, %v", serial, err)
	}
}

func TestBadFiles(t *testing.T) {
	a := newAuthority(t)
	good := a.node(1)
	if err := os.WriteFile(a.path("rubbish"), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []secure.Files{
		{}, {CA: good.CA}, {CA: good.CA, Cert: good.Cert},
		{CA: a.path("none"), Cert: good.Cert, Key: good.Key},
		{CA: a.path("rubbish"), Cert: good.Cert, Key: good.Key},
		{CA: good.CA, Cert: a.path("rubbish"), Key: good.Key},
		{CA: good.CA, Cert: good.Cert, Key: good.Cert},
	} {
		if _, err := f.Config(); !errors.Is(err, secure.ErrFiles) {
			t.Errorf("%+v: %v", f, err)
		}
	}
}

func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{{" abc\n", 0o600, "abc"}, {"\n", 0o600, ""}, {"abc", 0o644, ""}} {
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := secure.Secret(path)
		if string(got) != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, secure.ErrFiles) {
			t.Errorf("%q, mode %v: %q, %v", c.text, c.mode, got, err)
		}
	}
}

// A server of any clients asks for a certificate only with a CA.
func TestServerOfAnyClients(t *testing.T) {
	a := newAuthority(t)
	files := a.node(7)
	client := &tls.Config{InsecureSkipVerify: true}
	open, err := secure.Files{Cert: files.Cert, Key: files.Key}.Server()
	if err != nil {
		t.Fatal(err)
	}
	if serial, err := shake(open, client); err != nil || serial != 7 {
		t.Errorf("serial %d, %v", serial, err)
	}
	closed, err := files.Server()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shake(closed, client); err == nil {
		t.Error("a client without a certificate was let in")
	}
	if _, err := (secure.Files{CA: files.CA}).Server(); !errors.Is(err, secure.ErrFiles) {
		t.Errorf("without a certificate: %v", err)
	}
}
