package fabrictest

import (
	"errors"

	"github.com/declock/declock/fabric"
)

// A GoingOver is a Port beside one of whose chains to backups something happens, such as that the backup is promoted.
type GoingOver struct {
	fabric.Port
	fabric.Replicator
	Chain int        // which of its chains to backups that is, from 1
	When  OverMoment // of that chain
	Over  func()
	Lost  bool // what came of the chain is not known then
}

// An OverMoment is a moment of a chain.
type OverMoment int

const (
	BeforePost OverMoment = iota
	UnderWay
	Executed // and its client has not heard of that
	OverMoments
)

// NewGoingOver returns a Port over another, which is a fabric.Replicator. Nothing happens yet.
func NewGoingOver(p fabric.Port) *GoingOver {
	return &GoingOver{Port: p, Replicator: fabric.ReplicatorOf(p)}
}

// PostBackup implements fabric.Replicator.
func (p *GoingOver) PostBackup(g *fabric.Replicas, i int, ops []fabric.Op) (fabric.Pending, error) {
	if p.Chain--; p.Chain != 0 {
		return p.Replicator.PostBackup(g, i, ops)
	}
	if p.When == BeforePost {
		p.Over()
	}
	x, err := p.Replicator.PostBackup(g, i, ops)
	if err == nil && p.When == Executed {
		err = p.Pause(p.Now() + fabric.Second)
	}
	if p.When != BeforePost {
		p.Over()
	}
	if p.Lost && err == nil {
		err = errors.Join(fabric.ErrUnknownOutcome, p.Wait(x))
	}
	return x, err
}
