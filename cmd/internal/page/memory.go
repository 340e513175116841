package page

import (
	_ "embed" // of pages
	"net/http"

	"github.com/declock/declock/fabric"
)

//go:embed memory.html
var memorySource string

var memoryPage = parse("memory", memorySource)

// Memory serves the page of a memory node, which knows little: compute nodes know what its memory has. counts says that the history has what it has executed: it has that where
// it executes operations itself.
func (h *History) Memory(of func() fabric.Memory, address string, counts bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m := of()
		var list []chart
		if counts {
			h.mu.Lock()
			list = []chart{
				h.chart("Operations", "/s", 0, func(x *interval) float64 { return x.ops }),
				h.chart("Bytes read and written", "/s", 0, func(x *interval) float64 { return x.bytes }),
			}
			h.mu.Unlock()
		}
		headers(w)
		_ = memoryPage.ExecuteTemplate(w, "memory", map[string]any{"Node": m.ID.String(), "Size": m.Size, "Epoch": m.Epoch, "Address": address,
			"Charts": list, "Minutes": minutes, "Refresh": refresh})
	})
}
