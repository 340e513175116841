package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// name names a row in a sentence: its experiment and parameters.
func (r *Row) name() string {
	return r.Experiment + " (" + strings.TrimSpace(r.Params.key()) + ")"
}

// Unsteady says how many rows were steady when they were measured, and which were not.
func (d *Document) Unsteady() []string {
	var all int
	var not []string
	for _, o := range d.Outcomes {
		for i := range o.Rows {
			r := &o.Rows[i]
			if _, ok := r.Metrics["steady"]; !ok {
				continue
			}
			if all++; r.Value("steady") < 1 {
				not = append(not, fmt.Sprintf("  not steady in %.0f %% of its runs, drift %s %%: %s", 100*(1-r.Value("steady")), Figure(r.Value("drift_pct")), r.name()))
			}
		}
	}
	if all == 0 {
		return nil
	}
	return append([]string{fmt.Sprintf("%d of %d rows were steady when they were measured (column %s says after how long).", all-len(not), all, SteadyColumn)}, not...)
}

// costly is how many rows Costs names.
const costly = 10

// Costs says which experiments and rows took longest to measure.
func (d *Document) Costs() []string {
	var rows []*Row
	var total time.Duration
	var each []string
	for _, o := range d.Outcomes {
		var sum time.Duration
		for i := range o.Rows {
			rows = append(rows, &o.Rows[i])
			sum += o.Rows[i].Spent
		}
		total += sum
		each = append(each, fmt.Sprintf("%s %s", o.Experiment.Name, sum.Round(time.Second)))
	}
	if total < time.Second {
		return nil
	}
	slices.SortStableFunc(rows, func(a, b *Row) int { return cmp.Compare(b.Spent, a.Spent) })
	lines := []string{fmt.Sprintf("Measured in %s of all workers together: %s. (What several experiments have in common counts where it came first.) The rows that took longest:",
		total.Round(time.Second), strings.Join(each, ", "))}
	for _, r := range rows[:min(costly, len(rows))] {
		lines = append(lines, fmt.Sprintf("  %s: %s", r.Spent.Round(100*time.Millisecond), r.name()))
	}
	return lines
}
