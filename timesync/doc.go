// Package timesync gives the compute nodes of a cluster a common time for
// comparing when lock acquisitions began: wrapping 16-bit timestamps of
// microseconds, synchronised through a counter on a memory node, without any
// CPU there.
//
// The clocks agree within the time of one READ, which is enough to order
// acquisitions. If they do not agree, fairness suffers and nothing else.
//
// Differences from the paper: the counter carries a round number, and a node that
// has waited too long leaves the round again, so that a node that crashes or joins between
// rounds does not block or confuse the others.
//
// docs/upkeep.md (Clocks) says what clocks of hosts must do.
//
// Source: DecLock, section 5.3 (synchronized time, timestamp encoding).
package timesync
