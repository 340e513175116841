package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/urfave/cli/v2"
)

// An Env is what a command has of the outside.
type Env struct {
	Stdin  *os.File
	Stdout io.Writer
	Stderr io.Writer

	HangUp atomic.Pointer[func()] // what SIGHUP does, instead of ending the process
}

// Print prints a result as one JSON object, or as text. An error of standard output is that of Run.
func (e *Env) Print(asJSON bool, r report.Report, text func(w io.Writer)) error {
	if asJSON {
		return r.WriteJSON(e.Stdout)
	}
	text(e.Stdout)
	return nil
}

// checked remembers the first error of a Writer.
type checked struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (c *checked) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if c.err == nil {
		c.err = err
	}
	return n, err
}

// Main runs an application and returns its exit code.
func Main(build func(*Env) *cli.App, args []string) int {
	env := &Env{Stdin: os.Stdin, Stdout: &checked{w: os.Stdout}, Stderr: os.Stderr}
	a := build(env)
	err := Run(a, env, args)
	if err == nil {
		return int(exit.OK)
	}
	if text := exit.Message(err); text != "" {
		fmt.Fprintf(env.Stderr, "%s: %s\n", a.Name, text)
	}
	return int(exit.Of(err))
}

// Run runs an application until it is over or a signal asks it to stop.
func Run(a *cli.App, env *Env, args []string) error {
	ctx, stop := signalContext(env)
	defer stop()
	if completing(args) && slices.Contains(args, "--") {
		return nil // what follows is another program's; the cli package would run the command
	}
	err := a.RunContext(ctx, Reorder(a, args))
	if out, ok := env.Stdout.(*checked); ok && err == nil {
		err = out.err // what the cli package writes itself, as help
	}
	if err != nil && strings.HasPrefix(err.Error(), "No help topic") { // of "help", which is the cli package's
		return exit.With(exit.Usage, err)
	}
	if errors.Is(err, io.ErrShortWrite) || errors.Is(err, syscall.EPIPE) {
		return exit.Errorf(exit.Other, "standard output was closed: %v", err)
	}
	return err
}

// CompletionFlag, as the last argument, has commands and flags printed that may stand there, for the completion of a shell.
const CompletionFlag = "--generate-bash-completion"

func completing(args []string) bool { return len(args) > 0 && args[len(args)-1] == CompletionFlag }

// sameRequest is within what time a second signal is the first once more: timeout(1) sends each to the process and to its group.
const sameRequest = 200 * time.Millisecond

// signalContext ends with the first SIGINT, SIGTERM or SIGHUP. A second one ends the process at once: children
// notice that it has gone. SIGHUP does something else where the command says so.
func signalContext(env *Env) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		var first time.Time
		for sig := range ch {
			f := env.HangUp.Load()
			switch {
			case sig == syscall.SIGHUP && f != nil:
				(*f)()
			case first.IsZero():
				first = time.Now()
				cancel()
			case time.Since(first) > sameRequest:
				fmt.Fprintln(os.Stderr, "\ndeclock: asked a second time: ending at once, without results; processes that were started here end by themselves")
				os.Exit(int(exit.Interrupted))
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		cancel()
	}
}

// New returns an application with the habits that all share.
func New(env *Env, name, usage, description string) *cli.App {
	return &cli.App{
		Name: name, HelpName: name, Usage: usage, Description: description, Version: Version(),
		Reader: env.Stdin, Writer: env.Stdout, ErrWriter: env.Stderr,
		EnableBashCompletion: true, OnUsageError: onUsageError, ExitErrHandler: func(*cli.Context, error) {},
	}
}

// Version returns the version of the program and its commit.
func Version() string { return "0.1 (" + report.Commit() + ")" }

// onUsageError makes errors of flags short, and gives them their code.
func onUsageError(c *cli.Context, err error, _ bool) error {
	name := "declock"
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	return exit.Errorf(exit.Usage, "%v\n  See \"%s --help\".", err, name)
}

// Usage is an error of how a command was called.
func Usage(c *cli.Context, format string, args ...any) error {
	return exit.Errorf(exit.Usage, "%s\n  See \"%s --help\".", fmt.Sprintf(format, args...), c.Command.HelpName)
}

// Complete fills in what all commands have. The arguments of a command that does something are those of its ArgsUsage: [NAME] may be left out, and of [NAME..] there may be many.
func Complete(c *cli.Command) *cli.Command {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	for _, sub := range c.Subcommands {
		Complete(sub)
	}
	if do := c.Action; do != nil {
		c.Action = func(ctx *cli.Context) error {
			if err := arguments(ctx, c.ArgsUsage); err != nil {
				return err
			}
			return do(ctx)
		}
	} else if len(c.Subcommands) > 0 {
		c.Action = UnknownCommand
	}
	return c
}

// UnknownCommand is the action of an application or command that only has subcommands: help, or an error.
func UnknownCommand(c *cli.Context) error {
	if !c.Args().Present() {
		if c.Command.Name == c.App.Name {
			return cli.ShowAppHelp(c)
		}
		return cli.ShowSubcommandHelp(c)
	}
	var names []string
	for _, sub := range c.Command.Subcommands {
		if !sub.Hidden {
			names = append(names, sub.Name)
		}
	}
	slices.Sort(names)
	return Usage(c, "unknown command %q: one of %s", c.Args().First(), strings.Join(names, ", "))
}

// arguments checks the number of arguments behind the flags.
func arguments(c *cli.Context, usage string) error {
	words := strings.Fields(usage)
	least := len(words) - strings.Count(usage, "[")
	switch n := c.NArg(); {
	case n > len(words) && !strings.Contains(usage, ".."):
		return Usage(c, "too many arguments: %q", c.Args().Slice()[len(words):])
	case n < least:
		return Usage(c, "%s needs %s", c.Command.HelpName, usage)
	}
	return nil
}

// Reorder puts flags before the arguments of their command, where the flag
// package wants them: "replay trace.csv --verify" is what people type.
func Reorder(a *cli.App, args []string) []string {
	if len(args) == 0 || completing(args) {
		return args
	}
	flags, commands := a.Flags, a.Commands
	out, rest := []string{args[0]}, []string(nil)
	words := 1 // of the command's name
	for i := 1; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			rest = append(rest, args[i+1:]...)
			break
		}
		if len(arg) > 1 && arg[0] == '-' {
			out = append(out, arg)
			if takesValue(flags, arg) && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
			continue
		}
		if i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(arg) }); i >= 0 && rest == nil {
			out = append(out, arg)
			flags, commands, words = commands[i].Flags, commands[i].Subcommands, len(out)
			continue
		}
		if len(commands) > 0 && rest == nil && arg != "help" && arg != "h" {
			// No such command: that is what to complain of, and not of its flags.
			return append(out[:words:words], arg)
		}
		rest = append(rest, arg)
	}
	for _, r := range rest {
		if len(r) > 1 && r[0] == '-' {
			return append(append(out, "--"), rest...)
		}
	}
	return append(out, rest...)
}

// takesValue reports whether the next argument is the flag's.
func takesValue(flags []cli.Flag, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			_, isBool := f.(*cli.BoolFlag)
			return !isBool
		}
	}
	return false
}
