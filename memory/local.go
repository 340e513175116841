package memory

import (
	"encoding/binary"
	"fmt"

	"github.com/declock/declock/fabric"
)

// Words are the words of a memory, by offset: a memory node's own access to what it lends.
type Words interface {
	Load(offset uint64) uint64
	Store(offset, v uint64)
}

// FormatOwn makes a region of the memory of a memory node, for that node itself. A memory
// that is a region with the same parameters already is left alone. What a memory node before had begun, it begins anew: no other
// node formats, and until the state says that the region is there, no node uses it.
func FormatOwn(mn fabric.MemID, w Words, p Params, u UUID) error {
	if err := p.validate(); err != nil {
		return err
	}
	buf := make([]byte, headSize)
	for i := 0; i < len(buf); i += 8 {
		binary.LittleEndian.PutUint64(buf[i:], w.Load(uint64(i)))
	}
	st := claimWord(binary.LittleEndian.Uint64(buf[offState:]))
	if done, err := begun(mn, st, buf, &p); done || err != nil {
		return err
	}
	mine := st.claim(0, 0)
	w.Store(offState, uint64(mine))
	encodeIdentity(buf, &p, u)
	for i := 0; i < identityLen; i += 8 {
		w.Store(uint64(i), binary.LittleEndian.Uint64(buf[i:]))
	}
	w.Store(offState, uint64(mine.publish()))
	return nil
}

// begun reports whether memory with a state, and with buf at its beginning, is a region with some parameters. An error says that it is
// something else, and must not be formatted.
func begun(mn fabric.MemID, st claimWord, buf []byte, p *Params) (done bool, err error) {
	switch {
	case st.state() == claimPublished:
		return true, checkFormatted(mn, buf, p)
	case st.state() != claimClaimed && (st != 0 || !allZero(buf)):
		return false, fmt.Errorf("memory: %v: %w", mn, foreign(buf))
	}
	return false, nil
}
