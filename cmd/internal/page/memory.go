package page

import (
	_ "embed" // of pages
	"html/template"
	"net/http"

	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/fabric"
)

//go:embed memory.html
var memorySource string

var memoryPage = template.Must(template.Must(template.New("memory").Funcs(template.FuncMap{"bytes": units.Bytes}).Parse(memorySource)).New("style").Parse(style))

// Memory serves the page of a memory node, which knows little: compute nodes know what its memory has.
func Memory(of func() fabric.Memory, address string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		m := of()
		headers(w)
		_ = memoryPage.ExecuteTemplate(w, "memory", map[string]any{"Node": m.ID.String(), "Size": m.Size, "Epoch": m.Epoch, "Address": address})
	})
}
