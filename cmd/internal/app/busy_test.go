package app

import (
	"context"
	"errors"
	"testing"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/objstore"
)

// An openElsewhere is a client of a store that some compute nodes have open.
type openElsewhere struct {
	on     []fabric.CNID
	closed bool
}

func (o *openElsewhere) OpenOn() ([]fabric.CNID, error) { return o.on, nil }
func (o *openElsewhere) Close()                         { o.closed = true }

// Faults of what others have open are called use, and no fault; of what only crashed nodes, or no nodes, have open they are faults
// if they are seen again.
func TestFaultsOfWhatIsInUse(t *testing.T) {
	c, err := declock.Open(context.Background(), "shm:")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &looking{ctx: context.Background(), cluster: c}
	me := c.Node().Fabric().ID() // alive
	for _, x := range []struct {
		on    []fabric.CNID
		sound bool
		err   error
		busy  bool
		looks int
	}{
		{nil, true, nil, false, 1},
		{[]fabric.CNID{me}, true, nil, false, 1},
		{nil, false, nil, false, looks},
		{[]fabric.CNID{me + 1}, false, nil, false, looks},
		{[]fabric.CNID{me}, false, nil, true, looks},
		{nil, false, objstore.ErrCorrupt, false, looks},
		{[]fabric.CNID{me}, false, objstore.ErrCorrupt, true, looks},
		{[]fabric.CNID{me}, false, fabric.ErrNodeDown, false, 1},
	} {
		n := 0
		o := &openElsewhere{on: x.on}
		err := l.examine("store", "s", o, func() (bool, error) { n++; return x.sound, x.err })
		var e *exit.Error
		if busy := errors.As(err, &e) && e.Code == exit.Busy; busy != x.busy || !busy && !errors.Is(err, x.err) || n != x.looks || !o.closed {
			t.Errorf("%+v: %v after %d looks", x, err, n)
		}
	}
}
