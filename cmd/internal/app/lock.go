package app

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/lock"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"
)

const lockDescription = `The command runs while the lock is held, on whatever machine of the cluster: as with flock(1), but for many machines. The lock is given back when the
command has ended; what the command leaves running does not hold it. It is a compute node of its own while it runs: the cluster needs room for one (--max-cn).

In its environment the command has DECLOCK_TOKEN, the fencing token of the grant: it grows with every exclusive grant, so that a resource can
refuse what comes late. If the lock is lost, because a memory node has restarted or the cluster has declared this process dead, the command gets a signal (--on-lost).
If this process is killed, the command is killed with it.

The exit code is that of the command, 128 and the number of the signal that ended it, 69 if it cannot be run, 1 (--conflict-exit-code) if the lock was not
free in time, 13 if it was lost, or else as "declock exit-codes" says. No two names share a lock; --table NAME has names of its own.

Examples:
   declock lock --cluster shm:demo backup -- tar -cf backup.tar /srv
   declock lock --cluster tcp://10.0.0.1:2379/prod deploy --timeout 1m -- ./deploy.sh --all
   declock lock --cluster shm:demo report --shared --timeout 0s -- sh -c 'make report TOKEN=$DECLOCK_TOKEN'`

const (
	tokenEnv = "DECLOCK_TOKEN"
	// heldEnv has the locks that commands around this one hold, so that none waits for itself.
	heldEnv = "DECLOCK_LOCKS"
)

// Exit codes of flock(1).
const (
	flockConflict   = 1
	flockCannotRun  = 69
	signalledOffset = 128
)

var onLost = map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	"KILL": syscall.SIGKILL, "none": 0}

// A locked is a command that runs while a lock is held.
type locked struct {
	env      *command.Env
	net      node.Network
	policy   string
	table    string
	lost     string
	shared   bool
	timeout  time.Duration
	bounded  bool
	conflict int
	held     string // the lock, as heldEnv has it
}

func lockCommand(env *command.Env) *cli.Command {
	l := &locked{env: env}
	return command.Complete(&cli.Command{
		Name: "lock", Usage: "run a command while a lock is held", ArgsUsage: "NAME COMMAND [ARGUMENT..]", Category: "use", Description: lockDescription,
		Flags: append(l.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), command.LockFlag(&l.policy),
			&cli.BoolFlag{Name: "shared", Usage: "share the lock with others that do so", Destination: &l.shared},
			&cli.DurationFlag{Name: "timeout", Usage: "give up when the lock was not free for so long; 0s: at once", DefaultText: "never", Destination: &l.timeout},
			command.CountFlag(&l.conflict, "conflict-exit-code", flockConflict, 0, 255, "exit code if the lock was not free in time"),
			command.ChoiceFlag(&l.lost, "on-lost", "TERM", "signal to the command when the lock is lost", "TERM", "INT", "HUP", "USR1", "USR2", "KILL", "none"),
			&cli.StringFlag{Name: "table", Usage: "`NAME` of the table of names", Value: "shell", Destination: &l.table}),
		Action: func(c *cli.Context) error {
			if l.bounded = c.IsSet("timeout"); l.timeout < 0 {
				return command.Usage(c, "--timeout %v is negative", l.timeout)
			}
			at, err := l.net.Parse(c)
			if err != nil {
				return err
			}
			return l.run(c.Context, at, c.Args().First(), c.Args().Tail())
		},
	})
}

// run joins the cluster, acquires the lock and runs the command.
func (l *locked) run(ctx context.Context, at scheme.Cluster, name string, argv []string) (err error) {
	cluster, err := daemon.Open(ctx, at, declock.WithPolicy(l.policy))
	if err != nil {
		return err
	}
	ran := false
	defer func() { err = l.left(name, ran, err, cluster.Close()) }()
	names, err := cluster.Names(ctx, l.table, 0)
	if err != nil {
		return err
	}
	l.held = fmt.Sprintf("%s,%s,%s", at.Address(), url.QueryEscape(l.table), url.QueryEscape(name))
	if slices.Contains(strings.Fields(os.Getenv(heldEnv)), l.held) {
		return exit.Errorf(exit.Busy, "%q is a lock that a command around this one holds: it would wait for itself", name)
	}
	g, err := l.acquire(ctx, names, name)
	if errors.Is(err, lock.ErrTimeout) || errors.Is(err, lock.ErrBusy) {
		return exit.Errorf(exit.Code(l.conflict), "lock %q was not free in time (--timeout %v)", name, l.timeout)
	}
	if err != nil {
		return err
	}
	ran = true
	return l.command(g, name, argv)
}

// left returns the error of a call that has ended with err, of which the end of its membership is close's. Once the command has run, the exit code is the command's, or that of a lock
// that was lost.
func (l *locked) left(name string, ran bool, err, close error) error {
	if ran && close != nil {
		fmt.Fprintf(l.env.Stderr, "declock: lock %q: %v\n", name, close)
	}
	if ran || err != nil {
		return err
	}
	return close
}

func (l *locked) acquire(ctx context.Context, names *declock.Names, name string) (declock.Guard, error) {
	acquire, try := names.Lock, names.TryLock
	if l.shared {
		acquire, try = names.RLock, names.TryRLock
	}
	if !l.bounded {
		return acquire(ctx, name)
	}
	if l.timeout == 0 {
		return try(ctx, name)
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	return acquire(ctx, name)
}

// command runs the command, and releases the lock when it has ended.
func (l *locked) command(g declock.Guard, name string, argv []string) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	runtime.LockOSThread() // the command is killed when the thread ends that has started it
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", tokenEnv, g.Token()), heldEnv+"="+strings.TrimSpace(os.Getenv(heldEnv)+" "+l.held))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return errors.Join(exit.Errorf(flockCannotRun, "%w", err), g.Unlock())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for lost := g.Lost(); ; {
		select {
		case err := <-ended:
			if lost != nil && closed(lost) { // both at once
				lost = nil
			}
			uerr := g.Unlock()
			if uerr != nil && !errors.Is(uerr, lock.ErrLost) {
				fmt.Fprintf(l.env.Stderr, "declock: lock %q: %v\n", name, uerr)
				uerr = nil
			}
			if uerr != nil || lost == nil {
				return exit.Errorf(exit.NodeLost, "lock %q was lost while the command ran, which has ended with %v", name, cmd.ProcessState)
			}
			return status(cmd, err)
		case s := <-signals:
			if s != syscall.SIGINT || !foreground() {
				_ = cmd.Process.Signal(s)
			}
		case <-lost:
			lost = nil
			fmt.Fprintf(l.env.Stderr, "declock: lock %q is lost: others may hold it\n", name)
			if s := onLost[l.lost]; s != 0 {
				_ = cmd.Process.Signal(s)
			}
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// foreground reports whether the terminal sends its Ctrl-C to this process, and so to the command as well.
func foreground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// status returns how a command has ended, as an exit code without a text.
func status(cmd *exec.Cmd, err error) error {
	var failed *exec.ExitError
	if err == nil || !errors.As(err, &failed) {
		return err
	}
	code := cmd.ProcessState.ExitCode()
	if w, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		code = signalledOffset + int(w.Signal())
	}
	return exit.With(exit.Code(code), errSaid)
}

// errSaid: the command has said what is wrong.
var errSaid = errors.New("")
