// Command runner runs the scenarios of many seeds and prints, as JSON, which oracle objects to
// which. Package check builds it once for each mutant.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/declock/declock/check"
)

// hang ends a run that does not end by itself.
func hang(t check.Tally) {
	if err := json.NewEncoder(os.Stdout).Encode(t); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(0)
}

func main() {
	classes := flag.String("classes", "", "classes of scenarios")
	first := flag.Uint64("first", 0, "first seed")
	runs := flag.Int("runs", 100, "runs")
	explore := flag.String("explore", "", "explore the programs that contain this instead")
	keep := flag.Int("keep", 10, "failing runs after which to stop")
	flag.Parse()
	list, err := check.ParseClasses(*classes)
	if err == nil {
		var t check.Tally
		if *explore != "" {
			t = check.CountExplored(*explore, check.Bounds{Wall: 15 * time.Second})
		} else if t, err = check.Count(list, *first, *runs, *keep, hang); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		err = json.NewEncoder(os.Stdout).Encode(t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
