//go:build linux

package dslr_test

import (
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock/locktest"
)

func TestConformanceTCP(t *testing.T) {
	for _, v := range variants {
		// A loaded machine may stop a holder for longer than the paper's lease.
		v.cfg.LeaseNs = 10 * fabric.Second
		t.Run(v.name, func(t *testing.T) { locktest.Run(t, locktest.TCP(), mechanism(v.cfg)) })
	}
}
