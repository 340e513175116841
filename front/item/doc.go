// Package item has what the servers of other systems' protocols keep in an object store, the same for all of them: so servers of different protocols may serve
// one store, and every operation on a key is linearizable, whichever of them a client asks.
//
// An item is an object of the store. 16 bytes stand before its value (head.go): which flush it has outlived, and a number that grows with each change of the key.
//
// Every item has the number of the flush after which it was stored, and is there only while that is the number of the last flush: so a flush is one step
// for all items, of all servers (flush.go).
package item
