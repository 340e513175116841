// Package page is what a compute node shows to people in a browser: HTML and SVG, without scripts and without anything from elsewhere.
package page

import (
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/front"
)

const (
	// Every is how often a node is looked at.
	Every = 2 * time.Second
	// kept is how many intervals are shown: five minutes.
	kept = 150
	// minutes are those.
	minutes = int(kept * Every / time.Minute)
	// refresh is after how many seconds a browser asks again.
	refresh = 5
)

//go:embed page.html
var source string

//go:embed charts.html
var charts string

//go:embed style.css
var style string

var page = parse("page", source)

// parse parses a page, with what all have.
func parse(name, text string) *template.Template {
	t := template.Must(template.New(name).Funcs(template.FuncMap{"bytes": units.Bytes, "percent": percent}).Parse(text))
	template.Must(t.New("charts").Parse(charts))
	template.Must(t.New("style").Parse(style))
	return t
}

// A History has what a node has done lately. The zero value is ready.
type History struct {
	mu        sync.Mutex
	last      *control.Seen
	at        time.Time
	intervals []interval // the newest last
}

// An interval is what a node has done between two looks.
type interval struct {
	gets, stores, locks       float64 // a second
	hits                      float64 // of gets; negative: there were none
	getUs, storeUs, acquireUs float64 // each took; negative: none was timed
	ops, bytes                float64 // a second, of memory nodes
}

// Add adds what a node has counted so far.
func (h *History) Add(now control.Seen, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	was, d := h.last, at.Sub(h.at).Seconds()
	h.last, h.at = &now, at
	if was == nil || d <= 0 || now.Locks.Acquires < was.Locks.Acquires || now.Store.Gets < was.Store.Gets || now.NIC.Total() < was.NIC.Total() { // it has joined again
		return
	}
	x := interval{hits: -1}
	x.ops, x.bytes = float64(now.NIC.Total()-was.NIC.Total())/d, float64(now.NIC.ReadBytes+now.NIC.WriteBytes-was.NIC.ReadBytes-was.NIC.WriteBytes)/d
	gets := float64(now.Store.Gets - was.Store.Gets)
	x.gets, x.stores, x.locks = gets/d, float64(now.Store.Stores-was.Store.Stores)/d, float64(now.Locks.Acquires-was.Locks.Acquires)/d
	if gets > 0 {
		x.hits = 100 * float64(now.Store.Hits-was.Store.Hits) / gets
	}
	took := func(now, was front.Timed) float64 {
		if now.Count <= was.Count {
			return -1
		}
		return float64(now.Ns-was.Ns) / float64(now.Count-was.Count) / 1e3
	}
	x.getUs, x.storeUs = took(now.Gets, was.Gets), took(now.Stores, was.Stores)
	x.acquireUs = took(front.Timed{Count: now.Acquisitions, Ns: now.AcquireNs}, front.Timed{Count: was.Acquisitions, Ns: was.AcquireNs})
	if h.intervals = append(h.intervals, x); len(h.intervals) > kept {
		h.intervals = h.intervals[1:]
	}
}

// A chart is a line over the last minutes.
type chart struct {
	Title, Now, Most string
	Lines            []string // points of SVG polylines
}

// Size of a chart's drawing, in units of its own.
const (
	chartWidth  = 300
	chartHeight = 60
)

// chart draws one number of each interval. A negative one is a gap.
func (h *History) chart(title, unit string, most float64, of func(*interval) float64) chart {
	c := chart{Title: title, Now: "-"}
	for i := range h.intervals {
		most = max(most, of(&h.intervals[i]))
	}
	var line []string
	end := func() {
		if len(line) > 0 {
			c.Lines = append(c.Lines, strings.Join(line, " "))
		}
		line = nil
	}
	for i := range h.intervals {
		y := of(&h.intervals[i])
		if y < 0 {
			c.Now = "-"
			end()
			continue
		}
		x, height := float64(chartWidth)*float64(kept-len(h.intervals)+i)/kept, chartHeight*(1-y/max(most, 1e-9))
		if len(line) == 0 { // an interval between two gaps is to be seen
			line = append(line, fmt.Sprintf("%.1f,%.1f", x, height))
		}
		line = append(line, fmt.Sprintf("%.1f,%.1f", x+float64(chartWidth)/kept, height))
		c.Now = number(y) + unit
	}
	end()
	c.Most = number(most) + unit
	return c
}

func number(x float64) string {
	switch {
	case x >= 1000:
		return units.Count(uint64(x))
	case x >= 10 || x == float64(int(x)):
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }

// A view is what the page is made of.
type view struct {
	*control.Status
	Up        string
	Now       string
	Refresh   int
	Charts    []chart
	Problems  []string
	Minutes   int
	TakenPart func(control.Memory) int
}

// problems returns what is wrong, or being repaired.
func problems(s *control.Status) (list []string) {
	if s.Coordinator != nil && s.Coordinator.Error != "" {
		list = append(list, fmt.Sprintf("etcd has not answered for %.0f s: no node can join, and crashes go unnoticed: %s", s.Coordinator.SilentS, s.Coordinator.Error))
	}
	if c := s.Copying; c != nil {
		list = append(list, fmt.Sprintf("%s is being copied to a new backup: %.0f %% of the buckets are there", c.Number, c.Percent()))
	}
	for _, r := range s.Repairs {
		if c := s.Copying; c == nil || c.Number != r.Number {
			list = append(list, fmt.Sprintf("the copy of %s on %s is not in sync: %s", r.Number, r.On, r.Phase))
		}
	}
	if len(s.Resetting) > 0 {
		list = append(list, "locks that are being reset: "+strings.Join(s.Resetting, ", "))
	}
	if len(s.Fencing) > 0 {
		list = append(list, "gone, and not shut out of memory yet: "+strings.Join(s.Fencing, ", "))
	}
	for _, m := range s.Memory {
		if m.Error != "" {
			list = append(list, m.Node+": "+m.Error)
		}
	}
	return list
}

// Handler serves the page of a node. status returns nil while the node starts or leaves.
func (h *History) Handler(status func() *control.Status) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		v := view{Now: time.Now().Format(time.TimeOnly), Refresh: refresh, Minutes: minutes}
		if v.Status = status(); v.Status != nil {
			v.Problems, v.Up = problems(v.Status), (time.Duration(v.UptimeS) * time.Second).String()
		}
		v.TakenPart = func(m control.Memory) int { return int(100 * m.Used / max(m.Size, 1)) }
		h.mu.Lock()
		v.Charts = []chart{
			h.chart("Gets", "/s", 0, func(x *interval) float64 { return x.gets }),
			h.chart("Time of a get", " us", 0, func(x *interval) float64 { return x.getUs }),
			h.chart("Stores", "/s", 0, func(x *interval) float64 { return x.stores }),
			h.chart("Time of a store", " us", 0, func(x *interval) float64 { return x.storeUs }),
			h.chart("Hit ratio", "%", 100, func(x *interval) float64 { return x.hits }),
			h.chart("Locks acquired", "/s", 0, func(x *interval) float64 { return x.locks }),
			h.chart("Time to acquire a lock", " us", 0, func(x *interval) float64 { return x.acquireUs }),
		}
		h.mu.Unlock()
		headers(w)
		_ = page.ExecuteTemplate(w, "page", &v) // a reader that has gone needs no answer
	}
}

// headers says what is served: nothing that runs, nothing from elsewhere.
func headers(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
}
