package inbox

import "github.com/declock/declock/fabric"

// A Patience says how long a goroutine spins before it parks: the wakeup of a parked one takes ten microseconds and more. How long it spins adapts to the traffic.
type Patience struct {
	Min, Max fabric.Time
	Short    fabric.Time // a shorter park was not worth it
}

// PumpPatience returns that of what delivers messages to a compute node.
func PumpPatience() Patience {
	return Patience{Min: 3 * fabric.Microsecond, Max: 40 * fabric.Microsecond, Short: 60 * fabric.Microsecond}
}

// Next returns how long to spin the next time, after a spin and a park of some length: longer if a longer spin would have saved the park, else shorter.
func (p *Patience) Next(spun, parked fabric.Time) fabric.Time {
	if parked < p.Short {
		return min(2*spun, p.Max)
	}
	return max(spun/2, p.Min)
}
