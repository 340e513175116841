// Package lint holds the house rules as tests: which package may import
// which, what protocol code must not use, and how long files and functions
// may be. It has no code of its own.
package lint
