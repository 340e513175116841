package page

import (
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
	for _, want := range []string{"compute node cn1", "1,099/s", "of this node", "mn0&#43;0x40", "25.0%", "locks &lt;b&gt;orders", ">17<", "reset: mn0&#43;0x80", "yet: cn9", "mn4 is being copied to a new backup: 25 %", "mn6 on mn7 is not in sync: added", "256 MiB", "mn1: it was down", "etcd has not answered for 7 s", "&lt;script&gt;", "<polyline", "</html>"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, no := range []string{"<script", "http://", "https://", "url(", "NaN", "Inf"} {
		if strings.Contains(out, no) {
			t.Errorf("it has %q", no)
		}
	}
	if n := strings.Count(out, "<figure>"); n != 5 {
		t.Errorf("%d charts", n)
	}
	for _, x := range []*control.Status{nil, {}} { // it starts; it has done nothing
		if out := get(new(History), x); !strings.Contains(out, "</html>") {
			t.Errorf("of %v: %s", x, out)
		}
	}
	w := httptest.NewRecorder()
	Memory(func() fabric.Memory { return fabric.Memory{ID: 3, Size: 1 << 30} }, "shm:demo").ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	if out := w.Body.String(); !strings.Contains(out, "memory node mn3") || !strings.Contains(out, "1 GiB") || !strings.Contains(out, "</html>") {
		t.Error(out)
	}
}

// A browser as narrow as a phone draws it, dark and light. DECLOCK_SCREENSHOTS names a directory for pictures, to be looked at.
func TestPageInABrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil || testing.Short() {
		t.Skip("needs chromium")
	}
	h, s := sample()
	srv := httptest.NewServer(h.Handler(func() *control.Status { return s }))
	defer srv.Close()
	for _, dark := range []string{"0", "1"} { // 0 is dark
		file := filepath.Join(t.TempDir(), "page.png")
		cmd := exec.Command(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+t.TempDir(), "--window-size=400,2000",
			"--blink-settings=preferredColorScheme="+dark, "--screenshot="+file, srv.URL)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if b, err := os.ReadFile(file); err != nil || len(b) < 10_000 {
			t.Errorf("a screenshot of %d bytes, %v", len(b), err)
		} else if keep := os.Getenv("DECLOCK_SCREENSHOTS"); keep != "" {
			if err := os.WriteFile(filepath.Join(keep, "page-"+dark+".png"), b, 0o644); err != nil {
				t.Error(err)
			}
		}
	}
}
