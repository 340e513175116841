package picture

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"strings"
)

//go:embed picture.css
var css string

// WriteSVG writes the whole trace as one picture: for traces that are short.
func (t *Trace) WriteSVG(to io.Writer) error {
	d := t.draw()
	w := bufio.NewWriter(to)
	const title = 30
	height := title + headHeight + d.height + legendHeight
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%s" height="%s">`+"\n", coord(d.width), coord(height), coord(d.width), coord(height))
	fmt.Fprintf(w, "<style>\n%s</style>\n", css)
	fmt.Fprintf(w, `<rect class="paper" width="%s" height="%s"/><text x="10" y="20" style="font:700 14px system-ui,'DejaVu Sans',sans-serif">%s</text>`+"\n", coord(d.width), coord(height), esc(t.Title))
	d.head(w, title)
	fmt.Fprintf(w, `<g transform="translate(0 %d)">`+"\n", title+headHeight)
	d.ground(w)
	d.bars(w, 0, len(t.rows))
	d.lines(w, 0, len(t.rows))
	fmt.Fprintf(w, "</g>\n"+`<g transform="translate(0 %s)">`+"\n", coord(title+headHeight+d.height))
	d.legend(w)
	fmt.Fprintf(w, "</g>\n</svg>\n")
	return w.Flush()
}

const legendHeight = 34

// legend explains arrows and bars, in one line.
func (d *drawing) legend(w io.Writer) {
	x := 10.0
	text := func(s string) {
		fmt.Fprintf(w, `<text class="lanename" x="%s" y="21">%s</text>`, coord(x), esc(s))
		x += float64(len(s))*6.1 + 16
	}
	arrow := func(class, s string) {
		fmt.Fprintf(w, `<g class="%s"><path class="arrow" d="M%s 17h24"/><path class="tip" d="M%s 17l-9 -3.6v7.2z"/></g>`, class, coord(x), coord(x+28))
		x += 34
		text(s)
	}
	bar := func(class, s string) {
		width := barWidth
		if class == "wait" || class == "release" {
			width = barWidth - 5
		}
		fmt.Fprintf(w, `<rect class="%s" x="%s" y="8" width="%d" height="18" rx="2"/>`, class, coord(x), width)
		x += float64(width) + 6
		text(s)
	}
	for _, a := range [][2]string{{"atomic", "FAA, CAS"}, {"write", "WRITE"}, {"read", "READ"}, {"answer", "answer"}, {"message", "message"}} {
		arrow(a[0], a[1])
	}
	for _, b := range [][2]string{{"wait", "waits"}, {"exclusive", "holds exclusively"}, {"shared", "holds shared"}, {"release", "releases"}} {
		bar(b[0], b[1])
	}
	fmt.Fprintf(w, "\n")
}

// clean returns a text for a title.
func clean(s string) string { return strings.ReplaceAll(s, "\n", " ") }
