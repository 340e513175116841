// Package memcached is an objstore.Cache over memcached's text protocol, to
// compare the object store with it under the same replayer:
//
//	declock replay --target memcached://HOST:PORT
//
// A [Client] is one connection, TCP or unix socket, without pipelining: an operation is one round trip. Get is
// memcached's gets. An operation whose answer did not come is [ErrUnknown] and is never sent again; the next
// operation connects anew. Keys with blanks or control bytes are refused with [ErrKey], since the protocol cannot carry them.
//
// memcached expires by its own clock, so a Client is no objstore.Clocked. TTLs over 30 days are sent as the Unix time that they mean.
// A value must fit memcached's item size (1 MiB with key and header, unless started with -I).
//
// Source: doc/protocol.txt of memcached 1.6.
package memcached
