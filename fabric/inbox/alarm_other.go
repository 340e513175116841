//go:build !linux

package inbox

import "github.com/declock/declock/fabric"

// An alarm would end short waits on time. Here Go's timers have to do.
type alarm struct{ host Host }

func (a *alarm) set(fabric.Time, *Box) {}
func (a *alarm) close()                {}
