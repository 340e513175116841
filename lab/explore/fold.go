package explore

import (
	"fmt"
	"regexp"
	"slices"
)

// maxTraced bounds the lines of a trace that does not end in a loop; the middle is left out.
const maxTraced = 200

// Fold shortens a trace for people. Of a loop at its end, as a livelock has one, it leaves one round; of
// any other long trace, beginning and end.
func Fold(trace []string) []string {
	n := len(trace)
	if n <= maxTraced {
		return trace
	}
	if start, round := loop(trace); round > 0 {
		kept := slices.Clone(trace[:start+round])
		kept = append(kept, fmt.Sprintf("... %d more, the last %s again and again", n-len(kept), count(round)))
		if len(kept) <= 2*maxTraced {
			return kept
		}
		trace, n = kept, len(kept)
	}
	return slices.Concat(trace[:maxTraced/2], []string{fmt.Sprintf("... %d more", n-maxTraced)}, trace[n-maxTraced/2:])
}

// long matches times; the numbers of nodes and clients are shorter.
var long = regexp.MustCompile(`[0-9]{3,}`)

func count(lines int) string {
	if lines == 1 {
		return "line"
	}
	return fmt.Sprintf("%d lines", lines)
}

// loop returns where the loop at the end of a trace begins, and how many lines a round has; 0 if it ends in none. Lines that
// differ only in long numbers, such as times, are the same.
func loop(trace []string) (start, round int) {
	n := len(trace)
	shapes := make([]string, n)
	for i, line := range trace {
		shapes[i] = long.ReplaceAllString(line, "#")
	}
	best := n
	for p := 1; p <= min(maxTraced, n/3); p++ {
		i := n - p
		for i > 0 && shapes[i-1] == shapes[i-1+p] {
			i--
		}
		// Two rounds more than the first, and no shorter round explains as much of the trace.
		if n-i >= 3*p && i+p < best {
			start, round, best = i, p, i+p
		}
	}
	return start, round
}
