// Package locks is the registry of the lock mechanisms that are compared:
// DecLock under each of its policies, and the other locks of the literature.
//
// A [Mechanism] is found by the name that commands and results use. For a
// cluster it makes a [System], which every compute node joins ([System.Join]); the
// [Node] makes the Lockers of its clients. Some mechanisms have an agent on each node,
// which runs beside the clients:
//
//	m, err := locks.Lookup("declock-tf")
//	sys, err := m.New(locks.Config{CNs: 8, Clients: 32, Counter: word})
//	// for each compute node, one after the other:
//	node, err := sys.Join(fabricNode)
//	if node.Run != nil {
//		go node.Run(report) // in the simulator: sim.Cluster.GoAgent
//	}
//	locker := node.Locker(port) // for each client
//
// Nothing here starts goroutines or knows a backend: it works in virtual and in real time.
package locks
