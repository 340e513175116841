package bench

import (
	"slices"
	"strings"
	"testing"
)

// gridRows are two points of the grid, at which locks have throughputs and p99 as given, in the order of gridLocks.
func gridRows(mops, tails [2][]float64) (rows Rows) {
	for i, cs := range []int{1, 8} {
		for k, name := range gridLocks {
			rows = append(rows, Row{Params: Params{{"nodes", 8}, {"each", 4}, {"nic", "cx4"}, {"lock", name}, {"clients", 32}, {"cs_len", cs}, {"read_pct", 50}, {"locks", 100_000}, {"theta", 0.99}},
				Metrics: map[string]Estimate{"mops": {Mean: mops[i][k]}, "p99_us": {Mean: tails[i][k]}}})
		}
	}
	return rows
}

// The grid compares our locks with the others, not with each other, p99 with that of the fair ones, and names the points that are behind.
func TestGridIsJudged(t *testing.T) {
	rows := gridRows( // cas, dslr+, mcs, shift, shift-artifact, declock-tf, declock-pf, declock, declock+no-train
		[2][]float64{{5, 1, 1, 2, 4, 3, 3, 4, 4}, {1, 1, 2, 1, 1, 1, 1, 3, 4}},
		[2][]float64{{1, 9, 9, 9, 5, 9, 9, 10, 5}, {1, 9, 9, 4, 5, 9, 9, 4, 4}})
	claims := judgeGrid(rows)
	var got []string
	for _, c := range claims {
		got = append(got, Figure(c.Ours)+" "+c.Verdict.String()+" "+c.Note)
	}
	want := []string{
		"0.8 NO behind at 1 of 2 points: 8x4 at 50 %: 0.80", "2 NO behind at 1 of 2 points: 8x4 at 50 %: 2.00",
		"0.8 NO behind at 1 of 2 points: 8x4 at 50 %: 0.80", "1 yes behind at 0 of 2 points: ",
		"0.75 NO behind at 1 of 2 points: 8x4 at 50 %, cs_len 8: 0.75",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	plots := gridPlots(rows)
	if len(plots) != 4 {
		t.Fatalf("%d plots", len(plots))
	}
	p := plots[0]
	if len(p.Panels) != 2 || p.Panels[0][0].Cells[[2]string{"4", "8 nodes"}] != (Cell{0.8, "cas"}) || p.Panels[1][0].Cells[[2]string{"8 x 4", "8 data ops"}] != (Cell{1.5, ""}) {
		t.Errorf("%+v", p.Panels)
	}
	if c := plots[1].Panels[0][0].Cells[[2]string{"4", "8 nodes"}]; c != (Cell{2, "shift-a"}) {
		t.Errorf("p99: %+v", c)
	}
}

// Panels are dealt out to lines of four at most.
func TestPanelsPerLine(t *testing.T) {
	for n, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 3, 4: 4, 5: 3, 6: 3, 9: 3} {
		if got := panelsPerLine(n); got != want {
			t.Errorf("%d panels: %d a line, want %d", n, got, want)
		}
	}
}
