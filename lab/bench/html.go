package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Parse(reportHTML))

// section is an experiment in the report.
type section struct {
	*Experiment
	Cut      bool
	Claims   []claimLine
	Head     []string
	Rows     [][]string
	Pictures []template.HTML
	CameOut  string
}

// claimLine is a claim in the report.
type claimLine struct {
	Text, Note string
	Class      string
	Cells      []string
}

// WriteHTML writes one page that holds everything: tables, claims, plots, and the constants of the model.
func (d *Document) WriteHTML(w io.Writer) error {
	page := struct {
		*Document
		Remarks  []string
		Verdicts string
		Model    []Constant
		NIC      string
		Note     string
		Missed   []claimLine
		Sections []section
	}{Document: d, Verdicts: verdicts(d.Claims()), NIC: d.Config.NIC, Note: ModelNote, Remarks: append(d.Unsteady(), d.Costs()...)}
	var err error
	if page.Model, err = Constants(page.NIC); err != nil {
		return err
	}
	for i := range d.Outcomes {
		s, err := newSection(&d.Outcomes[i])
		if err != nil {
			return err
		}
		page.Sections = append(page.Sections, s)
		for _, c := range s.Claims {
			if c.Class == "no" || c.Class == "part" {
				c.Text = s.Name + ": " + c.Text
				page.Missed = append(page.Missed, c)
			}
		}
	}
	if err := reportTemplate.Execute(w, page); err != nil {
		return fmt.Errorf("bench: report: %w", err)
	}
	return nil
}

func newSection(o *Outcome) (section, error) {
	s := section{Experiment: o.Experiment, Cut: o.Cut, Head: o.columns()}
	for i := range o.Claims {
		c := &o.Claims[i]
		class := map[Verdict]string{ComesOut: "yes", DoesNot: "no", InPart: "part", NotMeasured: "none"}[c.Verdict]
		s.Claims = append(s.Claims, claimLine{Text: c.label(), Note: c.remark(), Class: class, Cells: c.cells()})
	}
	if len(o.Claims) > 0 {
		s.CameOut = verdicts(o.Claims)
	}
	for i := range o.Rows {
		var line []string
		for _, c := range s.Head {
			line = append(line, o.Rows[i].Cell(c))
		}
		s.Rows = append(s.Rows, line)
	}
	if o.Experiment.Plots == nil || len(o.Rows) == 0 {
		return s, nil
	}
	for _, p := range o.Experiment.Plots(o.Rows) {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			return s, err
		}
		// Only the element: a page has no place for the declaration of a document.
		text := b.String()
		if at := strings.Index(text, "<svg"); at > 0 {
			text = text[at:]
		}
		s.Pictures = append(s.Pictures, template.HTML(text)) // made here, of our own labels
	}
	return s, nil
}
