//go:build linux

package shift_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock/locktest"
)

func TestConformanceShm(t *testing.T) {
	for _, v := range variants {
		// A loaded machine may stop a holder for longer than the paper's lease.
		v.cfg.LeaseNs = 10 * fabric.Second
		t.Run(v.name, func(t *testing.T) { locktest.Run(t, locktest.Shm(t.TempDir()), mechanism(v.cfg)) })
	}
}
