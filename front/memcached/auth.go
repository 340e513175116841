package memcached

import "github.com/declock/declock/front"

// ErrAuthFile: the file of users cannot be used.
var ErrAuthFile = front.ErrUsers

// longestUser bounds what a client says of itself.
const longestUser = 256

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
	if c.admitted = c.srv.users.Know(t[0], t[1]); !c.admitted {
		c.srv.counted.unauthenticated.Add(1)
		c.say("CLIENT_ERROR authentication failure")
		return nil
	}
	c.say("STORED")
	return nil
}
