package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"runtime/pprof"
	"slices"
	"strings"

	sdnotify "github.com/coreos/go-systemd/v22/daemon"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/urfave/cli/v2"
	"golang.org/x/term"
)

// running is how a daemon runs, whatever it is.
type running struct {
	format, level string
	daemon.Options
	parent  bool
	profile string

	now slog.LevelVar // the least that is logged now
}

// flags are what all daemons have. A daemon with --parent-pipe ends when its standard input does.
func (r *running) flags() []cli.Flag {
	return []cli.Flag{
		command.ChoiceFlag(&r.format, "log-format", "text", "of what is written to standard error", "text", "json"),
		command.ChoiceFlag(&r.level, logLevel, "info", "the least that is logged; SIGHUP reads it anew from the file of --config", levels...),
		&cli.StringFlag{Name: "http", Usage: "`HOST:PORT` for /healthz, /readyz, /metrics and /status; they have no authentication", Destination: &r.HTTP},
		&cli.BoolFlag{Name: "pprof", Usage: "profiles at /debug/pprof/ of --http", Destination: &r.Pprof},
		&cli.BoolFlag{Name: "parent-pipe", Usage: "end when standard input ends; leave signals to the parent", Destination: &r.parent, Hidden: true},
		&cli.StringFlag{Name: "cpuprofile", Usage: "write a CPU profile to `FILE`", Destination: &r.profile, Hidden: true},
	}
}

// logger returns the logger. A daemon with a parent says only what its user must know.
func (r *running) logger(w io.Writer) *slog.Logger {
	level, _ := levelOf(r.level) // it is one of them
	if r.parent {
		level = max(level, slog.LevelWarn)
	}
	r.now.Set(level)
	o := &slog.HandlerOptions{Level: &r.now}
	if r.format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// levels are the levels of a log.
var levels = []string{"debug", "info", "warn", "error"}

// levelOf returns the level with a name.
func levelOf(name string) (level slog.Level, err error) {
	if !slices.Contains(levels, name) {
		return 0, fmt.Errorf("want one of %s", strings.Join(levels, ", "))
	}
	return level, level.UnmarshalText([]byte(name))
}

// check refuses what makes no sense.
func (r *running) check(c *cli.Context) error {
	if r.Pprof && r.HTTP == "" {
		return command.Usage(c, "--pprof needs --http")
	}
	_, port, err := net.SplitHostPort(r.HTTP)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	switch {
	case r.HTTP != "" && err != nil:
		return command.Usage(c, "--http %q: want host:port", r.HTTP)
	case c.Duration("wait") < 0:
		return command.Usage(c, "--wait %v is negative", c.Duration("wait"))
	}
	return nil
}

// reloadOnHangUp makes SIGHUP read the configuration anew, as services expect. One that a terminal runs ends with its terminal.
func (r *running) reloadOnHangUp(env *command.Env, again *reloader) {
	if r.parent || env.Stdin == nil || term.IsTerminal(int(env.Stdin.Fd())) {
		return
	}
	f := func() {
		_, _ = sdnotify.SdNotify(false, sdnotify.SdNotifyReloading+"\n"+sdnotify.SdNotifyMonotonicUsec()) // without systemd it does nothing
		again.reload()
		_, _ = sdnotify.SdNotify(false, sdnotify.SdNotifyReady)
	}
	env.HangUp.Store(&f)
}

// daemon runs a daemon until a signal, or until its parent has gone. prepare takes the flags of its own over, and returns the role that its
// certificate must be for. Its error is logged if logs are for machines.
func (r *running) daemon(c *cli.Context, env *command.Env, net *Network, prepare func(scheme.Cluster) (scheme.Role, error), run func(context.Context, daemon.Options) error) error {
	net.http = &r.HTTP
	net.Options.Report = func(err error) { daemon.Report(r.Log)(err) }
	cl, err := net.Parse(c)
	if err != nil {
		return err
	}
	role, err := prepare(cl)
	if err == nil {
		err = r.check(c)
	}
	if err != nil {
		return err
	}
	check := func() error { return cl.Check(role) }
	if net.Settings.print {
		net.Settings.write(c, env.Stdout)
		return check()
	}
	r.Log, r.Certificates = r.logger(env.Stderr), cl.Certificates()
	r.reloadOnHangUp(env, newReloader(c, &net.Settings, &r.now, r.Log, check))
	err = r.run(c.Context, env, func(ctx context.Context) error { return run(ctx, r.Options) })
	if err == nil || r.format != "json" {
		return err
	}
	r.Log.Error("ended", "error", err.Error(), "code", int(exit.Of(err)), "cause", exit.Of(err).String())
	return exit.With(exit.Of(err), errors.New(""))
}

// run runs a daemon with its profile, until ctx ends or its parent has gone.
func (r *running) run(ctx context.Context, env *command.Env, run func(context.Context) error) error {
	if r.parent {
		var cancel context.CancelFunc
		ctx, cancel = ParentContext(env.Stdin)
		defer cancel()
	}
	if r.profile != "" {
		f, err := os.Create(r.profile)
		if err != nil {
			return exit.Errorf(exit.Other, "cannot write the profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return run(ctx)
}
