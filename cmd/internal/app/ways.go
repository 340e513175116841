package app

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/report"
)

// writeWays shows which compute nodes execute operations on a memory node by their own CPUs (docs/local.md), and which over the network, and why.
func writeWays(w io.Writer, nodes []computeRow) {
	type memory struct {
		node string
		copy uint32
	}
	local, remote := map[memory][]string{}, map[memory]map[string][]string{} // the latter by the reason
	var list []memory
	for _, n := range nodes {
		if n.Status == nil {
			continue
		}
		for _, x := range n.Status.Ways {
			m := memory{x.Memory, x.Copy}
			if !slices.Contains(list, m) {
				list, remote[m] = append(list, m), map[string][]string{}
			}
			if x.Local {
				local[m] = append(local[m], n.Node)
			} else {
				remote[m][x.Why] = append(remote[m][x.Why], n.Node)
			}
		}
	}
	slices.SortFunc(list, func(a, b memory) int {
		return cmp.Or(cmp.Compare(len(a.node), len(b.node)), cmp.Compare(a.node, b.node), cmp.Compare(a.copy, b.copy))
	})
	t := &report.Table{Head: []string{"operations on", "by the own CPU of", "over the network of"}}
	for _, m := range list {
		name := m.node
		if m.copy != 0 {
			name = fmt.Sprintf("%s, copy %d", m.node, m.copy)
		}
		var others []string
		for why, nodes := range remote[m] {
			others = append(others, fmt.Sprintf("%s (%s)", strings.Join(nodes, ", "), why))
		}
		slices.Sort(others)
		t.Add(name, cmp.Or(strings.Join(local[m], ", "), "-"), cmp.Or(strings.Join(others, "; "), "-"))
	}
	t.Write(w)
}
