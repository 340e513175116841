package cql

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// The bits of a grant in a train: see docs/trains.md.
func TestTrainGrant(t *testing.T) {
	at := fabric.At(3, 8)
	for words := range MaxCarried + 1 {
		n := 3 * (MaxCarried - words)
		if words == 0 {
			n = maxTrain - 1
		}
		want := Train{in: true, phased: true, place: 24, wait: 1<<25 - 1, length: uint8(n), list: new(members)}
		for i := range n {
			want.list.push(i, memberOf(MakeEntry(lock.Mode(i%2), fabric.Client(fabric.CNID(i+1), i+2), 1, 0)))
		}
		c := Carried{Words: uint8(words)}
		for i := range words {
			c.Offset, c.Word[i] = -8, uint64(7+i)
		}
		m := grant(at, 1<<44-1, KnownStamp(0xffff), KnownStamp(0xfffe), &c)
		want.encode(&m, lock.Exclusive)
		p := Ticket{Lock: at, Index: 1<<44 - 1, Mode: lock.Exclusive, Train: &Train{got: 1 << 4}}
		if n > inGrant {
			more := fabric.Message{Kind: msgMembers, Body: [7]uint64{uint64(at), 1<<44 - 1}}
			copy(more.Body[2:], want.list[MaxCarried:])
			p.Take(&more)
		}
		if p.Take(&m) {
			t.Errorf("%d words: granted without the reports", words)
		}
		list, got := *want.list, *p.Train
		if *got.list != list {
			t.Errorf("%d words: list %x, want %x", words, *got.list, list)
		}
		want.granted, want.got, want.list, got.list = true, 1<<4, nil, nil
		if got != want || p.Behind != KnownStamp(0xffff) || p.Sent != KnownStamp(0xfffe) || p.Carried != c {
			t.Errorf("%d words: %+v, want %+v, carried %+v", words, p, want, c)
		}
		for i := range n {
			if e := p.Train.at(i + 1); e.mode() != lock.Mode(i%2) || e.client() != fabric.Client(fabric.CNID(i+1), i+2) {
				t.Errorf("member %d is %v %v", i, e.mode(), e.client())
			}
		}
	}
	reader := Train{in: true, place: 3, collector: fabric.Client(255, 4095), collectorPlace: 24}
	m := grant(at, 5, 0, 0, nil)
	reader.encode(&m, lock.Shared)
	p := Ticket{Lock: at, Index: 5}
	reader.granted = true
	if !p.Take(&m) || *p.Train != reader {
		t.Errorf("a reader: %+v", p)
	}
	m = grant(at, 5, KnownStamp(1), 0, nil)
	if p := (Ticket{Lock: at, Index: 5}); !p.Take(&m) || p.InTrain() {
		t.Errorf("a grant of no train: %+v", p)
	}
}

// A collector is granted when its grant and all reports have come, in whatever order, some of them twice, to the client and to the agent.
func TestReports(t *testing.T) {
	l := fabric.At(3, 8)
	train := Train{in: true, place: 4, wait: 1<<2 | 1<<3}
	give := grant(l, 24, 0, 0, nil)
	train.encode(&give, lock.Exclusive)
	report := func(place uint64) fabric.Message {
		return fabric.Message{Kind: msgReport, Body: [7]uint64{uint64(l), 24, place}}
	}
	for _, order := range [][]fabric.Message{
		{give, report(2), report(3)},
		{report(2), give, report(3)},
		{report(3), report(2), give},
		{report(3), report(3), give, report(3), report(2)},
		{give, report(2), give, report(3)},
	} {
		for cut := range len(order) + 1 { // the client leaves after so many
			client, agent := Ticket{Lock: l, Index: 24, Mode: lock.Exclusive}, Ticket{Lock: l, Index: 24, Mode: lock.Exclusive}
			for i, m := range order[:cut] {
				if got, want := client.Take(&m), i == len(order)-1; got != want {
					t.Errorf("order %v: granted %v after %d messages", order, got, i+1)
				}
			}
			for _, m := range order[cut:] {
				agent.Take(&m)
			}
			if !agent.Merge(&client) || !agent.Train.in || agent.Train.place != 4 {
				t.Errorf("order %v, cut at %d: %+v", order, cut, agent)
			}
		}
		some := Ticket{Lock: l, Index: 24}
		other := order[0]
		if other.Body[1]++; some.Take(&other) || some.Train != nil {
			t.Errorf("a message for another index: %+v", some)
		}
	}
}

// The last takes all members off, and no borrow leaves its field.
func TestTrainDelta(t *testing.T) {
	for _, c := range []uint8{1, 4, 7, 11} {
		y := Layout{CapacityBits: c, VersionBits: 27}
		for n := uint64(1); n <= min(maxTrain, y.Capacity()); n++ {
			for w := uint64(0); w <= n; w++ {
				for more := range uint64(2) {
					h := y.Header(77, n+more, w+more, 9)
					if got := Header(uint64(h) + y.trainDelta(n, w)); got != y.Header(77+n, more, more, 9) {
						t.Errorf("%d members, %d writers: %s", n, w, y.FormatHeader(got))
					}
				}
			}
		}
	}
}

// A grant that says of its train what cannot be is dropped, and what has come before stays.
func TestUnsoundTrain(t *testing.T) {
	l := fabric.At(3, 8)
	for _, train := range []Train{
		{in: true, length: maxTrain},
		{in: true, length: 31, place: 3},
		{in: true, length: 3, place: maxTrain},
		{in: true, place: 2, collectorPlace: 31, collector: 5},
	} {
		for _, mode := range []lock.Mode{lock.Exclusive, lock.Shared} {
			m := grant(l, 24, 0, 0, nil)
			train.encode(&m, mode)
			p := Ticket{Lock: l, Index: 24, Mode: mode, Train: &Train{got: 1 << 3}}
			if mode == lock.Exclusive && train.collectorPlace > 0 {
				continue
			}
			if p.Take(&m) || *p.Train != (Train{got: 1 << 3}) {
				t.Errorf("%+v, %v: taken as %+v", train, mode, p.Train)
			}
			if give := grant(l, 24, 0, 0, nil); !p.Take(&give) || p.InTrain() {
				t.Errorf("the grant behind it: %+v", p.Train)
			}
		}
	}
}

// The list of a long train comes in two messages, each to the client or, when that has left, to the agent; and the first again, behind the grant. None of it is lost.
func TestLongList(t *testing.T) {
	l := fabric.At(3, 8)
	train := Train{in: true, place: 1, wait: 1 << 20, length: maxTrain - 1, list: new(members)}
	for i := range maxTrain - 1 {
		train.list.push(i, memberOf(MakeEntry(lock.Mode(i%2), fabric.Client(fabric.CNID(i+1), i+2), 1, 0)))
	}
	give := grant(l, 24, 0, 0, nil)
	train.encode(&give, lock.Exclusive)
	more := fabric.Message{Kind: msgMembers, Body: [7]uint64{uint64(l), 24}}
	copy(more.Body[2:], train.list[MaxCarried:])
	report := fabric.Message{Kind: msgReport, Body: [7]uint64{uint64(l), 24, 20}}
	for _, order := range [][]fabric.Message{{more, give, report}, {more, report, give}, {report, more, give}, {more, give, more, give, report}, {more, give, more, report}} {
		for cut := range len(order) + 1 { // the client leaves after so many
			client, agent := Ticket{Lock: l, Index: 24, Mode: lock.Exclusive}, Ticket{Lock: l, Index: 24, Mode: lock.Exclusive}
			for _, m := range order[:cut] {
				client.Take(&m)
			}
			for _, m := range order[cut:] {
				agent.Take(&m)
			}
			if !agent.Merge(&client) || agent.Train.list == nil || *agent.Train.list != *train.list {
				t.Errorf("order %v, cut at %d: %+v", order, cut, agent.Train)
			}
		}
	}
}
