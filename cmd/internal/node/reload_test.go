package node

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/urfave/cli/v2"
)

// SIGHUP changes the log level, names what needs a restart, and leaves all as it is if the file is bad.
func TestReload(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cn.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte("cluster: shm:x\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("wait: 1m\nprocs: 2\n")
	var n Network
	var how running
	var log bytes.Buffer
	var r *reloader
	bad := errors.New("the certificate is bad")
	a := &cli.App{Writer: io.Discard, Action: func(c *cli.Context) error {
		n.http = &how.HTTP
		if _, err := n.Parse(c); err != nil {
			return err
		}
		r = newReloader(c, &n.Settings, &how.now, how.logger(&log), func() error { return bad })
		return nil
	}}
	var procs uint64
	a.Flags = n.daemon(append(n.Flags(""), append(how.flags(), command.SizeFlag(&procs, "procs", "1", ""), &cli.DurationFlag{Name: "wait"})...))
	if err := a.Run([]string{"daemon", "--config", file, "--procs", "7"}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		text  string
		level slog.Level
		says  []string
	}{
		{"wait: 1m\nprocs: 2\n", slog.LevelInfo, []string{"level=INFO", "read anew", "the certificate is bad"}},
		{"wait: 1m\nprocs: 3\nlog-level: warn\n", slog.LevelWarn, []string{"the certificate is bad"}}, // procs is a flag's
		{"wait: 1m\nlog-level: loud\n", slog.LevelWarn, []string{"all stays as it is", "want one of debug"}},
		{"wiat: 1m\nlog-level: debug\n", slog.LevelWarn, []string{"no setting"}},
		{"wait: 2m\nhttp: :1\nlog-level: debug\n", slog.LevelDebug, []string{"changed=log-level", "needs_restart=http,wait"}},
		{"wait: 2m\nhttp: :1\nlog-level: debug\n", slog.LevelDebug, []string{`changed=""`, "needs_restart=http,wait"}},
		{"wait: 1m\n", slog.LevelInfo, []string{"changed=log-level\n"}},
	} {
		log.Reset()
		write(c.text)
		r.reload()
		if how.now.Level() != c.level {
			t.Errorf("%q: level %v", c.text, how.now.Level())
		}
		for _, s := range c.says {
			if !strings.Contains(log.String(), s) {
				t.Errorf("%q: no %q in\n%s", c.text, s, log.String())
			}
		}
	}
	_ = os.Remove(file)
	log.Reset()
	if r.reload(); !strings.Contains(log.String(), "no such file") {
		t.Errorf("no file: %s", log.String())
	}
}

// Two compute nodes of one host with one file have ports of their own.
func TestInstancesHavePortsOfTheirOwn(t *testing.T) {
	for _, c := range []struct {
		address  string
		instance int
		want     string
	}{
		{"10.0.0.1:7493", 1, "10.0.0.1:7493"}, {"10.0.0.1:7493", 2, "10.0.0.1:7503"}, {"[::1]:7493", 3, "[::1]:7513"}, {":0", 2, ":0"}, {"", 2, ""},
		{"host", 2, "host"}, {"host:http", 2, "host:http"}, {"[::1]", 2, "[::1]"},
	} {
		if got, err := shiftPort("listen", c.address, c.instance); got != c.want || err != nil {
			t.Errorf("%q, instance %d: %q, %v", c.address, c.instance, got, err)
		}
	}
	if _, err := shiftPort("listen", ":65530", 2); err == nil {
		t.Error("port 65540")
	}
	args := []string{"declock-cn", "--print-config", "--cluster", "tcp://127.0.0.1:1/x", "--insecure", "--listen", ":65530"}
	for more, code := range map[string]exit.Code{"1": exit.OK, "2": exit.Usage, "0": exit.Usage, "a": exit.Usage} {
		a := CN(&command.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard})
		if err := a.Run(append(args, "--instance", more)); exit.Of(err) != code {
			t.Errorf("instance %s: %v", more, err)
		}
	}
}

// SIGHUP tells the service manager that a reload begins, and that it is over.
func TestHangUpNotifiesSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	env := &command.Env{Stdin: null}
	checked := false
	new(running).reloadOnHangUp(env, &reloader{settings: &settings{}, log: slog.New(slog.DiscardHandler), check: func() error { checked = true; return nil }})
	(*env.HangUp.Load())()
	var b [200]byte
	for _, want := range []string{`^RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]+\n?$`, `^READY=1$`} {
		n, err := manager.Read(b[:])
		if err != nil || !regexp.MustCompile(want).Match(b[:n]) {
			t.Errorf("%q, %v; want %s", b[:n], err, want)
		}
	}
	if !checked {
		t.Error("nothing was reloaded")
	}
}
