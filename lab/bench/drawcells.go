package bench

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sizes of panels.
const (
	cellWidth   = 1.15 * vg.Centimeter
	cellHeight  = 0.8 * vg.Centimeter
	panelGap    = 0.5 * vg.Centimeter
	panelHead   = 1.5 * vg.Centimeter // title, name of the columns, their labels
	pictureHead = 1.0 * vg.Centimeter
	pictureFoot = 1.7 * vg.Centimeter // legend and note
	margin      = 0.3 * vg.Centimeter
	wider       = 1.25 // than the measured one another font may be that stands in for it
)

// left is the room that a panel needs for the labels of its rows.
func (p *Panel) left() vg.Length {
	width := vg.Length(0)
	for _, name := range p.Rows {
		width = max(width, style(9, black).Width(name)*wider+0.6*vg.Centimeter)
	}
	return width
}

func (p *Panel) width() vg.Length  { return p.left() + vg.Length(len(p.Columns))*cellWidth + panelGap }
func (p *Panel) height() vg.Length { return panelHead + vg.Length(len(p.Rows))*cellHeight + panelGap }

// style is that of a text which is centred on its place.
func style(size float64, c color.Color) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Length(size)}
	return text.Style{Color: c, Font: f, XAlign: text.XCenter, YAlign: text.YCenter, Handler: text.Plain{Fonts: font.DefaultCache}}
}

// cells draws a plot of panels.
func (p *Plot) cells() *vgsvg.Canvas {
	width, height := 22*vg.Centimeter, pictureHead+pictureFoot
	for _, line := range p.Panels {
		sum, most := vg.Length(0), vg.Length(0)
		for i := range line {
			sum += line[i].width()
			most = max(most, line[i].height())
		}
		width, height = max(width, sum+2*margin), height+most
	}
	canvas := vgsvg.New(width, height)
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	title := style(12, black)
	title.XAlign = text.XLeft
	c.FillText(title, vg.Point{X: margin, Y: height - pictureHead/2}, p.Title)
	top := height - pictureHead
	for _, line := range p.Panels {
		left, most := margin, vg.Length(0)
		for i := range line {
			p.panel(c, &line[i], left, top)
			left += line[i].width()
			most = max(most, line[i].height())
		}
		top -= most
	}
	p.legend(c)
	return canvas
}

// panel draws a panel below and right of a point.
func (p *Plot) panel(c draw.Canvas, x *Panel, left, top vg.Length) {
	title := style(10, black)
	title.XAlign = text.XLeft
	left += x.left()
	c.FillText(title, vg.Point{X: left, Y: top - 0.25*vg.Centimeter}, x.Title)
	name := style(8, grey)
	name.XAlign = text.XLeft
	c.FillText(name, vg.Point{X: left, Y: top - 0.7*vg.Centimeter}, x.Across)
	for i, column := range x.Columns {
		c.FillText(style(9, black), vg.Point{X: left + (vg.Length(i)+0.5)*cellWidth, Y: top - panelHead + 0.3*vg.Centimeter}, column)
	}
	row := style(9, black)
	row.XAlign = text.XRight
	for k, name := range x.Rows {
		bottom := top - panelHead - vg.Length(k+1)*cellHeight
		c.FillText(row, vg.Point{X: left - 0.25*vg.Centimeter, Y: bottom + cellHeight/2}, name)
		for i, column := range x.Columns {
			if cell, ok := x.Cells[[2]string{column, name}]; ok && !math.IsNaN(cell.Value) {
				p.cell(c, cell, vg.Point{X: left + vg.Length(i)*cellWidth, Y: bottom})
			}
		}
	}
}

// cell draws a cell above and right of a point.
func (p *Plot) cell(c draw.Canvas, cell Cell, at vg.Point) {
	fill := p.Scale.color(cell.Value)
	c.FillPolygon(fill, box(at, cellWidth-0.8, cellHeight-0.8))
	ink := color.Color(black)
	if 299*int(fill.R)+587*int(fill.G)+114*int(fill.B) < 128_000 {
		ink = color.White
	}
	format := "%.2f"
	if cell.Value >= 10 {
		format = "%.0f"
	}
	middle := vg.Point{X: at.X + cellWidth/2, Y: at.Y + cellHeight/2}
	if cell.Word != "" {
		c.FillText(style(6.5, ink), vg.Point{X: middle.X, Y: middle.Y - 6}, cell.Word)
		middle.Y += 4
	}
	c.FillText(style(9.5, ink), middle, fmt.Sprintf(format, cell.Value))
}

// legend draws the colours and the note at the bottom.
func (p *Plot) legend(c draw.Canvas) {
	label := style(8, black)
	label.XAlign = text.XLeft
	for i, name := range p.Scale.Labels {
		at := vg.Point{X: margin + vg.Length(i)*2.5*vg.Centimeter, Y: 0.95 * vg.Centimeter}
		c.FillPolygon(p.Scale.Colors[i], box(at, 0.6*vg.Centimeter, 0.4*vg.Centimeter))
		c.FillText(label, vg.Point{X: at.X + 0.7*vg.Centimeter, Y: at.Y + 0.2*vg.Centimeter}, name)
	}
	c.FillText(label, vg.Point{X: margin, Y: 0.45 * vg.Centimeter}, p.Scale.Note)
}

// box returns the corners of a rectangle.
func box(at vg.Point, width, height vg.Length) []vg.Point {
	return []vg.Point{at, {X: at.X + width, Y: at.Y}, {X: at.X + width, Y: at.Y + height}, {X: at.X, Y: at.Y + height}}
}
