package cn

import (
	"errors"
	"fmt"
	"log"
	"runtime/debug"
)

// ErrPanic: a callback of the program has panicked.
var ErrPanic = errors.New("cn: a callback panicked")

// call calls a callback of the program in the middle of an operation, which must come to its end, or else a lock would stay half released. A
// panic ends the callback only. It is reported to Config.Report, or without that to the standard logger.
func (n *Node) call(what string, f func()) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		err := fmt.Errorf("%w: %s: %v\n%s", ErrPanic, what, p, debug.Stack())
		if n.cfg.Report == nil {
			log.Print(err)
			return
		}
		n.cfg.Report(err)
	}()
	f()
}
