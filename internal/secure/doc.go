// Package secure reads the files that prove who a node is: certificates for mutual TLS, and shared secrets.
package secure
