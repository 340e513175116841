package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/declock/declock/fabric"
)

// Names in certificates. A certificate with the DNS name of a role may play it; one with
// names of numbered memory nodes may be only those.
const (
	NameMN   = "mn.declock"
	NameCN   = "cn.declock"
	mnPrefix = "mn"
	mnSuffix = ".declock"
)

func nameOf(id fabric.MemID) string { return fmt.Sprintf("%s%d%s", mnPrefix, uint16(id), mnSuffix) }

// MayServe checks that a certificate is for memory node id, among others perhaps.
func MayServe(c *x509.Certificate, id fabric.MemID) error {
	if err := c.VerifyHostname(NameMN); err != nil {
		return fmt.Errorf("the certificate of %q is not for %s", c.Subject.CommonName, NameMN)
	}
	numbered := false
	for _, n := range c.DNSNames {
		n = strings.ToLower(n)
		if n == nameOf(id) {
			return nil
		}
		number, ok := strings.CutSuffix(strings.TrimPrefix(n, mnPrefix), mnSuffix)
		numbered = numbered || ok && strings.HasPrefix(n, mnPrefix) && number != "" && strings.Trim(number, "0123456789") == ""
	}
	if numbered {
		return fmt.Errorf("the certificate of %q is for %v, not for %v", c.Subject.CommonName, c.DNSNames, id)
	}
	return nil
}

// MayCompute checks that a certificate is for compute nodes.
func MayCompute(c *x509.Certificate) error {
	if err := c.VerifyHostname(NameCN); err != nil {
		return fmt.Errorf("the certificate of %q is not for %s", c.Subject.CommonName, NameCN)
	}
	return nil
}

// CheckTLS checks that a configuration is for mutual TLS, and has authorities of its own: not
// all that this machine trusts.
func CheckTLS(cfg *tls.Config) error {
	switch {
	case cfg.ClientAuth != tls.RequireAndVerifyClientCert:
		return fmt.Errorf("TLS must be mutual: ClientAuth is %v, not RequireAndVerifyClientCert", cfg.ClientAuth)
	case cfg.ClientCAs == nil || cfg.RootCAs == nil:
		return errors.New("TLS without ClientCAs or RootCAs: say whose certificates are accepted")
	case cfg.GetConfigForClient != nil:
		return errors.New("TLS with GetConfigForClient: it could ask for no certificate")
	case cfg.InsecureSkipVerify:
		return errors.New("TLS with InsecureSkipVerify")
	}
	return nil
}

// CertificateRefused reports whether a connection broke because a side does not accept the other's certificate.
func CertificateRefused(err error) bool {
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var op *net.OpError // "remote error": what the peer says is wrong with us
	return errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &op) && op.Op == "remote error"
}

// OwnCertificate returns the certificate that others will see.
func OwnCertificate(cfg *tls.Config) (*x509.Certificate, error) {
	var c *tls.Certificate
	switch {
	case len(cfg.Certificates) > 0:
		c = &cfg.Certificates[0]
	case cfg.GetCertificate != nil:
		var err error
		if c, err = cfg.GetCertificate(&tls.ClientHelloInfo{}); err != nil || c == nil {
			return nil, errors.Join(errors.New("no own certificate"), err)
		}
	default:
		return nil, errors.New("TLS without an own certificate")
	}
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	if len(c.Certificate) == 0 {
		return nil, errors.New("an empty certificate")
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// A Contact is what others know of a member from the coordinator, which vouches for
// it: where it is reached, and the common name of its certificate, so that no other
// certificate can speak for it. Behind it may be a note for tools.
//
//	host:port            without TLS
//	host:port#name       with TLS
//	host:port#name;note
type Contact struct{ HostPort, Name, Note string }

func (c Contact) String() string {
	s := c.HostPort
	if c.Name != "" {
		s += "#" + c.Name
	}
	if c.Note != "" {
		s += ";" + c.Note
	}
	return s
}

// ParseContact reads what String has written.
func ParseContact(s string) Contact {
	s, note, _ := strings.Cut(s, ";")
	hostPort, name, _ := strings.Cut(s, "#")
	return Contact{hostPort, name, note}
}

// NewContact returns the contact of a node that listens at l: see Address. cfg is nil without TLS.
func NewContact(l net.Listener, advertise, note string, cfg *tls.Config) (c Contact, err error) {
	if c.HostPort, err = Address(l, advertise); err != nil {
		return c, err
	}
	c.Note = note
	if cfg == nil {
		return c, nil
	}
	own, err := OwnCertificate(cfg)
	if err != nil {
		return c, err
	}
	c.Name = own.Subject.CommonName
	if c.Name == "" || strings.ContainsAny(c.Name, "#;") {
		return c, fmt.Errorf("the own certificate has the common name %q: others know this node by it", c.Name)
	}
	return c, nil
}

// Owns checks that a certificate is that of the member.
func (c Contact) Owns(cert *x509.Certificate) error {
	if cert.Subject.CommonName != c.Name {
		return fmt.Errorf("the certificate of %q speaks for a member that has the one of %q", cert.Subject.CommonName, c.Name)
	}
	return nil
}

// Address returns the address, host:port, at which others reach a node that listens at l. advertise is a configured one: host:port, a
// host, or nothing.
func Address(l net.Listener, advertise string) (string, error) {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", fmt.Errorf("peer: own address: %w", err)
	}
	switch h, p, err := net.SplitHostPort(advertise); {
	case advertise == "":
		if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
			host = machineAddress()
		}
	case err == nil:
		host, port = h, p
	default:
		host = strings.Trim(advertise, "[]")
	}
	return net.JoinHostPort(host, port), nil
}

// machineAddress returns an address by which this machine is likely to be reached.
func machineAddress() string {
	addrs, _ := net.InterfaceAddrs()
	best := "127.0.0.1"
	for _, a := range addrs {
		ip, ok := a.(*net.IPNet)
		if !ok || !ip.IP.IsGlobalUnicast() {
			continue
		}
		if ip.IP.To4() != nil {
			return ip.IP.String()
		}
		if best == "127.0.0.1" {
			best = ip.IP.String()
		}
	}
	return best
}
