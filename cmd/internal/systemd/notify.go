// Package systemd tells the service manager what a daemon does: sd_notify(3), for units with Type=notify.
package systemd

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// What a daemon says of itself.
const (
	Ready    = "READY=1"
	Stopping = "STOPPING=1"
)

// Notify sends a state to the service manager that started this process; without one it does nothing.
func Notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"}) // one that begins with @ is abstract
	if err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("systemd: %w", err)
	}
	return nil
}

// Reload tells the service manager that the daemon reads its configuration anew, calls f, and tells it that this is over.
func Reload(f func()) {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)                          // it never fails
	_ = Notify(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000)) // a manager that has gone needs no telling
	f()
	_ = Notify(Ready)
}
