package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// sorted returns the locks of a table in order.
func sorted[T any](m map[fabric.Addr]T) []fabric.Addr {
	list := make([]fabric.Addr, 0, len(m))
	for l := range m {
		list = append(list, l)
	}
	slices.Sort(list)
	return list
}

func (j *Exclusion) state(b *strings.Builder) {
	for _, l := range sorted(j.holders) {
		for i := range j.holders[l] {
			h := &j.holders[l][i]
			fmt.Fprintf(b, "h%x %x %d,", l, uint32(h.Client), h.Mode)
		}
	}
}

func (j *Tokens) state(b *strings.Builder) {
	for _, l := range sorted(j.locks) {
		fmt.Fprintf(b, "t%x %x %x,", l, j.locks[l].exclusive, j.locks[l].any)
	}
}

func (j *QueueOrder) state(b *strings.Builder) {
	for _, l := range sorted(j.locks) {
		for _, t := range j.locks[l] {
			fmt.Fprintf(b, "q%x %d %x %d,", l, t.index, uint32(t.client), t.mode)
		}
	}
}

func (j *Cells) state(b *strings.Builder) {
	for _, l := range sorted(j.cells) {
		c := j.cells[l]
		fmt.Fprintf(b, "c%x %x %t", l, c.base, c.doubt)
		for _, list := range [][]write{c.writes, c.seen} {
			for _, w := range list {
				fmt.Fprintf(b, " %x:%x@%d", w.client, w.value, c.count-w.order)
			}
			b.WriteByte(',')
		}
	}
}
