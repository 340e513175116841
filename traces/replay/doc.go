// Package replay drives caches with traces: each [Client] does the records of
// one stream on its own objstore.Cache, one after the other, and measures every operation.
//
// A Client is a plain loop without goroutines, channels or allocations. [Run] is its wiring: a goroutine
// per client, and a [Result] over all. Results travel between processes as JSON and are added by [Result.Merge].
//
// # Streams
//
// A generated trace needs no dealing: each client takes its own substream (traces.Generator.Stream). A
// file is read once and dealt by a [Dealer]: by key, by client id or in turn. Only [ByKey] keeps
// the order of the records of a key; with the others, and with generated substreams, clients share keys.
//
// # What a hit ratio means
//
// A trace lists what was asked, not what was in the cache before it began, and its sets are what its own misses caused. So
// Load.Warm stores the keys before anything is measured, and Options.FillOnMiss makes a get that misses
// store the key, as users of a look-aside cache do. Hit ratios of a generated cluster14 (22 % deletes; 10,000 keys, 20
// requests a key, no eviction), which production ran at 0.88:
//
//	                 FillOnMiss off   on
//	empty at first        0.35       0.76
//	Warm                  0.41       0.79
//
// For what users of a cache see, take both. For the operations of a trace and no others, neither: that
// is the default. FillOnMiss leaves alone a get that missed in the trace itself (value size 0).
//
// # Time
//
// With Speed 0 records follow one another; TTLs then still mean trace time if the cache is an
// objstore.Clocked (memcached is not: use TTLNone, or Speed 1). With Speed x, the
// records of second s are due at s/x; traces have whole seconds, so they come in bursts. Latency
// counts from when an operation was issued; Result.MaxLagNs tells how late that was at worst.
//
// # Verification
//
// With Options.Verify each value is a sequence of blocks that carry key, writer, version and length, sealed
// at both ends and patterned in every word between. Every value that is read must be whole, of its key, and not
// older than what this client has seen or written of it; and what this client appended and prepended must be there, once.
// The cache must hold no values of other programs. With Exclusive, numbers must be exact.
// What a client remembers is bounded, so it may overlook but not accuse; except that a write
// which failed with its outcome unknown and takes effect after a later one is reported as stale, which it is.
// Values are at least [MinBlock] bytes then, and cost about 0.1 ns a byte.
//
// Source: DecLock, section 6.4.
package replay
