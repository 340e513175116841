package front

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
)

// ErrUsers: a file of users cannot be used.
var ErrUsers = errors.New("front: file of users")

// Users are those of a file with lines of USER:PASSWORD. Clients are compared with all of them, in the same time whoever they are.
type Users struct{ hashes [][32]byte }

const (
	mostUsers   = 8 // as memcached
	longestUser = 256
)

// ReadUsers reads a file of users.
func ReadUsers(file string) (*Users, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsers, err)
	}
	u := new(Users)
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			continue
		}
		if bytes.IndexByte(line, ':') <= 0 || len(line) > longestUser || len(u.hashes) == mostUsers {
			return nil, fmt.Errorf("%w: %s: want at most %d lines of USER:PASSWORD", ErrUsers, file, mostUsers)
		}
		u.hashes = append(u.hashes, sha256.Sum256(line))
	}
	if len(u.hashes) == 0 {
		return nil, fmt.Errorf("%w: %s has no users", ErrUsers, file)
	}
	return u, nil
}

// Know reports whether a user has a password. A user has no colon in its name, so that the line of a file says who it is of.
func (u *Users) Know(user, password []byte) bool {
	if bytes.IndexByte(user, ':') >= 0 {
		return false
	}
	h := sha256.Sum256(bytes.Join([][]byte{user, password}, []byte(":")))
	known := 0
	for i := range u.hashes {
		known |= subtle.ConstantTimeCompare(h[:], u.hashes[i][:])
	}
	return known == 1
}
