package bench

import (
	"cmp"
	"fmt"
	"image/color"
	"slices"
)

// The colours of the grid: red where a lock is behind, blue where it is ahead.
var (
	ahead  = []color.RGBA{{0xf2, 0xf2, 0xf2, 0xff}, {0xd1, 0xe5, 0xf0, 0xff}, {0x92, 0xc5, 0xde, 0xff}, {0x21, 0x66, 0xac, 0xff}}
	behind = []color.RGBA{{0xb2, 0x18, 0x2b, 0xff}, {0xef, 0x8a, 0x62, 0xff}, {0xfd, 0xdb, 0xc7, 0xff}}
)

// shortNames are what cells of the grid have room for.
var shortNames = map[string]string{"shift-artifact": "shift-a", "declock-tf": "tf", "declock-pf": "pf"}

const shortNote = "shift-a is shift-artifact, tf and pf are declock-tf and declock-pf. Empty: not measured. Below, each row has one change from the default point."

var throughputScale = Scale{
	Bounds: []float64{0.75, 0.9, leastRatio, 1.03, 1.25, 2}, Colors: slices.Concat(behind, ahead),
	Labels: []string{"below 0.75", "to 0.9", "to 0.97", "to 1.03", "to 1.25", "to 2", "more"},
	Note:   "Below 0.97 a cell names the best other lock: " + shortNote,
}

var tailScale = Scale{
	Bounds: []float64{0.5, 0.75, 0.9, mostTail, 1.5, 2}, Colors: slices.Concat(reversed(ahead), reversed(behind)),
	Labels: []string{"below 0.5", "to 0.75", "to 0.9", "to 1.1", "to 1.5", "to 2", "more"},
	Note:   "Above 1.1 a cell names the best fair lock: " + shortNote,
}

func reversed(list []color.RGBA) []color.RGBA {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// gridPlots are throughput and p99 of declock, with and without trains, beside the best of the other locks; none without rows.
func gridPlots(rows Rows) (plots []Plot) {
	for i, name := range []string{"grid-declock", "grid-no-train"} {
		lock := gridOurs[i]
		plots = append(plots,
			gridPlot(rows, Plot{Name: name, Title: "Throughput of " + lock + " over the best other lock", Scale: &throughputScale},
				func(at Rows) duel { return at.overOthers(lock) }, slower),
			gridPlot(rows, Plot{Name: name + "-p99", Title: "p99 of " + lock + " over the least of the fair locks", Scale: &tailScale},
				func(at Rows) duel { return at.tailOverFair(lock) }, later))
	}
	return slices.DeleteFunc(plots, func(p Plot) bool { return len(p.Panels) == 0 })
}

// gridPlot draws a comparison: panels by reads, first of nodes and clients, then of all else.
func gridPlot(rows Rows, p Plot, compare func(at Rows) duel, bad func(v float64) bool) Plot {
	var shapes, others []Panel
	for _, reads := range rows.Distinct("read_pct") {
		shape := &Panel{Title: reads + " % reads", Across: "clients of each node", Cells: map[[2]string]Cell{}}
		other := &Panel{Title: reads + " % reads", Across: "nodes x clients of each", Cells: map[[2]string]Cell{}}
		for _, at := range rows.Where("read_pct", reads).points() {
			d := compare(at)
			cell := Cell{Value: d.ratio}
			if bad(d.ratio) {
				cell.Word = d.other
				if short, ok := shortNames[d.other]; ok {
					cell.Word = short
				}
			}
			nodes, each := at[0].Text("nodes"), at[0].Text("each")
			if odd := oddity(at[0], rows[0].Text("nic")); odd != "" {
				other.add(nodes+" x "+each, odd, cell)
			} else {
				shape.add(each, rowName(nodes), cell)
			}
		}
		slices.SortFunc(shape.Columns, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		shapes, others = append(shapes, *shape), append(others, *other)
	}
	for _, list := range [][]Panel{shapes, others} {
		list = slices.DeleteFunc(list, func(p Panel) bool { return len(p.Cells) == 0 })
		for part := range slices.Chunk(list, panelsPerLine(len(list))) {
			p.Panels = append(p.Panels, part)
		}
	}
	return p
}

// rowName names the row of so many nodes.
func rowName(nodes string) string {
	if nodes == "1" {
		return "1 node"
	}
	return nodes + " nodes"
}

// panelsPerLine returns in how many columns panels are drawn: at most four, and lines alike.
func panelsPerLine(n int) int {
	lines := max(1, (n+3)/4)
	return max(1, (n+lines-1)/lines)
}

// add adds a cell; columns and rows come in the order in which they are first named.
func (p *Panel) add(column, row string, c Cell) {
	if !slices.Contains(p.Columns, column) {
		p.Columns = append(p.Columns, column)
	}
	if !slices.Contains(p.Rows, row) {
		p.Rows = append(p.Rows, row)
	}
	p.Cells[[2]string{column, row}] = c
}

// oddity names in a word or two in what a row differs from the default point with a NIC, but for nodes, clients and reads; "" if it does not.
func oddity(r Row, nic string) string {
	d := Default("").WithDefaults()
	switch {
	case r.Text("cs_len") != fmt.Sprint(d.CSLen):
		return r.Text("cs_len") + " data ops"
	case r.Value("locks") == 1:
		return "1 lock"
	case r.Value("locks") >= 1e6:
		return fmt.Sprintf("%g M locks", r.Value("locks")/1e6)
	case r.Text("locks") != fmt.Sprint(d.Locks):
		return r.Text("locks") + " locks"
	case r.Text("theta") != fmt.Sprint(d.Theta):
		return "skew " + r.Text("theta")
	case r.Text("nic") != nic:
		return "NIC " + r.Text("nic")
	}
	return ""
}
