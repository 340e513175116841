// Package lab is the application declock-lab: the experiments of package bench, the searches of package check, planted
// bugs, and other projects' locks beside ours.
package lab
