package bench

// A Plot is one figure: lines, or bars in groups.
type Plot struct {
	Name  string // of its file, without extension: fig12a
	Title string
	X, Y  Axis
	// Series are lines; with Groups they are bars, one in each group.
	Series []Series
	// Groups names the groups of bars. The i-th value of a series stands in the i-th group.
	Groups []string
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
