package exit

import (
	"fmt"
	"strings"
)

// A Code is an exit code of declock, declock-mn and declock-cn.
type Code int

// The exit codes. Scripts depend on them: do not change, only add.
const (
	OK           Code = 0
	Other        Code = 1
	Usage        Code = 2
	NoCluster    Code = 3
	InUse        Code = 4
	NoSpace      Code = 5
	NoTrace      Code = 6
	BadTrace     Code = 7
	Mismatch     Code = 8
	TooLarge     Code = 9
	Full         Code = 10
	BadAddress   Code = 11
	UnknownName  Code = 12
	NodeLost     Code = 13
	VerifyFailed Code = 14
	Unsound      Code = 15
	TooManyErrs  Code = 16
	Denied       Code = 17
	NoTarget     Code = 18
	NotFound     Code = 19
	NoHuge       Code = 20
	Busy         Code = 21
	Corrupt      Code = 22
	Unavailable  Code = 23
	Failed       Code = 24
	Interrupted  Code = 130
)

// table has all codes with their meaning, in order.
var table = []struct {
	Code    Code
	Name    string
	Meaning string
}{
	{OK, "ok", "success; also a daemon that was asked to stop"},
	{Other, "other", "an error that has no code of its own; of kv and tree: no such key; of lock: not free in time"},
	{Usage, "usage", "unknown command or flag, a value that makes no sense, flags that contradict each other"},
	{NoCluster, "no-cluster", "there is no such cluster, or it has no memory node that is up"},
	{InUse, "in-use", "the cluster, the memory node or its memory is in use by another process"},
	{NoSpace, "no-space", "not enough memory or disk"},
	{NoTrace, "no-trace", "the trace file is not there, or cannot be read or written"},
	{BadTrace, "bad-trace", "a malformed line, a cut or damaged trace"},
	{Mismatch, "mismatch", "made by another version, or with other parameters"},
	{TooLarge, "too-large", "a key, value or size above what is possible"},
	{Full, "full", "all compute node numbers, or all entries of the root directory, are taken"},
	{BadAddress, "bad-address", "a malformed cluster or target address, or a name that no cluster can have"},
	{UnknownName, "unknown-name", "an unknown preset or lock policy"},
	{NodeLost, "node-lost", "a memory node or compute node crashed meanwhile; results are partial"},
	{VerifyFailed, "verify-failed", "a replay read values that it must not have read"},
	{Unsound, "unsound", "declock check found something wrong"},
	{TooManyErrs, "too-many-errors", "a client met as many errors as --max-errors allows"},
	{Denied, "denied", "no permission, or a wrong access key"},
	{NoTarget, "no-target", "the target (memcached) cannot be reached or breaks its protocol"},
	{NotFound, "not-found", "no such key, store, bucket or entry"},
	{NoHuge, "no-huge", "--huge require, and there are no huge pages"},
	{Busy, "busy", "a compute node has a replay under way, a store is in use, or a directory stays locked"},
	{Corrupt, "corrupt", "memory of the cluster does not hold what its format says"},
	{Unavailable, "unavailable", "this machine, or this build of the program, lacks what the fabric needs"},
	{Failed, "failed", "of kv and tree: an error that has no code of its own"},
	{Interrupted, "interrupted", "Ctrl-C, SIGTERM or SIGHUP ended what was under way; what was measured is printed"},
}

// String returns the name of a code.
func (c Code) String() string {
	for _, r := range table {
		if r.Code == c {
			return r.Name
		}
	}
	return fmt.Sprintf("code-%d", int(c))
}

// Text returns the table for people.
func Text() string {
	var b strings.Builder
	for _, r := range table {
		fmt.Fprintf(&b, "%4d  %-16s %s\n", int(r.Code), r.Name, r.Meaning)
	}
	return b.String()
}
