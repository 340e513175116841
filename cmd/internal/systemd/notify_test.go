package systemd

import (
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

func TestNotify(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify(Ready); err != nil {
		t.Errorf("without a service manager: %v", err)
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), "@declock-notify-test"} {
		manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer manager.Close()
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		t.Setenv("NOTIFY_SOCKET", path)
		if err := Notify(Stopping); err != nil {
			t.Error(err)
		}
		called := false
		Reload(func() { called = true })
		var b [200]byte
		for _, want := range []string{`^STOPPING=1$`, `^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+$`, `^READY=1$`} {
			n, err := manager.Read(b[:])
			if err != nil || !regexp.MustCompile(want).Match(b[:n]) {
				t.Errorf("%q, %v; want %s", b[:n], err, want)
			}
		}
		if !called {
			t.Error("nothing was reloaded")
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none"))
	if err := Notify(Ready); err == nil {
		t.Error("a manager that is not there has been notified")
	}
}
