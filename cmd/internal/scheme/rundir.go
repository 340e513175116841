package scheme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/declock/declock/cmd/internal/exit"
)

// RunBase returns the directory below which clusters that have no directory of their own have one for
// their control sockets: what was given, or the user's.
func RunBase(given string) string {
	if given != "" {
		return given
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "declock")
	}
	if os.Getuid() == 0 {
		return "/run/declock"
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("declock-%d", os.Getuid()))
}

// runDir returns the directory of an address: its letters, with a dash for what a file name should not have.
func runDir(base, address string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_':
			return r
		}
		return '-'
	}, address)
	return filepath.Join(RunBase(base), strings.Trim(clean, "-."))
}

// PrivateDir makes a directory of sockets, if it is not there. No other user may write to it: a program that can
// replace a socket can give orders.
func PrivateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return exit.Errorf(exit.Denied, "cannot make the directory for sockets (--run-dir chooses another): %w", err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok && (sys.Uid != uint32(os.Getuid()) || st.Mode().Perm()&0o022 != 0) {
		return exit.Errorf(exit.Denied, "%s belongs to user %d with mode %v: for sockets it must be ours alone; --run-dir chooses another",
			dir, sys.Uid, st.Mode().Perm())
	}
	return nil
}
