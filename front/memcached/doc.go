// Package memcached serves an object store of a cluster to clients of memcached, with memcached's protocols, texts and limits (those of
// version 1.6.18). Several servers, on as many compute nodes, serve one store, and every operation on a key is linearizable: all
// clients see one cache, whichever server they ask, flush_all included.
//
//	client -- ascii.go, meta.go -- conn.go -- ops.go -- objstore.Client
//	           what a request says             one       what it     one of the cluster's, for each operation
//	                                        connection   means
//
// # Connections and sessions
//
// Each connection has a goroutine. Its operations take a session from the cluster's pool (declock.Store.Use), and give it back before the connection waits for the
// network. So a slow client costs its buffers, which are bounded, and no session. The keys of a get of many are got at a time (many.go).
//
// # Items
//
// An item is an object of the store, with the client's flags as the object's. 16 bytes stand before its value (package item): the unique that
// clients see (CAS), which flush_all it has outlived, and the state of meta commands. The unique is the fencing token of the lock under
// which the item was changed: it grows with every change of a key, also beyond its deletion.
//
// # flush_all
//
// Every item has the number of the flush after which it was stored, and is there only while that is the number of the last flush. The
// number is in a store of its own. Servers look at it every few milliseconds and not for each operation; package item says why that is linearizable.
package memcached
