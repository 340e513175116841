package replay

import (
	"fmt"
	"slices"
	"sync"

	"github.com/declock/declock/traces"
)

// Dealing says which client does which record of a trace.
type Dealing uint8

const (
	// ByKey: all records of a key go to one client, in the trace's order. A hot key is
	// then done by one client, whose queue bounds the speed of all.
	ByKey Dealing = iota
	// ByClient: records go by the trace's client id. Each client's order is kept; keys are shared.
	ByClient
	// InTurn: record j goes to client j mod n. No order is kept but that; clients are equally busy.
	InTurn
	numDealings
)

var dealingNames = [numDealings]string{"by-key", "by-client", "in-turn"}

func (d Dealing) String() string {
	if d < numDealings {
		return dealingNames[d]
	}
	return fmt.Sprintf("Dealing(%d)", uint8(d))
}

// ParseDealing returns the dealing of the name: by-key, by-client or in-turn.
func ParseDealing(name string) (Dealing, error) {
	if d := slices.Index(dealingNames[:], name); d >= 0 {
		return Dealing(d), nil
	}
	return 0, fmt.Errorf("%w: %q is not a way to deal a trace: by-key, by-client, in-turn", ErrOptions, name)
}

// to returns the client of a record, the j-th of the trace.
func (d Dealing) to(rec *traces.Record, j uint64, clients int) int {
	switch d {
	case ByKey:
		return int(traces.HashKey(rec.Key) >> 11 % uint64(clients)) // other bits than those of hash tables
	case ByClient:
		return int(rec.Client % uint64(clients))
	}
	return int(j % uint64(clients))
}

const (
	batchRecords = 128
	batchDepth   = 4 // batches that wait for a client, before the dealer waits for it
)

type batch struct {
	recs []traces.Record
	keys []byte // what their keys point to
}

// A Dealer reads a trace once, on a goroutine of its own, and deals it to the clients of
// this process. Memory is bounded; what it holds is recycled.
type Dealer struct {
	src         traces.Source
	d           Dealing
	first, n    int
	total       int
	out         []chan *batch
	free        chan *batch
	done        chan struct{}
	finished    chan struct{}
	once        sync.Once
	err         error // of src; read it after finished
	firstRecord traces.Record
	firstOK     bool
}

// Deal starts to deal src to total clients, of which this process has n, from number first. Close it.
func Deal(src traces.Source, d Dealing, first, n, total int) (*Dealer, error) {
	if d >= numDealings || n < 1 || first < 0 || first+n > total {
		return nil, fmt.Errorf("%w: deal %s to clients %d to %d of %d", ErrOptions, d, first, first+n-1, total)
	}
	t := &Dealer{
		src: src, d: d, first: first, n: n, total: total,
		free: make(chan *batch, n*(batchDepth+3)), done: make(chan struct{}), finished: make(chan struct{}),
	}
	for range n {
		t.out = append(t.out, make(chan *batch, batchDepth))
	}
	for range cap(t.free) {
		t.free <- new(batch)
	}
	t.firstOK = src.Next(&t.firstRecord)
	go t.run()
	return t, nil
}

// FirstTime returns the time of the trace's first record, for Options.TraceStart.
func (t *Dealer) FirstTime() uint32 { return t.firstRecord.Time }

// Source returns the stream of the process's i-th client.
func (t *Dealer) Source(i int) traces.Source { return &dealt{t: t, in: t.out[i]} }

// Close ends the dealing, also in the middle. The dealer may still wait in the source's Next: see Finished.
func (t *Dealer) Close() { t.once.Do(func() { close(t.done) }) }

// Finished is closed when the dealer will not use its source again.
func (t *Dealer) Finished() <-chan struct{} { return t.finished }

func (t *Dealer) run() {
	defer close(t.finished)
	cur := make([]*batch, t.n)
	rec := t.firstRecord
	now := rec.Time
	for j, ok := uint64(0), t.firstOK; ok; ok, j = t.src.Next(&rec), j+1 {
		if rec.Time != now { // a paced client must not wait for its batch to fill
			now = rec.Time
			if !t.flush(cur) {
				return
			}
		}
		i := t.d.to(&rec, j, t.total) - t.first
		if i < 0 || i >= t.n {
			continue
		}
		b := cur[i]
		if b == nil {
			select {
			case b = <-t.free:
			case <-t.done:
				return
			}
			cur[i] = b
		}
		b.add(&rec)
		if len(b.recs) == batchRecords && !t.send(cur, i) {
			return
		}
	}
	t.err = t.src.Err()
	if t.flush(cur) {
		for _, c := range t.out {
			close(c)
		}
	}
}

func (b *batch) add(rec *traces.Record) {
	at := len(b.keys)
	b.keys = append(b.keys, rec.Key...)
	b.recs = append(b.recs, *rec)
	b.recs[len(b.recs)-1].Key = b.keys[at:len(b.keys):len(b.keys)]
}

func (t *Dealer) flush(cur []*batch) bool {
	for i := range cur {
		if cur[i] != nil && !t.send(cur, i) {
			return false
		}
	}
	return true
}

func (t *Dealer) send(cur []*batch, i int) bool {
	b := cur[i]
	cur[i] = nil
	select {
	case t.out[i] <- b:
		return true
	case <-t.done:
		return false
	}
}

// dealt is one client's end.
type dealt struct {
	t     *Dealer
	in    chan *batch
	cur   *batch
	at    int
	ended bool // and not closed
}

func (s *dealt) Next(rec *traces.Record) bool {
	for s.cur == nil || s.at == len(s.cur.recs) {
		if s.cur != nil {
			s.cur.recs, s.cur.keys, s.at = s.cur.recs[:0], s.cur.keys[:0], 0
			s.t.free <- s.cur // it has room for all batches
			s.cur = nil
		}
		select {
		case b, ok := <-s.in:
			if !ok {
				s.ended = true
				return false
			}
			s.cur = b
		case <-s.t.done:
			return false
		}
	}
	*rec = s.cur.recs[s.at]
	s.at++
	return true
}

// Err returns the trace's error once the stream has ended; nil if it was closed.
func (s *dealt) Err() error {
	if !s.ended {
		return nil
	}
	<-s.t.finished // it has closed the channels, so it is there
	return s.t.err
}

// Close makes Run wake a client that waits here when the replay is stopped.
func (s *dealt) Close() error {
	s.t.Close()
	return nil
}
