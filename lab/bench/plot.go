package bench

import (
	"image/color"
	"strings"
)

// A Plot is one figure: lines, bars in groups, or panels of cells.
type Plot struct {
	Name  string // of its file, without extension: fig12a
	Title string
	X, Y  Axis
	// Series are lines; with Groups they are bars, one in each group.
	Series []Series
	// Groups names the groups of bars. The i-th value of a series stands in the i-th group.
	Groups []string
	// Panels are tables of cells in colours, in lines; with them there are no series and no axes.
	Panels [][]Panel
	Scale  *Scale
}

// A Panel is a table of cells.
type Panel struct {
	Title         string
	Across        string // what the columns are
	Columns, Rows []string
	Cells         map[[2]string]Cell // by column and row; those that are missing stay empty
}

// A Cell is a figure in a colour.
type Cell struct {
	Value float64
	Word  string // in small letters below it
}

// A Scale says which colour a cell has.
type Scale struct {
	// Bounds divide the values; there is one colour more than bounds, and a label for each.
	Bounds []float64
	Colors []color.RGBA
	Labels []string
	Note   string // below the picture
}

// color returns the colour of a value.
func (s *Scale) color(v float64) color.RGBA {
	i := 0
	for i < len(s.Bounds) && v >= s.Bounds[i] {
		i++
	}
	return s.Colors[i]
}

// An Axis is one axis of a plot.
type Axis struct {
	Label string // with the unit
	Log   bool
	// Ticks are the values that are labelled; none: chosen by the range.
	Ticks []float64
}

// A Series is a line, or bars of one kind.
type Series struct {
	Label string
	// Style is the name of a lock, or any other word: the same has the same
	// looks in all plots. "" means Label.
	Style string
	XY    []XY
}

// An XY is a point; Half is half of its confidence interval in Y.
type XY struct{ X, Y, Half float64 }

// Line returns the series of a metric over a parameter, of rows in their order.
func (rs Rows) Line(label, param, metric string) Series {
	s := Series{Label: label}
	for i := range rs {
		e := rs[i].Metrics[metric]
		s.XY = append(s.XY, XY{rs[i].Value(param), e.Mean, e.Half})
	}
	return s
}

// LinesByLock returns a line for each lock of the rows.
func (rs Rows) LinesByLock(param, metric string) []Series {
	var list []Series
	for _, name := range rs.Distinct("lock") {
		list = append(list, rs.Where("lock", name).Line(name, param, metric))
	}
	return list
}

// bars returns a plot of a metric: a group of bars for each value of a parameter, a bar for each lock.
func (rs Rows) bars(name, title, param, metric string, y Axis) Plot {
	p := Plot{Name: name, Title: title, X: Axis{Label: param}, Y: y}
	groups := rs.Distinct(param)
	for _, lock := range rs.Distinct("lock") {
		s := Series{Label: lock}
		for i, group := range groups { // of one that was not measured, a bar of no height
			e := rs.Find("lock", lock, param, group).Metrics[metric]
			s.XY = append(s.XY, XY{float64(i), e.Mean, e.Half})
		}
		p.Series = append(p.Series, s)
	}
	for _, group := range groups {
		p.Groups = append(p.Groups, strings.ReplaceAll(group, ", ", ",\n"))
	}
	return p
}
