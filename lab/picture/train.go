package picture

import (
	"fmt"
	"math/bits"
	"strings"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
)

// Messages of trains: docs/trains.md has their bits.

const (
	placeBits  = 5
	memberBits = 21
	perWord    = 3 // members
	inGrant    = 9 // members that a grant has room for, if it carries no value
)

// grant takes a grant apart, and what it says of a train.
func grant(at string, b *[7]uint64) string {
	text := fmt.Sprintf("Grant{%s index %d%s", at, b[1], stamp(", waiting behind since t", cql.Stamp(b[2])))
	words := b[3] >> 17 & 3
	if b[3]>>24&1 != 0 {
		text += train(b, int(words))
	}
	if words > 0 {
		text += fmt.Sprintf(", value of %d words: %#x", words, b[4:4+words])
	}
	return text + "}"
}

// train says what a grant says of a train.
func train(b *[7]uint64, words int) string {
	place, length, rest := b[2]>>17&(1<<placeBits-1), int(b[3]>>19&(1<<placeBits-1)), b[2]>>22
	if length == 0 { // it is a reader's
		return fmt.Sprintf(", place %d of a train, reports to %v of place %d", place, fabric.ClientID(rest&(1<<20-1)), rest>>20&(1<<placeBits-1))
	}
	text := fmt.Sprintf(", place %d of the train with %s", place, members(b[4+words:], 1, min(length, inGrant-perWord*words)))
	if length > inGrant {
		text += " and more"
	}
	if b[3]>>25&1 != 0 {
		text += ", readers first"
	}
	if waits := uint32(rest & (1<<25 - 1)); waits != 0 {
		text += ", waits for reports of"
		for ; waits != 0; waits &= waits - 1 {
			text += fmt.Sprintf(" %d", bits.TrailingZeros32(waits))
		}
	}
	return text
}

// members lists at most n members of a train, from a place on: "1x cn2/1" is a writer's ticket.
func members(words []uint64, place, n int) string {
	var list []string
	for i := range n {
		m := words[i/perWord] >> (memberBits * (i % perWord)) & (1<<memberBits - 1)
		if m == 0 {
			break
		}
		mode := "s"
		if m>>20 != 0 {
			mode = "x"
		}
		list = append(list, fmt.Sprintf("%d%s %v", place+i, mode, fabric.ClientID(m&(1<<20-1))))
	}
	return strings.Join(list, ", ")
}

// detour says for which two nodes an agent passes a message on.
func detour(w uint64) string {
	if w == 0 {
		return ""
	}
	return fmt.Sprintf(", from %v to %v", fabric.CNID(w), fabric.CNID(w>>8))
}
