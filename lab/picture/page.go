package picture

import (
	"bufio"
	_ "embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
)

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"esc": esc, "bad": bad}).Parse(pageHTML))

// chunkRows is how many rows the page shows at first, and adds at a time.
const chunkRows = 200

// A chunk is some rows as markup, that the page shows on request.
type chunk struct {
	Top         string // where it begins
	Bars, Lines string
}

// WriteHTML writes a page with the picture: the last rows first, the others on request. The page needs no other file and no network.
func (t *Trace) WriteHTML(to io.Writer) error {
	d := t.draw()
	var head, ground, legend strings.Builder
	d.head(&head, 0)
	d.ground(&ground)
	d.legend(&legend)
	var chunks []chunk // the last rows first
	for end := len(t.rows); end > 0; end -= chunkRows {
		begin := max(0, end-chunkRows)
		var bars, lines strings.Builder
		d.bars(&bars, begin, end)
		d.lines(&lines, begin, end)
		chunks = append(chunks, chunk{coord(d.top(begin)), bars.String(), lines.String()})
	}
	objection := slices.IndexFunc(t.rows, func(r row) bool { return r.kind == kindObjection })
	if objection >= 0 { // in which chunk
		objection = (len(t.rows) - 1 - objection) / chunkRows
	}
	if len(chunks) == 0 {
		chunks = append(chunks, chunk{Top: "0"})
	}
	top := d.top(max(0, len(t.rows)-chunkRows))
	w := bufio.NewWriter(to)
	err := pageTemplate.Execute(w, map[string]any{
		"Title": clean(t.Title), "Notes": t.Notes, "CSS": css, "Head": head.String(), "Ground": ground.String(), "Legend": legend.String(),
		"First": chunks[0], "Earlier": chunks[1:], "Width": coord(d.width), "Height": coord(d.height), "Rows": len(t.rows), "Chunk": chunkRows,
		"Objection": objection, "FirstHeight": coord(d.height - top),
		"HeadHeight": headHeight, "LegendHeight": legendHeight, "LegendWidth": legendWidth, "Shown": min(chunkRows, len(t.rows)),
	})
	if err != nil {
		return fmt.Errorf("picture: page: %w", err)
	}
	return w.Flush()
}

// bad reports whether a note says that something is wrong.
func bad(note string) bool {
	return strings.HasPrefix(note, "objection: ") || strings.HasPrefix(note, "fails: ")
}
