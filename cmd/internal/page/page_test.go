package page

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/fabric"
)

// sample is a node that has done something, of which a name wants to be HTML.
func sample() (*History, *control.Status) {
	h, at := new(History), time.Unix(1000, 0)
	var seen control.Seen
	for i := range uint64(200) {
		h.Add(seen, at)
		at = at.Add(Every)
		if i%50 > 10 { // at times nothing is done
			seen.Store.Gets, seen.Store.Hits, seen.Store.Stores = seen.Store.Gets+2000+i, seen.Store.Hits+1000, seen.Store.Stores+300
			seen.Gets.Count, seen.Gets.Ns, seen.Stores.Count, seen.Stores.Ns = seen.Gets.Count+30, seen.Gets.Ns+30*12_000, seen.Stores.Count+3, seen.Stores.Ns+3*34_000
			seen.Locks.Acquires, seen.Acquisitions, seen.AcquireNs = seen.Locks.Acquires+700, seen.Acquisitions+10, seen.AcquireNs+10*(500+i)
		}
	}
	h.Add(control.Seen{}, at) // it has joined again
	return h, &control.Status{
		Node: "cn1", Address: "shm:demo", Live: []string{"cn1", "cn2"}, Seen: seen, Hot: []control.HotLock{{Lock: "mn0+0x40", Share: 0.25, AcquireUs: 3, Of: "locks <b>orders</b>", Held: 1, Waiting: 17, Queued: 5}},
		Resetting: []string{"mn0+0x80"}, Fencing: []string{"cn9"}, Repairs: []control.Repair{{Number: "mn4", On: "mn5", Phase: "copying"}, {Number: "mn6", On: "mn7", Phase: "added"}},
		Copying: &control.Copying{Number: "mn4", Done: 30, All: 120},
		Memory: []control.Memory{{Node: "mn0", Size: 1 << 30, Used: 1 << 28, Entries: []control.Entry{{Name: "<script>alert(1)</script>", Kind: "store", Taken: 1 << 20}}},
			{Node: "mn1", Error: "it was down"}},
		Coordinator: &control.Coordinator{SilentS: 7, Error: "refused"},
	}
}

func get(h *History, s *control.Status) string {
	w := httptest.NewRecorder()
	h.Handler(func() *control.Status { return s })(w, httptest.NewRequest("GET", "/", nil))
	return w.Body.String()
}

// The page has what the node does, in full, and nothing that runs or comes from elsewhere.
func TestPage(t *testing.T) {
	h, s := sample()
	out := get(h, s)
	for _, want := range []string{"compute node cn1", "1,099/s", "Time of a get: now 12 us", "Time of a store: now 34 us", "of this node", "mn0&#43;0x40", "25.0%", "locks &lt;b&gt;orders", ">17<", "reset: mn0&#43;0x80", "yet: cn9", "mn4 is being copied to a new backup: 25 %", "mn6 on mn7 is not in sync: added", "256 MiB", "mn1: it was down", "etcd has not answered for 7 s", "&lt;script&gt;", "<polyline", "</html>"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, no := range []string{"<script", "http://", "https://", "url(", "NaN", "Inf"} {
		if strings.Contains(out, no) {
			t.Errorf("it has %q", no)
		}
	}
	if n := strings.Count(out, "<figure>"); n != 7 {
		t.Errorf("%d charts", n)
	}
	for _, x := range []*control.Status{nil, {}} { // it starts; it has done nothing
		if out := get(new(History), x); !strings.Contains(out, "</html>") {
			t.Errorf("of %v: %s", x, out)
		}
	}
	w := httptest.NewRecorder()
	m := func() fabric.Memory { return fabric.Memory{ID: 3, Size: 1 << 30} }
	new(History).Memory(m, "shm:demo", false).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if out := w.Body.String(); !strings.Contains(out, "memory node mn3") || !strings.Contains(out, "1 GiB") || !strings.Contains(out, "</html>") || strings.Contains(out, "<svg") {
		t.Error(out)
	}
	h = new(History)
	for i := range uint64(10) {
		var seen control.Seen
		seen.NIC.Ops[fabric.OpRead], seen.NIC.Ops[fabric.OpWrite], seen.NIC.ReadBytes, seen.NIC.WriteBytes = 5000*i, 1000*i, 30_000*i, 20*i
		h.Add(seen, time.Unix(int64(2*i), 0))
	}
	w = httptest.NewRecorder()
	h.Memory(m, "tcp:demo", true).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if out := w.Body.String(); !strings.Contains(out, "Operations: now 3,000/s") || !strings.Contains(out, "15,010/s") || !strings.Contains(out, "<polyline") {
		t.Error(out)
	}
}

// What was done in one interval between two others is to be seen.
func TestLoneInterval(t *testing.T) {
	h := new(History)
	var seen control.Seen
	for i := range 3 {
		if i == 1 {
			seen.Gets.Count, seen.Gets.Ns = 1, 5000
		}
		h.Add(seen, time.Unix(int64(2*i), 0))
	}
	if lines := h.chart("", "", 0, func(x *interval) float64 { return x.getUs }).Lines; len(lines) != 1 || lines[0] != "296.0,0.0 298.0,0.0" {
		t.Errorf("%q", lines)
	}
}

// frame shows the page as narrow as a phone, and says in its title what a reader would see: how wide it is, the contrast of the text that has least, whether it is dark, and what is
// wider than the screen and cannot be scrolled by keys.
const frame = `<!DOCTYPE html><html style="color-scheme: light dark"><iframe id="f" src="/" style="width: 400px; height: 2000px; border: 0"></iframe><script>
f.onload = () => {
	const d = f.contentDocument, style = e => f.contentWindow.getComputedStyle(e)
	const light = colour => {
		const [r, g, b] = colour.match(/[0-9.]+/g).map(x => x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4)
		return 0.2126 * r + 0.7152 * g + 0.0722 * b
	}
	let contrast = 100, stuck = 0
	for (const e of d.querySelectorAll("h1, h2, p, a, b, span, th, td")) {
		let behind = e
		while (style(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement
		const [x, y] = [light(style(e).color), light(style(behind).backgroundColor)]
		contrast = Math.min(contrast, (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05))
	}
	for (const e of d.querySelectorAll("main *")) if (e.scrollWidth > e.clientWidth + 1 && style(e).overflowX === "auto" && e.tabIndex < 0) stuck++
	document.title = "width=" + d.documentElement.scrollWidth + " contrast=" + contrast.toFixed(1) + " dark=" + (light(style(d.body).backgroundColor) < 0.2) + " stuck=" + stuck
}
</script></html>`

// A browser as narrow as a phone draws it, dark and light, within its width and with text that can be read. DECLOCK_SCREENSHOTS names a directory for pictures, to be looked at.
func TestPageInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil || testing.Short() {
		t.Skip("needs chromium")
	}
	h, s := sample()
	mux := http.NewServeMux()
	mux.Handle("/", h.Handler(func() *control.Status { return s }))
	mux.HandleFunc("/frame", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, frame) })
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for _, dark := range []string{"0", "1"} { // 0 is dark
		browse := func(args ...string) string {
			t.Helper()
			cmd := exec.Command(chromium, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + t.TempDir(), "--window-size=400,2000",
				"--blink-settings=preferredColorScheme=" + dark}, args...)...)
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		var width, stuck int
		var contrast float64
		var isDark bool
		dom := browse("--virtual-time-budget=3000", "--dump-dom", srv.URL+"/frame")
		_, title, _ := strings.Cut(dom, "<title>")
		if _, err := fmt.Sscanf(title, "width=%d contrast=%f dark=%t stuck=%d", &width, &contrast, &isDark, &stuck); err != nil {
			t.Errorf("%v: %.200s", err, dom)
		}
		if width > 400 || contrast < 4.5 || isDark != (dark == "0") || stuck > 0 {
			t.Errorf("dark %s: %.80s", dark, title)
		}
		file := filepath.Join(t.TempDir(), "page.png")
		browse("--screenshot="+file, srv.URL)
		if b, err := os.ReadFile(file); err != nil || len(b) < 10_000 {
			t.Errorf("a screenshot of %d bytes, %v", len(b), err)
		} else if keep := os.Getenv("DECLOCK_SCREENSHOTS"); keep != "" {
			if err := os.WriteFile(filepath.Join(keep, "page-"+dark+".png"), b, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}
