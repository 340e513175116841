// Package locktest is the conformance suite of package lock: what is promised
// there, as tests that every mechanism passes on every fabric.
//
// A mechanism hooks itself up with a [Mechanism], a cluster with a
// fabrictest.Harness ([Sim] is one):
//
//	func TestLocks(t *testing.T) { locktest.Run(t, locktest.Sim(1), mechanism) }
//
// Like fabrictest, the suite starts no goroutines: in the simulator clients
// are coroutines. Clients of a test meet by words in remote memory.
package locktest
