package front

import (
	"errors"
	"testing"
	"time"
)

// What took long to find is good for a while, and what did not is found anew; an error is not kept.
func TestLately(t *testing.T) {
	var l Lately[int]
	var now time.Duration
	found := 0
	get := func(takes time.Duration, fails error) (int, error) {
		return l.Get(func() time.Duration { return now }, func() (int, error) {
			found++
			now += takes
			return found, fails
		})
	}
	want := func(takes time.Duration, want int) {
		t.Helper()
		if v, err := get(takes, nil); v != want || err != nil {
			t.Errorf("%d, %v at %v, want %d", v, err, now, want)
		}
	}
	want(quickly-1, 1)
	want(quickly-1, 2)
	want(quickly, 3)
	now += goodFor - 1
	want(time.Hour, 3)
	now++
	failed := errors.New("failed")
	if _, err := get(time.Second, failed); !errors.Is(err, failed) {
		t.Error(err)
	}
	want(time.Minute, 5)
	now += goodFor
	want(0, 6)
}
