package cas

import (
	"fmt"

	"github.com/declock/declock/fabric"
)

// A word is the state of a lock. Zero is free. Format: do not change.
//
//	 63      52 51                  32 31                            0
//	+----------+----------------------+-------------------------------+
//	|    0     |  writer's ClientID   |            readers            |
//	+----------+----------------------+-------------------------------+
//
// A writer's release subtracts its ClientID from the writer field, which was
// it exactly: no borrow. A reader's release subtracts 1 from readers, which it
// is counted in: no borrow. Readers that wait are counted too.
type word uint64

const (
	readerBits  = 32
	writerShift = readerBits
	spareShift  = writerShift + fabric.ClientIDBits

	oneReader = word(1)
)

const _ = uint(64 - spareShift) // what is left is not negative

func writerWord(id fabric.ClientID) word { return word(id) << writerShift }

func (w word) writer() fabric.ClientID {
	return fabric.ClientID(w >> writerShift & (1<<fabric.ClientIDBits - 1))
}
func (w word) readers() uint32 { return uint32(w) }
func (w word) corrupt() bool   { return w>>spareShift != 0 }

func (w word) String() string {
	return fmt.Sprintf("writer %v, %d readers", w.writer(), w.readers())
}

// Owner decodes the first word of a lock: its writer (0 if none) and the
// number of readers that hold it or wait for it.
func Owner(lockWord uint64) (writer fabric.ClientID, readers uint32) {
	return word(lockWord).writer(), word(lockWord).readers()
}
