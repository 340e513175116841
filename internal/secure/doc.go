// Package secure reads the files by which nodes authenticate: certificates for mutual TLS, and shared secrets.
package secure
