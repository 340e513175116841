package locks_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lock"
)

// What a lock cannot do safely, for so many clients or by such clocks, it is not set up for: an error says what is too much.
func TestRefused(t *testing.T) {
	const ms = fabric.Millisecond
	for _, x := range []struct {
		name string
		cfg  locks.Config
		says string // "": it is set up
	}{
		{"dslr:slots", locks.Config{CNs: 8, Clients: 1024, LongestNs: 400 * ms}, "8192 clients whose leases take 40 slots of 10 ms each: counters of 16 bits allow so many clients 3"},
		{"dslr:slots", locks.Config{CNs: 8, Clients: 1024, LeaseNs: 200 * ms, LongestNs: 400 * ms}, ""},
		{"dslr:slots", locks.Config{CNs: 8, Clients: 1024}, ""},
		{"dslr", locks.Config{CNs: 8, Clients: 1024, LongestNs: 400 * ms}, ""},
		{"dslr", locks.Config{CNs: 16, Clients: 2048}, "32768 clients"},
		{"drtm", locks.Config{CNs: 1, Clients: 1, LeaseNs: 90 * fabric.Microsecond}, "a lease of 90 us, by clocks that may be off by 50 us: it must be more than 100"},
		{"drtm:44", locks.Config{CNs: 1, Clients: 1, LeaseNs: 90 * fabric.Microsecond}, ""},
		{"drtm:500", locks.Config{CNs: 1, Clients: 1}, "it must be more than 1000"},
		{"drtm:half", locks.Config{CNs: 1, Clients: 1, LeaseNs: 200 * fabric.Microsecond}, "it must be more than 200"},
		{"drtm:half:10", locks.Config{CNs: 1, Clients: 1, LeaseNs: 41 * fabric.Microsecond}, ""},
		{"drtm:half:10", locks.Config{CNs: 1, Clients: 1, LeaseNs: 40 * fabric.Microsecond}, "it must be more than 40"},
	} {
		m, err := locks.Lookup(x.name)
		if err != nil {
			t.Error(err)
			continue
		}
		if _, err = m.New(x.cfg); (err == nil) != (x.says == "") || err != nil && (!errors.Is(err, lock.ErrMisuse) || !strings.Contains(err.Error(), x.says)) {
			t.Errorf("%s for %+v: %v, want %q", x.name, x.cfg, err, x.says)
		}
	}
	for _, name := range []string{"drtm:", "drtm:0", "drtm:half:", "drtm:half:0", "drtm:halfway", "drtm:x"} {
		if _, err := locks.Lookup(name); !errors.Is(err, locks.ErrUnknown) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
