package node

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/config"
	"github.com/urfave/cli/v2"
)

// A reloader applies to a running daemon what can be changed in its configuration file: the log level. Certificates and keys need no reload,
// for they are read again when their files change; it says whether they are good.
type reloader struct {
	settings *settings
	level    *slog.LevelVar
	log      *slog.Logger
	check    func() error // whether the files that the settings name are good

	given []string          // settings that flags gave: the file does not count for them
	holds map[string]string // what the file had when it was read last
}

// newReloader is called when the settings have been loaded.
func newReloader(c *cli.Context, s *settings, level *slog.LevelVar, log *slog.Logger, check func() error) *reloader {
	r := &reloader{settings: s, level: level, log: log, check: check, holds: map[string]string{}}
	for _, x := range s.list {
		r.holds[x.Name] = x.Value
	}
	for _, name := range Names(s.flags) {
		if _, inFile := r.holds[name]; c.IsSet(name) && (!inFile || slices.Contains(s.overridden, name)) {
			r.given = append(r.given, name)
		}
	}
	return r
}

// reload reads the file again. If it is not good all stays as it is.
func (r *reloader) reload() {
	applied, restart, err := r.read()
	switch {
	case err != nil:
		r.log.Error("the configuration cannot be read anew: all stays as it is", "error", err.Error())
		return
	case len(restart) > 0:
		r.log.Warn("the configuration was read anew; some of what has changed holds from the next start on",
			"changed", strings.Join(applied, ","), "needs_restart", strings.Join(restart, ","))
	default:
		r.log.Info("the configuration was read anew", "changed", strings.Join(applied, ","))
	}
	if err := r.check(); err != nil {
		r.log.Error("files that the configuration names are not good", "error", err.Error())
	}
}

// read reads the file, applies what can be applied, and returns the names of what has changed.
func (r *reloader) read() (applied, restart []string, err error) {
	if r.settings.file == "" {
		return nil, nil, nil
	}
	list, err := r.settings.read()
	if err != nil {
		return nil, nil, err
	}
	level := slog.LevelInfo
	now := map[string]string{}
	for _, x := range list {
		if !slices.Contains(Names(r.settings.flags), x.Name) {
			return nil, nil, config.Errorf(r.settings.file, x.Line, "no setting %q", x.Name)
		}
		if x.Name == logLevel {
			if level, err = levelOf(x.Value); err != nil {
				return nil, nil, config.Errorf(r.settings.file, x.Line, "%s: %q: %w", x.Name, x.Value, err)
			}
		}
		now[x.Name] = x.Value
	}
	for _, name := range Names(r.settings.flags) {
		was, had := r.holds[name]
		is, has := now[name]
		switch {
		case was == is && had == has, slices.Contains(r.given, name):
		case name == logLevel:
			r.level.Set(level)
			applied = append(applied, name)
		default:
			restart = append(restart, name)
		}
	}
	if level := now[logLevel]; level != "" {
		r.holds[logLevel] = level
	} else {
		delete(r.holds, logLevel)
	}
	return applied, restart, nil
}

const logLevel = "log-level"

// shiftPort returns an address with its port moved for the n-th daemon of a host; port 0 is any, and stays. Without a port it is as it was.
func shiftPort(what, address string, instance int) (string, error) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 || instance <= 1 {
		return address, nil
	}
	var port int
	if _, err := fmt.Sscanf(address[i+1:], "%d", &port); err != nil || port <= 0 || fmt.Sprint(port) != address[i+1:] {
		return address, nil // what is no port is refused elsewhere
	}
	if port += portStep * (instance - 1); port > 1<<16-1 {
		return "", errors.New("there is no port for --instance " + fmt.Sprint(instance) + " of " + what + " " + address)
	}
	return fmt.Sprintf("%s:%d", address[:i], port), nil
}

// portStep is how far the ports of one instance are from those of the next.
const portStep = 10
