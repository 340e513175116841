// Package coordtest is the conformance suite of coordinators: what fabric/member
// promises, as tests. Each implementation runs it with a [Harness].
package coordtest
