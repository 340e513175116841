package locktrace

import (
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// Scans are transactions of TPC-C with long readers among them. A long reader scans the customers of one warehouse. By the specification it takes their table as a
// shared holder, and other transactions take it before they take a customer, in the same mode; of the artifact it takes all partitions.
type Scans struct {
	tpccSource
	rate float64
	// Long: the last transaction is a long reader.
	Long bool
}

// Scans returns the transactions of a client of a node of which a share, from 0 to 1, are long readers.
func (t *TPCC) Scans(node int, r *traces.Rand, rate float64) *Scans {
	s := &Scans{tpccSource: *t.source(node, r), rate: rate}
	s.tables = true
	return s
}

// Next implements Source.
func (s *Scans) Next(list []Access) []Access {
	if s.Long = s.Float64() < s.rate; !s.Long {
		return s.tpccSource.Next(list)
	}
	s.begin(list)
	w := s.first + s.between(0, s.share-1)
	if !s.t.Artifact {
		s.row(w, customerTable, lock.Shared)
		return s.list
	}
	for i := range customerParts {
		s.take(w, customerAt+i, lock.Shared)
	}
	return s.list
}
