package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed report.html
var reportHTML string

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"verdicts": verdicts,
	"label":    Claim.label,
	"remark":   Claim.remark,
	"cells":    Claim.cells,
	"class": func(v Verdict) string {
		return [...]string{NotMeasured: "none", ComesOut: "yes", DoesNot: "no", InPart: "part"}[v]
	},
	"table":    (*Outcome).table,
	"pictures": (*Outcome).pictures,
}).Parse(reportHTML))

// WriteHTML writes one page that holds everything: tables, claims, plots, and the constants of the model.
func (d *Document) WriteHTML(w io.Writer) error {
	page := struct {
		*Document
		Remarks  []string
		Model    []Constant
		Loads    []Constant
		Note     string
		Missed   []Claim
		Sections []*Outcome
	}{Document: d, Loads: LoadConstants(), Note: ModelNote, Remarks: append(d.Unsteady(), d.Costs()...)}
	var err error
	if page.Model, err = Constants(d.Config.NIC); err != nil {
		return err
	}
	for i := range d.Outcomes {
		page.Sections = append(page.Sections, &d.Outcomes[i])
	}
	for _, c := range d.Claims() {
		if c.missed() {
			page.Missed = append(page.Missed, c)
		}
	}
	if err := reportTemplate.Execute(w, page); err != nil {
		return fmt.Errorf("bench: report: %w", err)
	}
	return nil
}

// pictures are the plots of an experiment, to stand in a page.
func (o *Outcome) pictures() (list []template.HTML, err error) {
	for _, p := range o.plots() {
		var b bytes.Buffer
		if err := p.WriteSVG(&b); err != nil {
			return nil, err
		}
		// Only the element: a page has no place for the declaration of a document.
		at := max(bytes.Index(b.Bytes(), []byte("<svg")), 0)
		list = append(list, template.HTML(b.Bytes()[at:])) // made here, of our own labels
	}
	return list, nil
}
