package memory

import (
	"errors"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// ErrParts: what has the name is in parts on several memory nodes, and not all are found.
var ErrParts = errors.New("memory: parts are missing")

// Parts returns the memory nodes, among some, of what lies in parts on several of them under one name: in the order of the
// parts. nil: it is not there, or a compute node has begun to make it on as many as are given. part returns which part
// an entry is, from 0, and of how many.
//
// If one memory node is down, and one part is not found, that is there: unless another that is up may have had it, and lost its memory.
func Parts(port fabric.Port, among []fabric.MemID, name string, kind Kind, part func(*Entry) (i, n int, err error)) ([]fabric.MemID, error) {
	var parts []fabric.MemID
	var seen []bool
	var missing error // a memory node that cannot be asked
	found := 0
	var down, odd []fabric.MemID // what cannot be asked because it is down, and what has no part but may have lost one
	for _, mn := range among {
		r, err := Reach(port, mn)
		if err != nil {
			missing = errors.Join(missing, err)
			if errors.Is(err, fabric.ErrNodeDown) {
				down = append(down, mn)
			} else {
				odd = append(odd, mn)
			}
			continue
		}
		e, err := r.Lookup(port, name, kind)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrHalfCreated) {
			if errors.Is(err, ErrHalfCreated) || r.Generation() > 0 {
				odd = append(odd, mn)
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		i, n, err := part(&e)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%v: %w", mn, err)
		case parts == nil:
			parts, seen = make([]fabric.MemID, n), make([]bool, n)
		}
		if n != len(parts) || i < 0 || i >= n {
			return nil, fmt.Errorf("%w: %q on %v is part %d of %d, and another part is one of %d", ErrParts, name, mn, i, n, len(parts))
		}
		if seen[i] {
			return nil, fmt.Errorf("%w: %q has part %d on %v and on %v: it was begun twice, and who made it must name its memory nodes", ErrParts, name, i, parts[i], mn)
		}
		parts[i], seen[i] = mn, true
		found++
	}
	switch {
	case found > 0 && found == len(parts):
		return parts, nil
	case found > 0 && found == len(parts)-1 && len(down) == 1 && len(odd) == 0:
		parts[slices.Index(seen, false)] = down[0]
		return parts, nil
	case missing != nil:
		return nil, missing
	case found > 0 && len(parts) != len(among):
		return nil, fmt.Errorf("%w: %q was begun on %d memory nodes, and is on %d of them: who made it must name them", ErrParts, name, len(parts), found)
	}
	return nil, nil
}
