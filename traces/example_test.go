package traces_test

import (
	"fmt"
	"strings"

	"github.com/declock/declock/traces"
)

// Reading a trace. Open takes a file, or "-" for standard input, of any compression.
func ExampleReader() {
	r, err := traces.NewReader(strings.NewReader(`0,q:q:1:8WTfjZU14ee,17,213,4,set,86400
0,q:q:1:8WTfjZU14ee,17,213,9,get,0
1,nz:u:eeW511W3dcH3,16,0,9,get,0
`), traces.ReaderOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for rec := range traces.All(r) {
		fmt.Println(rec.Op, string(rec.Key), rec.ValueSize, rec.IsMiss())
	}
	if err := r.Err(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// set q:q:1:8WTfjZU14ee 213 false
	// get q:q:1:8WTfjZU14ee 213 false
	// get nz:u:eeW511W3dcH3 0 true
}

// A malformed line is named.
func ExampleReader_malformed() {
	r, _ := traces.NewReader(strings.NewReader("0,k,1,12x,9,get,0\n"), traces.ReaderOptions{Name: "cluster14.0.zst"})
	for range traces.All(r) {
	}
	fmt.Println(r.Err())
	// Output:
	// traces: cluster14.0.zst: line 1, column 4 (value size): not a decimal number without sign: "0,k,1,12x,9,get,0"
}

// Making a trace of a cluster, and measuring it.
func ExampleGenerator() {
	preset, err := traces.FindPreset(traces.IOPSBound)
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := traces.NewGenerator(traces.GenConfig{Preset: preset, Seed: 1, Keys: 10000, Requests: 100000, Clients: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	stats := traces.NewStats(0)
	if err := stats.AddAll(g.All()); err != nil {
		fmt.Println(err)
		return
	}
	s := stats.Summary()
	fmt.Printf("get %.2f delete %.2f set %.2f, keys of %.0f B, values of %.0f B, alpha %.1f\n",
		s.Share(traces.OpGet), s.Share(traces.OpDelete), s.Share(traces.OpSet), s.MeanKey, s.MeanValue, *s.Alpha)
	// Output:
	// get 0.65 delete 0.22 set 0.13, keys of 96 B, values of 416 B, alpha 1.3
}

// A wrong name is answered with what names there are.
func ExampleFindPreset() {
	_, err := traces.FindPreset("cluster140")
	fmt.Println(err)
	// Output:
	// traces: no such preset: "cluster140"; there are cluster1 to cluster54
}
