//go:build linux

package cas_test

import (
	"testing"

	"github.com/declock/declock/lock/locktest"
)

func TestConformanceTCP(t *testing.T) {
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) { locktest.Run(t, locktest.TCP(), mechanism(v.cfg)) })
	}
}
