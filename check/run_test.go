package check

import (
	"context"
	"flag"
	"testing"
	"time"
)

var (
	flagSeeds    = flag.Int("seeds", 20, "seeds for each class")
	flagFirst    = flag.Uint64("first", 0, "the first seed")
	flagClass    = flag.String("class", "", "classes")
	flagKeep     = flag.Int("keep", 1, "failures to collect")
	flagScenario = flag.String("scenario", "", "a scenario line")
)

func TestSeeds(t *testing.T) {
	classes, err := ParseClasses(*flagClass)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range classes {
		begin := time.Now()
		u, err := Faults(context.Background(), Options{Classes: []Class{c}, First: *flagFirst, Runs: *flagSeeds, Keep: *flagKeep, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%v, %v", u, time.Since(begin))
		for _, f := range u.Failures {
			t.Errorf("%v", f)
		}
	}
}

func TestScenario(t *testing.T) {
	if *flagScenario == "" {
		t.Skip("no -scenario")
	}
	s, err := ParseScenario(*flagScenario)
	if err != nil {
		t.Fatal(err)
	}
	_, f, err := Judge(s, false)
	if err != nil {
		t.Fatal(err)
	}
	if f != nil {
		t.Errorf("%v", f)
	}
}
