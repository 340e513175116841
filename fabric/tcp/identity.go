package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// Names in certificates. A certificate with the DNS name of a role may play it; one with
// names of numbered memory nodes may be only those.
const (
	nameMN   = "mn.declock"
	nameCN   = "cn.declock"
	mnPrefix = "mn"
	mnSuffix = ".declock"
)

func nameOf(id fabric.MemID) string { return fmt.Sprintf("%s%d%s", mnPrefix, uint16(id), mnSuffix) }

// mayBe checks that a certificate is for memory node id, among others perhaps.
func mayBe(c *x509.Certificate, id fabric.MemID) error {
	if err := c.VerifyHostname(nameMN); err != nil {
		return fmt.Errorf("%w: the certificate of %q is not for %s", ErrAuth, c.Subject.CommonName, nameMN)
	}
	numbered := false
	for _, n := range c.DNSNames {
		if n == nameOf(id) {
			return nil
		}
		var k uint16
		if _, err := fmt.Sscanf(n, mnPrefix+"%d"+mnSuffix, &k); err == nil {
			numbered = true
		}
	}
	if numbered {
		return fmt.Errorf("%w: the certificate of %q is for %v, not for %v", ErrAuth, c.Subject.CommonName, c.DNSNames, id)
	}
	return nil
}

// mayCompute checks that a certificate is for compute nodes.
func mayCompute(c *x509.Certificate) error {
	if err := c.VerifyHostname(nameCN); err != nil {
		return fmt.Errorf("%w: the certificate of %q is not for %s", ErrAuth, c.Subject.CommonName, nameCN)
	}
	return nil
}

// ownCertificate returns the certificate that others will see.
func ownCertificate(cfg *tls.Config) (*x509.Certificate, error) {
	var c *tls.Certificate
	switch {
	case len(cfg.Certificates) > 0:
		c = &cfg.Certificates[0]
	case cfg.GetCertificate != nil:
		var err error
		if c, err = cfg.GetCertificate(&tls.ClientHelloInfo{}); err != nil || c == nil {
			return nil, fmt.Errorf("%w: no own certificate: %v", ErrOptions, err)
		}
	default:
		return nil, fmt.Errorf("%w: TLS without an own certificate", ErrOptions)
	}
	if c.Leaf != nil {
		return c.Leaf, nil
	}
	if len(c.Certificate) == 0 {
		return nil, fmt.Errorf("%w: an empty certificate", ErrOptions)
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// An address is what a member says about itself to others, through the coordinator, which vouches for
// it: where it is reached, and the common name of its certificate, so that no other
// certificate can speak for it. Behind it may be a note for tools.
//
//	host:port            without TLS
//	host:port#name       with TLS
//	host:port#name;note
type address struct{ hostPort, name, note string }

func (a address) String() string {
	s := a.hostPort
	if a.name != "" {
		s += "#" + a.name
	}
	if a.note != "" {
		s += ";" + a.note
	}
	return s
}

func parseAddress(s string) address {
	s, note, _ := strings.Cut(s, ";")
	hostPort, name, _ := strings.Cut(s, "#")
	return address{hostPort, name, note}
}

// ParseAddress returns what a member's address says to tools: where other nodes reach it, and its Options.Note.
func ParseAddress(s string) (hostPort, note string) {
	a := parseAddress(s)
	return a.hostPort, a.note
}

// speaksFor checks that a certificate is that of the member with an address.
func speaksFor(c *x509.Certificate, a address) error {
	if c.Subject.CommonName != a.name {
		return fmt.Errorf("%w: the certificate of %q speaks for a member that has the one of %q", ErrAuth, c.Subject.CommonName, a.name)
	}
	return nil
}

// ownAddress returns what this node tells others about itself.
func (o *Options) ownAddress(l net.Listener) (a address, err error) {
	if a.hostPort, err = peer.Address(l, o.Advertise); err != nil {
		return a, err
	}
	a.note = o.Note
	if o.TLS == nil {
		return a, nil
	}
	c, err := ownCertificate(o.TLS)
	if err != nil {
		return a, err
	}
	a.name = c.Subject.CommonName
	if a.name == "" || strings.ContainsAny(a.name, "#;") {
		return a, fmt.Errorf("%w: the own certificate has the common name %q: others know this node by it", ErrOptions, a.name)
	}
	return a, nil
}
