// Package fabrictest is the conformance suite of package fabric: what is
// promised there, as tests that every backend passes. Each test bears the sentence
// of the contract that it checks.
//
// A backend hooks itself up with a [Harness], a few lines in one of its tests:
//
//	func TestConformance(t *testing.T) { fabrictest.Run(t, harness{}) }
//
// The suite never starts a goroutine, for in the simulator clients are
// coroutines: it opens Ports and hands each with a body to [Cluster.Go]. Backends that run in real time
// embed [Goroutines], which does that with a goroutine each.
//
// What not all backends can do (kill a compute node, refuse a key) is in optional
// interfaces of the Cluster: [Killer], [MNKiller], [Restarter], [Revoker]. Their tests skip with the reason
// where they are absent.
//
// Source: DecLock, section 2.1; the contract is that of package fabric.
package fabrictest
