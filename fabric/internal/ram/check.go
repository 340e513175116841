package ram

import (
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
)

// Check refuses a bad chain, of a Port that has the arena, before anything of it is posted. The common case is decided here, without a call for
// each operation.
func (a *Arena) Check(ops []fabric.Op) error {
	if len(ops) > fabric.MaxChain {
		return a.refuse(ops)
	}
	for i := range ops {
		o := &ops[i]
		switch o.Kind {
		case fabric.OpRead, fabric.OpWrite:
			if o.Buf == nil && o.Addr%wordSize != 0 || o.Buf != nil && !a.Owns(o.Buf) {
				return a.refuse(ops)
			}
		case fabric.OpCAS, fabric.OpFAA:
			if o.Addr%wordSize != 0 {
				return a.refuse(ops)
			}
		default:
			if err := a.refuse(ops); err != nil {
				return err
			}
		}
		if o.Addr.MN() != ops[0].Addr.MN() {
			return a.refuse(ops)
		}
	}
	return nil
}

// CheckReads refuses a bad row of READs, of whatever length.
func (a *Arena) CheckReads(ops []fabric.Op) error {
	for i := range ops {
		o := &ops[i]
		if o.Kind != fabric.OpRead || o.Addr.MN() != ops[0].Addr.MN() || o.Buf == nil && o.Addr%wordSize != 0 || o.Buf != nil && !a.Owns(o.Buf) {
			return a.refuseRead(i, ops)
		}
	}
	return nil
}

// refuseRead returns what is wrong with the i-th of a row of READs.
func (a *Arena) refuseRead(i int, ops []fabric.Op) error {
	if ops[i].Kind != fabric.OpRead {
		return &fabric.ChainError{Index: i, Op: ops[i], Unposted: true, Err: fmt.Errorf("%w: %v among READs", fabric.ErrBadChain, ops[i].Kind)}
	}
	err := a.refuse([]fabric.Op{ops[0], ops[i]})
	if e := (*fabric.ChainError)(nil); errors.As(err, &e) && e.Index != 0 {
		e.Index = i
	}
	return err
}

// refuse returns what is wrong with a chain, if anything is.
func (a *Arena) refuse(ops []fabric.Op) error {
	if err := fabric.CheckChain(ops, a.Caps); err != nil {
		return err
	}
	for i := range ops {
		o := &ops[i]
		if (o.Kind == fabric.OpRead || o.Kind == fabric.OpWrite) && !a.Owns(o.Buf) {
			return &fabric.ChainError{Index: i, Op: *o, Unposted: true, Err: fmt.Errorf("%w: %d bytes; use Alloc", fabric.ErrBadBuffer, len(o.Buf))}
		}
	}
	return nil
}
