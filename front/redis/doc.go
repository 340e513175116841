// Package redis serves an object store of a cluster to clients of Redis: strings, with Redis's commands, options and errors (those of version 7.0, and the
// compare options of 8.4), by RESP2 and RESP3. Several servers, on as many compute nodes, serve one store, and every operation on a key is linearizable, whichever of
// them a client asks, FLUSHALL included; also with servers of package memcached on the same store.
//
//	client -- parser.go -- conn.go -- commands.go -- keys.go, strings.go, .. -- item.Items
//	           a request     one       which one       what it means             the store, with the library's sessions
//	                      connection
//
// A connection has a goroutine, and memory only while a request is under way: what has arrived of it, and answers up to 64 KiB and one value more. It has a session of
// the cluster only during an operation on the store. Short requests are read and answered directly (front.Direct), all others by package net. So a slow or hostile client costs its buffers, which are bounded.
//
// There are no scripts. Those of locks that clients in use send (lock.go) are recognised by a hash of their text, and executed as one operation
// on the key under its lock in the store.
package redis
