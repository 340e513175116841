package tcp

import (
	"crypto/x509"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/internal/peer"
)

// MayServe returns why a certificate is not for memory node id; nil: it is.
func MayServe(c *x509.Certificate, id fabric.MemID) error { return peer.MayServe(c, id) }

// MayCompute returns why a certificate is not for compute nodes; nil: it is.
func MayCompute(c *x509.Certificate) error { return peer.MayCompute(c) }
