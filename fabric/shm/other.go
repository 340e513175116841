//go:build !linux

package shm

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/declock/declock/fabric"
)

var errSystem = fmt.Errorf("%w: shm needs Linux, this is %s", ErrUnsupported, runtime.GOOS)

// A MemoryServer is a memory node.
type MemoryServer struct{}

// Serve is not supported on this system.
func Serve(Options) (*MemoryServer, error) { return nil, errSystem }

// Join is not supported on this system.
func Join(context.Context, Options) (fabric.Node, error) { return nil, errSystem }

// Close does nothing.
func (*MemoryServer) Close() error { return nil }

// Unlink does nothing.
func (*MemoryServer) Unlink() error { return nil }

// ID returns 0.
func (*MemoryServer) ID() fabric.MemID { return 0 }

// Epoch returns 0.
func (*MemoryServer) Epoch() uint32 { return 0 }

// Done returns nothing.
func (*MemoryServer) Done() <-chan struct{} { return nil }

// Err returns why there is none.
func (*MemoryServer) Err() error { return errSystem }

// Word returns nothing.
func (*MemoryServer) Word(uint64) *atomic.Uint64 { return nil }

// Size returns 0.
func (*MemoryServer) Size() uint64 { return 0 }

// Path returns nothing.
func (*MemoryServer) Path() string { return "" }

// Huge returns nothing.
func (*MemoryServer) Huge() (kind, why string) { return "", errSystem.Error() }

// List is not supported on this system.
func List(string) ([]string, error) { return nil, errSystem }

// Inspect is not supported on this system.
func Inspect(dir, name string) (*ClusterInfo, error) { return nil, errSystem }

// Remove is not supported on this system.
func Remove(dir, name string) error { return errSystem }
