package check_test

import (
	"fmt"

	"github.com/declock/declock/lab/check"
)

// One scenario, from its line.
func Example() {
	s, err := check.ParseScenario(`class=crash seed=7 cns=3 clients=2 mns=1 policy=declock-pf cap=3 ver=27 nic=cx4 locks=1 rounds=20 ` +
		`reads=50 recheck=500000 reset=10000000 detect=200000 plan="60000 kill cn2"`)
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := check.Run(s)
	fmt.Println(r.Violations, err)
	// Output: [] <nil>
}

// The scenario of a seed.
func ExampleJudge() {
	r, failure, err := check.Judge(check.Draw(42, check.Crash), true)
	if failure != nil {
		fmt.Println(failure) // seed, scenario, plan, command, story, all shrunk
	}
	fmt.Println(r.Scenario.Class, len(r.Scenario.Plan) > 0, err)
	// Output: crash true <nil>
}
