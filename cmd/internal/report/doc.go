// Package report prints results: one JSON object with the names that design
// section 10 gives, or tables for people.
package report
