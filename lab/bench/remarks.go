package bench

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
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

// Costs says which experiments, locks and rows took longest to measure, and how busy the workers were.
func (d *Document) Costs() []string {
	var rows []*Row
	var total time.Duration
	var each []string
	byLock := map[string]time.Duration{}
	for _, o := range d.Outcomes {
		var sum time.Duration
		for i := range o.Rows {
			r := &o.Rows[i]
			rows = append(rows, r)
			sum += r.Spent
			byLock[r.Text("lock")] += r.Spent
		}
		total += sum
		each = append(each, fmt.Sprintf("%s %s", o.Experiment.Name, sum.Round(time.Second)))
	}
	if total < time.Second {
		return nil
	}
	workers := cmp.Or(d.Config.Workers, runtime.GOMAXPROCS(0))
	busy := 100 * total.Seconds() / (d.Wall.Seconds() * float64(workers))
	lines := []string{fmt.Sprintf("Measured in %s by %d workers, each busy for %.0f %% of that: %s in all, %s. (What several experiments have in common counts where it came first.)",
		d.Wall, workers, busy, total.Round(time.Second), strings.Join(each, ", "))}
	var most []string
	locks := slices.SortedFunc(maps.Keys(byLock), func(a, b string) int { return cmp.Compare(byLock[b], byLock[a]) })
	for _, l := range locks[:min(costly, len(locks))] {
		most = append(most, fmt.Sprintf("%s %.0f %%", l, 100*byLock[l].Seconds()/total.Seconds()))
	}
	lines = append(lines, fmt.Sprintf("Of that, by lock: %s. The rows that took longest:", strings.Join(most, ", ")))
	slices.SortStableFunc(rows, func(a, b *Row) int { return cmp.Compare(b.Spent, a.Spent) })
	for _, r := range rows[:min(costly, len(rows))] {
		lines = append(lines, fmt.Sprintf("  %s: %s", r.Spent.Round(100*time.Millisecond), r.name()))
	}
	return lines
}
