package picture

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/declock/declock/fabric"
)

// Sizes, in units of the picture: pixels at its natural size.
const (
	rowHeight   = 17
	laneWidth   = 86
	narrowLane  = 58 // where there are many
	manyLanes   = 9
	timeWidth   = 86 // of the column of times
	netWidth    = 56 // of the lane of the network
	groupGap    = 22 // between nodes
	headHeight  = 48
	charWidth   = 6.65 // of the text beside the picture
	maxText     = 170  // characters of it
	textGap     = 26
	barWidth    = 12
	quietNs     = 1000   // from here on a pause takes room
	longNs      = 10_000 // ... and is named
	maxGap      = 46
	legendWidth = 1010
)

// A drawing is a trace with places on the page.
type drawing struct {
	t      *Trace
	lanes  []*lane // from left to right
	groups []group
	ys     []float64
	gaps   []gap
	right  float64 // where the text begins
	lane   float64 // width of a lane
	width  float64
	height float64 // without the head
}

// A group is the lanes of one node.
type group struct {
	name, class string // node, memory or net
	left, right float64
}

// A gap is a pause between two rows.
type gap struct {
	row int // the one after it
	y   float64
	ns  fabric.Time
}

// draw puts everything in its place.
func (t *Trace) draw() *drawing {
	d := &drawing{t: t, lanes: slices.Clone(t.lanes), lane: laneWidth}
	if len(d.lanes) > manyLanes {
		d.lane = narrowLane
	}
	d.order()
	x := float64(timeWidth)
	for i, l := range d.lanes {
		if i == 0 || !sameNode(d.lanes[i-1], l) {
			x += groupGap
			g := group{name: l.name, class: "memory", left: x}
			if l.net {
				g.class = "net"
			} else if l.cn != 0 {
				g.name, g.class = l.cn.String(), "node"
			}
			d.groups = append(d.groups, g)
		}
		w := d.lane
		if l.net {
			w = netWidth
		}
		l.x, l.number = x+w/2, i
		x += w
		d.groups[len(d.groups)-1].right = x
	}
	d.right = x + textGap
	longest := 0
	y := 0.0
	for i := range t.rows {
		r := &t.rows[i]
		longest = max(longest, min(len([]rune(r.text)), maxText)+len(who(r))+2)
		if i > 0 && !t.Untimed {
			if pause := r.at - t.rows[i-1].at; pause >= quietNs {
				extra := min(maxGap, 8+6*math.Log2(float64(pause)/quietNs))
				d.gaps = append(d.gaps, gap{i, y + extra/2, pause})
				y += extra
			}
		}
		y += rowHeight
		d.ys = append(d.ys, y-rowHeight/2)
	}
	d.width = math.Ceil(max(d.right+float64(longest)*charWidth+20, legendWidth))
	d.height = y + 8
	return d
}

// order puts the lanes of a node beside each other, and memory nodes in the middle.
func (d *drawing) order() {
	var list []fabric.CNID
	for _, l := range d.lanes {
		if l.cn != 0 {
			list = append(list, l.cn)
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	place := func(l *lane) int {
		switch {
		case l.net:
			return -1
		case l.cn == 0:
			return len(list) / 2 * 2
		}
		at := slices.Index(list, l.cn)
		if at < len(list)/2 {
			return at*2 + 1
		}
		return at*2 + 3
	}
	slices.SortStableFunc(d.lanes, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a.mn, b.mn), cmp.Compare(a.index, b.index))
	})
}

func sameNode(a, b *lane) bool { return a.net == b.net && a.cn == b.cn && (a.cn != 0 || a.mn == b.mn) }

// who names the lane of a row; "" if its text does.
func who(r *row) string {
	if r.lane == nil || r.kind == kindFault {
		return ""
	}
	return r.lane.name
}

// cut shortens a text to n characters.
func cut(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-2]) + ".."
	}
	return s
}

func esc(s string) string { return html.EscapeString(s) }

// coord writes a coordinate.
func coord(v float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}

// time writes when something was, in microseconds.
func (t *Trace) time(i int) string {
	if t.Untimed {
		return fmt.Sprintf("%d", i+1)
	}
	return micros(t.rows[i].at - t.Began)
}

// micros writes a time in microseconds, with commas.
func micros(ns fabric.Time) string {
	sign := ""
	if ns < 0 {
		sign, ns = "-", -ns
	}
	us := fmt.Sprint(ns / 1000)
	for i := len(us) - 3; i > 0; i -= 3 {
		us = us[:i] + "," + us[i:]
	}
	return fmt.Sprintf("%s%s.%03d", sign, us, ns%1000)
}

// head writes the names of the lanes, in a band of headHeight from y on.
func (d *drawing) head(w io.Writer, y float64) {
	fmt.Fprintf(w, `<rect class="head" x="0" y="%s" width="%s" height="%d"/>`+"\n", coord(y), coord(d.width), headHeight)
	unit := "µs"
	if d.t.Untimed {
		unit = "step"
	}
	fmt.Fprintf(w, `<text class="unit" x="%d" y="%s" text-anchor="end">%s</text>`, timeWidth-8, coord(y+38), unit)
	fmt.Fprintf(w, `<text class="unit" x="%s" y="%s">what happens</text>`, coord(d.right), coord(y+38))
	for _, g := range d.groups {
		fmt.Fprintf(w, `<rect class="%s" x="%s" y="%s" width="%s" height="20" rx="4"/>`, g.class, coord(g.left), coord(y+5), coord(g.right-g.left))
		name := g.name
		if g.class == "node" && g.right-g.left > 1.5*laneWidth {
			name = "compute node " + name
		}
		fmt.Fprintf(w, `<text class="%sname" x="%s" y="%s" text-anchor="middle">%s</text>`+"\n", g.class, coord((g.left+g.right)/2), coord(y+19), esc(name))
	}
	for _, l := range d.lanes {
		if l.cn == 0 {
			continue
		}
		name := fmt.Sprintf("client %s", l.name)
		switch {
		case l.index == 0:
			name = "agent"
		case d.lane == narrowLane:
			name = l.name
		}
		fmt.Fprintf(w, `<text class="lanename" x="%s" y="%s" text-anchor="middle">%s</text>`, coord(l.x), coord(y+40), esc(name))
	}
	fmt.Fprintf(w, "\n")
}

// ground writes what runs through the whole picture: backgrounds, lines.
func (d *drawing) ground(w io.Writer) {
	fmt.Fprintf(w, `<rect class="paper" x="0" y="0" width="%s" height="%s"/>`+"\n", coord(d.width), coord(d.height))
	for _, g := range d.groups {
		class := map[string]string{"node": "ground", "memory": "memground", "net": "netground"}[g.class]
		fmt.Fprintf(w, `<rect class="%s" x="%s" y="0" width="%s" height="%s"/>`, class, coord(g.left), coord(g.right-g.left), coord(d.height))
	}
	for _, l := range d.lanes {
		class := "line"
		if l.cn == 0 && !l.net {
			class = "memline"
		}
		fmt.Fprintf(w, `<line class="%s" x1="%s" y1="0" x2="%s" y2="%s"/>`, class, coord(l.x), coord(l.x), coord(d.height))
	}
	fmt.Fprintf(w, "\n")
}

// top returns where the row of a number begins, from the row on that is before it.
func (d *drawing) top(i int) float64 {
	if i == 0 {
		return 0
	}
	return d.ys[i] - rowHeight/2
}

// bars writes the spans that end in rows from to before to; the last rows have those that do not end.
func (d *drawing) bars(w io.Writer, from, to int) {
	for _, s := range d.t.spans {
		end, last := d.height, len(d.t.rows)
		if s.to >= 0 {
			end, last = d.ys[s.to], s.to
		}
		if last < from || last >= to && (s.to >= 0 || to < len(d.t.rows)) {
			continue
		}
		begin := d.ys[s.from]
		x, width := 0.0, float64(barWidth)
		switch s.style {
		case spanDown:
			i := slices.IndexFunc(d.groups, func(g group) bool { return g.class == "node" && g.name == s.cn.String() })
			if i < 0 {
				continue
			}
			x, width = d.groups[i].left, d.groups[i].right-d.groups[i].left
		case spanNetwork:
			x = s.lane.x - barWidth*1.5 + float64(s.slot)*barWidth
			width = barWidth - 3
		case spanOperation:
			width = barWidth + 8
			x = s.lane.x - width/2
		case spanWait, spanRelease:
			width = barWidth - 5
			x = s.lane.x - width/2
		default:
			x = s.lane.x - width/2
		}
		fmt.Fprintf(w, `<rect class="%s" x="%s" y="%s" width="%s" height="%s" rx="2"><title>%s</title></rect>`,
			styleNames[s.style], coord(x), coord(begin), coord(width), coord(max(end-begin, 2)), esc(s.more))
		if s.label != "" && s.label != "lock" && (s.style == spanExclusive || s.style == spanShared) && end-begin > 30 {
			fmt.Fprintf(w, `<text class="barname" transform="translate(%s %s) rotate(90)">%s</text>`, coord(x+width+3), coord(begin+6), esc(cut(s.label, int((end-begin)/6))))
		}
	}
	fmt.Fprintf(w, "\n")
}

// lines writes rows from to before to.
func (d *drawing) lines(w io.Writer, from, to int) {
	for _, g := range d.gaps {
		if g.row < from || g.row >= to {
			continue
		}
		text := "⋮"
		if g.ns >= longNs {
			text = "+" + micros(g.ns)
		}
		fmt.Fprintf(w, `<text class="gap" x="%d" y="%s" text-anchor="end">%s</text>`, timeWidth-8, coord(g.y+3), text)
	}
	for i := from; i < to; i++ {
		d.row(w, i)
	}
}

// row writes one row: its time, its arrow, its text.
func (d *drawing) row(w io.Writer, i int) {
	t, r, y := d.t, &d.t.rows[i], d.ys[i]
	class := kindNames[r.kind]
	if r.bad {
		class += " bad"
	}
	fmt.Fprintf(w, `<g class="row %s" data-k="%d"><rect class="hit" x="0" y="%s" width="%s" height="%d"/>`, class, r.key, coord(y-rowHeight/2), coord(d.width), rowHeight)
	if r.kind == kindObjection || r.kind == kindFault {
		fmt.Fprintf(w, `<line class="across" x1="%d" y1="%s" x2="%s" y2="%s"/>`, timeWidth, coord(y), coord(d.right-6), coord(y))
	}
	fmt.Fprintf(w, `<text class="time" x="%d" y="%s" text-anchor="end">%s</text>`, timeWidth-8, coord(y+4), t.time(i))
	if r.lane != nil {
		d.arrow(w, r, y)
	}
	fmt.Fprintf(w, `<text class="what" x="%s" y="%s">`, coord(d.right), coord(y+4))
	if name := who(r); name != "" {
		fmt.Fprintf(w, `<tspan class="who">%s</tspan> `, esc(name))
	}
	more := strings.TrimSpace(who(r) + " " + r.text)
	switch {
	case r.kind == kindObjection:
		more = r.more
	case r.more != "" && r.more != more:
		more += "\n" + r.more
	}
	fmt.Fprintf(w, `%s</text><title>%s</title></g>`+"\n", esc(cut(r.text, maxText)), esc(more))
}

// arrow writes the arrow of a row, or a dot.
func (d *drawing) arrow(w io.Writer, r *row, y float64) {
	x := r.lane.x
	mark := func() {
		switch r.kind {
		case kindObjection, kindFault:
			fmt.Fprintf(w, `<path class="cross" d="M%s %sl8 8m0 -8l-8 8"/>`, coord(x-4), coord(y-4))
		case kindNote:
			fmt.Fprintf(w, `<rect class="dot" x="%s" y="%s" width="7" height="7" transform="rotate(45 %s %s)"/>`, coord(x-3.5), coord(y-3.5), coord(x), coord(y))
		default:
			fmt.Fprintf(w, `<circle class="dot" cx="%s" cy="%s" r="2.6"/>`, coord(x), coord(y))
		}
	}
	if r.from < 0 || d.t.rows[r.from].lane == nil || d.t.rows[r.from].lane == r.lane {
		mark()
	}
	if r.from >= 0 && d.t.rows[r.from].lane != nil && d.t.rows[r.from].lane != r.lane {
		x0, y0 := d.t.rows[r.from].lane.x, d.ys[r.from]
		dx, dy := x-x0, y-y0
		n := math.Hypot(dx, dy)
		fmt.Fprintf(w, `<path class="arrow" d="M%s %sL%s %s"/>`, coord(x0), coord(y0), coord(x-dx/n*3), coord(y-dy/n*3))
		// The head: a triangle along the line.
		ux, uy := dx/n, dy/n
		fmt.Fprintf(w, `<path class="tip" d="M%s %sL%s %sL%s %sz"/>`, coord(x), coord(y),
			coord(x-9*ux+3.6*uy), coord(y-9*uy-3.6*ux), coord(x-9*ux-3.6*uy), coord(y-9*uy+3.6*ux))
		if r.label != "" {
			anchor, at := "end", x-13
			if dx < 0 {
				anchor, at = "start", x+13
			}
			fmt.Fprintf(w, `<text class="label" x="%s" y="%s" text-anchor="%s">%s</text>`, coord(at), coord(y-2.5), anchor, esc(r.label))
		}
	} else if r.label != "" && r.kind != kindNote {
		fmt.Fprintf(w, `<text class="label" x="%s" y="%s">%s</text>`, coord(x+7), coord(y-2.5), esc(r.label))
	}
}
