package peer

import (
	"errors"

	"github.com/declock/declock/fabric"
)

// Errors of joining and serving that do not depend on the network. Packages tcp and verbs have them under the same names.
var (
	// ErrOptions: what a caller has asked for cannot be; nothing was touched.
	ErrOptions = errors.New("fabric: bad options")
	// ErrAuth: one side does not accept the identity of the other.
	ErrAuth = errors.New("fabric: authentication failed")
	// ErrVersion: there is no version of the protocol that both sides speak.
	ErrVersion = errors.New("fabric: the peer speaks other versions")
	// ErrProtocol: the peer sends what no node would.
	ErrProtocol = errors.New("fabric: the peer breaks the protocol")
	// ErrLost: the connection is lost, or cannot be made.
	ErrLost = errors.New("fabric: connection lost")
	// ErrSuperseded: another process has served the number of a memory node while this one was given up. What is in memory here is older than
	// what that one had, and is not served again.
	ErrSuperseded = errors.New("fabric: another process has been this memory node meanwhile: memory here is older")
	// ErrBehind: this node has not received the state of the cluster yet that the caller acts on: it will, so try again.
	ErrBehind = errors.New("fabric: node has not received the present state of the cluster yet")
)

// Fatal reports whether a person has to mend the cause of an error of a connection: to try again does not help.
func Fatal(err error) bool {
	return errors.Is(err, ErrAuth) || errors.Is(err, ErrVersion) || errors.Is(err, ErrProtocol) || errors.Is(err, fabric.ErrFenced)
}
