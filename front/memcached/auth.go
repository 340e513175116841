package memcached

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// ErrAuthFile: the file of users cannot be used.
var ErrAuthFile = errors.New("memcached: file of users")

// users are those of Options.AuthFile: hashes of USER:PASSWORD. Clients are compared with all of them, in the same time whoever they are.
type users struct {
	file   string
	hashes atomic.Pointer[[][32]byte]
}

const (
	mostUsers   = 8 // as memcached
	longestUser = 256
)

// read reads the file.
func (u *users) read() error {
	text, err := os.ReadFile(u.file)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAuthFile, err)
	}
	var list [][32]byte
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		if bytes.IndexByte(line, ':') <= 0 || len(line) > longestUser || len(list) == mostUsers {
			return fmt.Errorf("%w: %s: want at most %d lines of USER:PASSWORD", ErrAuthFile, u.file, mostUsers)
		}
		list = append(list, sha256.Sum256(line))
	}
	if len(list) == 0 {
		return fmt.Errorf("%w: %s has no users", ErrAuthFile, u.file)
	}
	u.hashes.Store(&list)
	return nil
}

// know reports whether a user has a password.
func (u *users) know(user, password []byte) bool {
	h := sha256.Sum256(bytes.Join([][]byte{user, password}, []byte(":")))
	known := 0
	for _, o := range *u.hashes.Load() {
		known |= subtle.ConstantTimeCompare(h[:], o[:])
	}
	return known == 1
}

// authenticate serves the first request of a connection to a server that has users: a set whose value is USER PASSWORD.
func (c *conn) authenticate(line []byte) error {
	t, _ := c.split(line)
	var size uint32
	ok := len(t) >= 5 && string(t[0]) == "set"
	if ok {
		size, ok = parseUint32(t[4])
	}
	if !ok || size > longestUser {
		c.say("CLIENT_ERROR unauthenticated")
		return nil
	}
	value, good, err := c.block(int(size))
	if err != nil {
		return err
	}
	if !good {
		c.say("CLIENT_ERROR bad command line termination")
		return nil
	}
	if t, _ = c.split(value[headSize:]); len(t) < 2 {
		c.say("CLIENT_ERROR bad authentication token format")
		return nil
	}
	c.srv.counted.authentications.Add(1)
	if c.admitted = c.srv.users.know(t[0], t[1]); !c.admitted {
		c.srv.counted.unauthenticated.Add(1)
		c.say("CLIENT_ERROR authentication failure")
		return nil
	}
	c.say("STORED")
	return nil
}
