//go:build linux

package sherman_test

import (
	"testing"

	"github.com/declock/declock/lock/locktest"
)

func TestConformanceShm(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			locktest.Run(t, locktest.Shm(t.TempDir()), mechanism(v.cfg, v.bound))
		})
	}
}
