// Package traces reads, writes, makes and measures cache traces in the form of
// Twitter's (github.com/twitter/cache-trace). traces/replay drives a cache
// with them, and traces/memcached is such a cache to compare with.
//
// # Format
//
// A trace is text, one request a line, seven columns with commas between:
//
//	timestamp (s), key, key size, value size, client id, operation, TTL (s)
//
// Operations are get, gets, set, add, replace, cas, append, prepend, delete,
// incr and decr. A get or gets with value size 0 is a miss. A key may hold
// commas: [Reader] takes the first column from the left, five from the right, and
// what is between is the key. A byte order mark of UTF-8 and a first line that names the columns are skipped. Files are plain, zstd or gzip, as their
// first bytes say, not their name. A [Reader] holds one buffer and allocates nothing per record.
//
// # Presets
//
// [Presets] is the published table of 54 clusters, in presets.csv, which says
// where it comes from and what was changed: Juncheng Yang, Yao Yue and Rashmi Vinayak, "A large scale analysis of
// hundreds of in-memory cache clusters at Twitter", OSDI 2020; data under CC-BY 4.0.
// Its operation and TTL shares are rounded and are normalised before use (cluster53's
// add up to 1.01). Three clusters lack a figure (cluster5 all, cluster43 and
// cluster46 the Zipf alpha) and are refused until the user sets it.
//
// # Generator
//
// A [Generator] draws keys by an exact [Zipf] over a finite key set and operations by the preset's
// mix, independently of each other and of the past. What the table does not say is chosen here, and these
// choices are ours:
//
//   - Sizes spread around the mean: keys evenly by 20 %, values log-normally with sigma 0.6.
//     A key keeps its size. The mean over requests is the preset's, solved for and not left to chance: with
//     alpha 2.7 one key has 78 % of the requests.
//   - The value size is the mean over requests that carry a whole value. append and
//     prepend carry a piece, an eighth of it.
//   - incr and decr go to counters, a family of keys with [CounterPrefix] whose values are numbers of up to ten digits.
//     It gets twice as many requests as there are incr and decr; the mix over all requests is the preset's.
//   - A get row has the key's value size: whether it hits, the cache decides.
//   - A write's TTL is drawn by the preset's mix.
//
// Independent draws have less locality than production: there, a delete is often of what is not cached, and
// a set follows a miss. See the hit ratios in package replay.
//
// [Generator.Stream] is one client's substream, with a seed of its own, so
// that processes generate their parts without talking; [Generator.All] is the trace that they make together.
//
// # Statistics
//
// [Stats] takes the same figures of any trace in bounded memory. Keys are counted exactly up to a
// bound (a million by default, 64 MiB); beyond it, as a sample by key hash, and Summary.Sampled tells the
// share. Alpha is the slope of a least-squares line through log count over log rank at geometrically
// spaced ranks, as far as a rank has 16 requests; with too few such ranks it is null. With alpha near 0 and few requests per key
// the estimate is too high, since chance orders the keys: at 300 requests per key it is within 0.1.
// The table's authors do not publish how they fitted theirs.
//
// Source: DecLock, section 6.4 (object store), names cluster14 and cluster53
// by their figures: [IOPSBound] and [BandwidthBound].
package traces
