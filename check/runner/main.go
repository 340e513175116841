// Runner runs the scenarios of many seeds and prints, as JSON, which oracle objects to
// which. Package check builds it once for each mutant.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/declock/declock/check"
)

func main() {
	classes := flag.String("classes", "", "classes of scenarios")
	first := flag.Uint64("first", 0, "first seed")
	runs := flag.Int("runs", 100, "runs")
	keep := flag.Int("keep", 10, "failing runs after which to stop")
	flag.Parse()
	list, err := check.ParseClasses(*classes)
	if err == nil {
		var t check.Tally
		if t, err = check.Count(list, *first, *runs, *keep); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(t)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
