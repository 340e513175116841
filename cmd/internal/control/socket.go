package control

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const socketSuffix = ".sock"

// SocketName returns the file name of a compute node's socket.
func SocketName(node string) string { return node + socketSuffix }

// Sockets lists the sockets in a cluster's directory, whether a daemon answers or not.
func Sockets(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(escapeGlob(dir), "cn*"+socketSuffix))
	return list
}

// escapeGlob makes a path match itself.
func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// Sweep removes the sockets that dead daemons left in a cluster's directory, and
// the directory if it is empty then. A socket gets its name once it answers, so that
// one that refuses connections is dead.
func Sweep(dir string) (removed []string) {
	for _, path := range Sockets(dir) {
		if Refused(path) && os.Remove(path) == nil {
			removed = append(removed, path)
		}
	}
	_ = os.Remove(dir) // fails as long as anything is in it
	return removed
}

// Refused reports whether a socket's owner has gone.
func Refused(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := Dial(ctx, path)
	if err == nil {
		_ = c.Close()
		return false
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
