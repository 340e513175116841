package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// sorted returns the locks of a table in order.
func sorted[T any](m map[fabric.Addr]T) []fabric.Addr { return slices.Sorted(maps.Keys(m)) }

// byClient returns a list in which the order means nothing in the order of clients.
func byClient[T any](list []T, client func(T) fabric.ClientID) []T {
	return slices.SortedStableFunc(slices.Values(list), func(a, b T) int { return cmp.Compare(client(a), client(b)) })
}

func (j *Exclusion) state(b *strings.Builder) {
	for _, l := range sorted(j.holders) {
		for _, h := range byClient(j.holders[l], func(e Event) fabric.ClientID { return e.Client }) {
			fmt.Fprintf(b, "h%x %x %d,", l, uint32(h.Client), h.Mode)
		}
		for _, c := range slices.Sorted(slices.Values(j.late[l])) {
			fmt.Fprintf(b, "l%x,", uint32(c))
		}
	}
}

func (j *Tokens) state(b *strings.Builder) {
	for _, l := range sorted(j.locks) {
		fmt.Fprintf(b, "t%x %x %x %x,", l, j.locks[l].exclusive, j.locks[l].update, j.locks[l].any)
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
		// A holder that found the base, with no write before that in doubt, acknowledges nothing by its release.
		seen := slices.DeleteFunc(slices.Clone(c.seen), func(w write) bool {
			return w.value == c.base && !slices.ContainsFunc(c.writes, func(x write) bool { return x.order <= w.order })
		})
		for _, list := range [][]write{c.writes, byClient(seen, func(w write) fabric.ClientID { return w.client })} {
			for _, w := range list {
				fmt.Fprintf(b, " %x:%x@%d", w.client, w.value, c.count-w.order)
			}
			b.WriteByte(',')
		}
	}
}
