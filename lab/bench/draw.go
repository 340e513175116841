package bench

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of a plot.
const (
	plotWidth   = 16 * vg.Centimeter
	plotHeight  = 8.5 * vg.Centimeter
	legendWidth = 4.9 * vg.Centimeter
)

// A look is how a series is drawn. Series differ in colour, dashes and marker, so that
// they differ in grey too.
type look struct {
	color  color.RGBA
	dashes []vg.Length
	shape  draw.GlyphDrawer
}

// The colours of Okabe and Ito, which people who see few colours can tell apart.
var (
	black  = color.RGBA{0x00, 0x00, 0x00, 0xff}
	orange = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	sky    = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	green  = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	blue   = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	red    = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	pink   = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	grey   = color.RGBA{0x80, 0x80, 0x80, 0xff}
)

var (
	dotted = []vg.Length{1.5, 2}
	dashed = []vg.Length{5, 2}
	mixed  = []vg.Length{5, 2, 1.5, 2}
)

// looks of what appears in several plots.
var looks = map[string]look{
	"cas":            {grey, dashed, draw.CrossGlyph{}},
	"cas-cas":        {grey, mixed, draw.BoxGlyph{}},
	"cas-backoff":    {grey, dotted, draw.PlusGlyph{}},
	"dslr":           {orange, dotted, draw.PyramidGlyph{}},
	"dslr+":          {orange, dashed, draw.TriangleGlyph{}},
	"dslr+-overflow": {orange, dotted, draw.PyramidGlyph{}},
	"shift":          {green, mixed, draw.BoxGlyph{}},
	"shift-artifact": {green, dotted, draw.SquareGlyph{}},
	delayed:          {black, dotted, draw.TriangleGlyph{}},
	"cql":            {pink, dashed, draw.PlusGlyph{}},
	"declock-tf":     {sky, nil, draw.CircleGlyph{}},
	"declock-pf":     {blue, nil, draw.RingGlyph{}},
	"declock":        {red, nil, draw.SquareGlyph{}},
	"remote-prefer":  {green, dashed, draw.TriangleGlyph{}},
	"local-prefer":   {orange, dotted, draw.BoxGlyph{}},
	"local-bound":    {black, mixed, draw.CrossGlyph{}},
	"sherman":        {green, mixed, draw.PyramidGlyph{}},
	"paper-tf":       {pink, dotted, draw.CircleGlyph{}},
	"paper-pf":       {pink, mixed, draw.RingGlyph{}},
}

// others are for series that have no look of their own, in their order.
var others = []look{
	{blue, nil, draw.CircleGlyph{}}, {red, dashed, draw.TriangleGlyph{}}, {green, mixed, draw.SquareGlyph{}}, {orange, dotted, draw.CrossGlyph{}},
	{pink, nil, draw.RingGlyph{}}, {black, dashed, draw.PlusGlyph{}}, {sky, dotted, draw.BoxGlyph{}}, {grey, mixed, draw.PyramidGlyph{}},
}

// lookOf returns the look of the i-th series of a plot.
func lookOf(s *Series, i int) look {
	if l, ok := looks[cmp.Or(s.Style, s.Label)]; ok {
		return l
	}
	return others[i%len(others)]
}

// WriteSVG draws the plot as a picture of its own.
func (p *Plot) WriteSVG(w io.Writer) error {
	if len(p.Panels) > 0 {
		return p.write(p.cells(), w)
	}
	g := plot.New()
	for _, t := range []*text.Style{&g.Title.TextStyle, &g.X.Label.TextStyle, &g.Y.Label.TextStyle, &g.X.Tick.Label, &g.Y.Tick.Label, &g.Legend.TextStyle} {
		t.Font.Variant, t.Font.Size = "Sans", 9
	}
	g.Title.TextStyle.Font.Size = 11
	g.Title.Text = p.Title
	g.Title.Padding = 6
	g.BackgroundColor = color.White
	g.X.Label.Text, g.Y.Label.Text = p.X.Label, p.Y.Label
	grid := plotter.NewGrid()
	grid.Horizontal.Color = color.Gray{0xd8}
	grid.Vertical.Color = color.Gray{0xec}
	g.Add(grid)
	legend := plot.NewLegend()
	legend.TextStyle = g.Legend.TextStyle
	legend.Top, legend.Left = true, true
	legend.ThumbnailWidth = 1 * vg.Centimeter
	legend.Padding = 3
	var err error
	if len(p.Groups) > 0 {
		err = p.bars(g, &legend)
	} else {
		err = p.lines(g, &legend)
	}
	if err != nil {
		return fmt.Errorf("bench: plot %s: %w", p.Name, err)
	}
	p.axes(g)
	canvas := vgsvg.New(plotWidth, plotHeight)
	all := draw.New(canvas)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	g.Draw(draw.Crop(all, 4, -legendWidth, 4, -4))
	side := draw.Crop(all, plotWidth-legendWidth+6, 0, 0, -24)
	legend.Draw(side)
	return p.write(canvas, w)
}

// write writes what was drawn.
func (p *Plot) write(canvas *vgsvg.Canvas, w io.Writer) error {
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("bench: plot %s: %w", p.Name, err)
	}
	// The viewer may not have the font. And each text says what is so by default.
	picture := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans"), []byte("font-family:'Liberation Sans',Arial,sans-serif"))
	picture = bytes.ReplaceAll(picture, []byte(";font-variant:normal;font-weight:normal;font-style:normal"), nil)
	_, err := w.Write(picture)
	return err
}

// axes sets ranges, scales and ticks.
func (p *Plot) axes(g *plot.Plot) {
	for _, a := range []struct {
		axis *Axis
		g    *plot.Axis
	}{{&p.X, &g.X}, {&p.Y, &g.Y}} {
		if a.g == &g.X && len(p.Groups) > 0 {
			continue // bars have set it
		}
		if a.g.Min > a.g.Max { // nothing is drawn
			a.g.Min, a.g.Max = 1, 10
		}
		if a.axis.Log {
			a.g.Scale = plot.LogScale{}
			a.g.Tick.Marker = logTicks{}
			if a.g == &g.Y {
				a.g.Min, a.g.Max = a.g.Min/1.2, a.g.Max*1.2
			}
		} else {
			if a.g == &g.Y {
				a.g.Min, a.g.Max = 0, a.g.Max*1.05
			}
		}
		if len(a.axis.Ticks) > 0 {
			var ticks []plot.Tick
			for _, v := range a.axis.Ticks {
				ticks = append(ticks, plot.Tick{Value: v, Label: Figure(v)})
			}
			a.g.Tick.Marker = plot.ConstantTicks(ticks)
		}
		if a.g.Min == a.g.Max {
			a.g.Max = a.g.Min + 1
		}
	}
}

// logTicks labels the powers of ten, as numbers and not as exponents; within few decades also 2 and 5.
type logTicks struct{}

// Ticks implements plot.Ticker.
func (logTicks) Ticks(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	few := high/low < 300
	for d := math.Pow(10, math.Floor(math.Log10(low))); d <= high; d *= 10 {
		for k := 1.0; k < 10; k++ {
			v := d * k
			if v < low*0.999 || v > high*1.001 {
				continue
			}
			t := plot.Tick{Value: v}
			if k == 1 || few && (k == 2 || k == 5) {
				t.Label = Figure(v)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// lines draws the series as lines with markers and error bars.
func (p *Plot) lines(g *plot.Plot, legend *plot.Legend) error {
	for i := range p.Series {
		s := &p.Series[i]
		l := lookOf(s, i)
		var pts plotter.XYs
		var errs plotter.YErrors
		for _, v := range s.XY {
			if p.X.Log && v.X <= 0 || p.Y.Log && v.Y <= 0 {
				continue // a logarithmic axis has no zero
			}
			pts = append(pts, plotter.XY{X: v.X, Y: v.Y})
			low := v.Half
			if p.Y.Log {
				low = min(low, v.Y*0.9)
			}
			errs = append(errs, struct{ Low, High float64 }{low, v.Half})
		}
		if len(pts) == 0 {
			continue
		}
		line, points, err := plotter.NewLinePoints(pts)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = l.color, 1.4, l.dashes
		points.Color, points.Shape, points.Radius = l.color, l.shape, 2.8
		bars, err := plotter.NewYErrorBars(struct {
			plotter.XYer
			plotter.YErrorer
		}{pts, errs})
		if err != nil {
			return err
		}
		bars.Color, bars.CapWidth = l.color, 3
		if len(pts) <= 40 {
			g.Add(bars, line, points)
			legend.Add(s.Label, line, points)
		} else {
			g.Add(line)
			legend.Add(s.Label, line)
		}
	}
	return nil
}

// barsWidth is what the bars of a group take of the width of the group, and groupsWidth what all groups take of the plot's.
const (
	barsWidth   = 0.8
	groupsWidth = plotWidth - legendWidth - 1.5*vg.Centimeter
)

// bars draws the series as bars in groups.
func (p *Plot) bars(g *plot.Plot, legend *plot.Legend) error {
	width := groupsWidth * barsWidth / vg.Length(len(p.Groups)*max(len(p.Series), 1))
	for i := range p.Series {
		s := &p.Series[i]
		var values plotter.Values
		for _, v := range s.XY {
			values = append(values, v.Y)
		}
		if len(values) == 0 {
			continue
		}
		b, err := plotter.NewBarChart(values, width*0.92)
		if err != nil {
			return err
		}
		b.Color, b.LineStyle.Width = lookOf(s, i).color, 0.5
		b.Offset = width * (vg.Length(i) - vg.Length(len(p.Series)-1)/2)
		g.Add(b)
		legend.Add(s.Label, b)
	}
	g.NominalX(p.Groups...)
	g.X.Min, g.X.Max = -0.6, float64(len(p.Groups))-0.4
	return nil
}
