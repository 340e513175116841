// Package fleet starts daemons as processes of this
// executable, watches them, takes them down again and removes what they leave;
// and it drives a replay over several of them.
//
// A child gets the read end of a pipe as standard input: when the parent ends,
// however it ends, the pipe closes and the child leaves by itself.
package fleet
