package explore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/declock/declock/fabric"
)

// A Schedule is a list of choices. At each point where several events can
// happen, they are listed, those of the last actor first; a choice is an
// index in that list. Points beyond the end take choice 0: the schedule without choices
// is the one that switches only when the actor cannot go on.
//
// Its text has the choices other than 0 with their positions, and the
// compute nodes of which several clients are active:
//
//	s1,2:5.1,9.2     nodes 1 and 2; choice 1 at point 5, choice 2 at point 9
//	-                the empty schedule
type Schedule struct {
	Shared  []fabric.CNID
	Choices []int
}

func (s Schedule) String() string {
	var parts []string
	for i, c := range s.Choices {
		if c != 0 {
			parts = append(parts, fmt.Sprintf("%d.%d", i, c))
		}
	}
	text := strings.Join(parts, ",")
	if len(s.Shared) > 0 {
		nodes := make([]string, len(s.Shared))
		for i, n := range s.Shared {
			nodes[i] = strconv.Itoa(int(n))
		}
		return "s" + strings.Join(nodes, ",") + ":" + text
	}
	if text == "" {
		return "-"
	}
	return text
}

// ParseSchedule reads the text of a schedule.
func ParseSchedule(text string) (Schedule, error) {
	var s Schedule
	bad := func(what string) (Schedule, error) {
		return Schedule{}, fmt.Errorf("%w: bad schedule %q: %s", ErrSchedule, text, what)
	}
	rest := text
	if nodes, after, ok := strings.Cut(text, ":"); ok {
		list, ok := strings.CutPrefix(nodes, "s")
		if !ok {
			return bad("what is before the colon must begin with s")
		}
		for _, f := range strings.Split(list, ",") {
			n, err := strconv.ParseUint(f, 10, 8)
			if err != nil || n == 0 {
				return bad(fmt.Sprintf("%q is no compute node", f))
			}
			s.Shared = append(s.Shared, fabric.CNID(n))
		}
		rest = after
	}
	if rest == "-" || rest == "" && len(s.Shared) > 0 {
		return s, nil
	}
	for _, f := range strings.Split(rest, ",") {
		at, choice, ok := strings.Cut(f, ".")
		i, err1 := strconv.ParseUint(at, 10, 20)
		c, err2 := strconv.ParseUint(choice, 10, 16)
		if !ok || err1 != nil || err2 != nil || c == 0 || int(i) < len(s.Choices) {
			return bad(fmt.Sprintf("%q is no choice POSITION.CHOICE in order", f))
		}
		for len(s.Choices) < int(i) {
			s.Choices = append(s.Choices, 0)
		}
		s.Choices = append(s.Choices, int(c))
	}
	return s, nil
}

// trim drops the zeros at the end.
func (s Schedule) trim() Schedule {
	n := len(s.Choices)
	for n > 0 && s.Choices[n-1] == 0 {
		n--
	}
	s.Choices = s.Choices[:n]
	return s
}
