package node

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/config"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/urfave/cli/v2"
)

// notSettings are flags that a configuration file cannot set.
var notSettings = []string{"config", "print-config", "parent-pipe", "cpuprofile", "help", "version"}

// settings are the flags of a command that a configuration file can set too.
type settings struct {
	file  string
	print bool
	flags []cli.Flag
	// others are settings that mean nothing for this command and are no error: those of daemons, for tools.
	others func() []string
	loaded bool

	list       []config.Setting // of the file
	overridden []string         // of them, those that flags gave
}

// Names returns the names of the settings.
func Names(flags []cli.Flag) (list []string) {
	for _, f := range flags {
		if n := f.Names()[0]; !slices.Contains(notSettings, n) {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list
}

// Load sets the flags that are in the file and were not given.
func (s *settings) Load(c *cli.Context) error {
	if s.file == "" || s.loaded {
		return nil
	}
	s.loaded = true
	list, err := s.read()
	if err != nil {
		return err
	}
	s.list = list
	known := Names(s.flags)
	for _, x := range list {
		switch {
		case slices.Contains(known, x.Name):
		case s.others != nil && slices.Contains(s.others(), x.Name):
			continue
		default:
			return config.Errorf(s.file, x.Line, "no setting %q; there are %s", x.Name, strings.Join(known, ", "))
		}
		if c.IsSet(x.Name) {
			s.overridden = append(s.overridden, x.Name)
			continue
		}
		value := x.Value
		if s.others != nil {
			value = forTool(x.Name, value)
		}
		if err := c.Set(x.Name, value); err != nil {
			return config.Errorf(s.file, x.Line, "%s: %q: %w", x.Name, x.Value, err)
		}
	}
	return nil
}

// read reads the file.
func (s *settings) read() ([]config.Setting, error) {
	text, err := os.ReadFile(s.file)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "cannot read the configuration file: %w", err)
	}
	return config.Parse(s.file, text)
}

// forTool returns a daemon's setting as a tool of the same host takes it: the port may be the daemon's, and a tool joins at any.
func forTool(name, value string) string {
	host, _, err := net.SplitHostPort(value)
	switch {
	case err != nil:
	case name == "listen":
		return net.JoinHostPort(host, "0")
	case name == "advertise":
		return host
	}
	return value
}

// write writes the settings as they are now: those that are not set, with their defaults, as comments.
func (s *settings) write(c *cli.Context, w io.Writer) {
	for _, name := range Names(s.flags) {
		switch value := valueOf(c, s.flags, name); {
		case c.IsSet(name):
			fmt.Fprintf(w, "%s: %q\n", name, value)
		case value == "":
			fmt.Fprintf(w, "# %s:\n", name)
		default:
			fmt.Fprintf(w, "# %s: %q\n", name, value) // the default
		}
	}
}

// valueOf returns the value of a flag as text.
func valueOf(c *cli.Context, flags []cli.Flag, name string) string {
	for _, f := range flags {
		if f.Names()[0] != name {
			continue
		}
		if g, ok := f.(*cli.GenericFlag); ok {
			return fmt.Sprint(g.Value)
		}
	}
	switch v := c.Value(name).(type) {
	case nil:
		return ""
	default:
		if text := fmt.Sprint(v); text != "0s" && text != "0" {
			return text
		}
		return ""
	}
}

// daemonSettings are the settings of both daemons.
func daemonSettings() []string {
	env := &command.Env{}
	return slices.Concat(Names(MN(env).Flags), Names(CN(env).Flags))
}
