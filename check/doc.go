// Package check looks for bugs.
package check
