module github.com/declock/declock

go 1.26
