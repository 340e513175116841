package redis

import (
	"strconv"
	"time"
)

func (c *conn) ping(args [][]byte) error {
	switch len(args) {
	case 1:
		c.out = append(c.out, "+PONG\r\n"...)
	case 2:
		c.bulk(args[1])
	default:
		c.fail("ERR wrong number of arguments for 'ping' command")
	}
	return nil
}

func (c *conn) echo(args [][]byte) error {
	c.bulk(args[1])
	return nil
}

func (c *conn) time([][]byte) error {
	now := time.Now()
	c.array(2)
	c.text(strconv.FormatInt(now.Unix(), 10))
	c.text(strconv.Itoa(now.Nanosecond() / 1000))
	return nil
}

func (c *conn) quit([][]byte) error {
	c.ok()
	return errQuit
}

func (c *conn) reset([][]byte) error {
	c.resp3, c.silent, c.admitted = false, answers, c.srv.users == nil
	c.about.Store(&about{user: defaultUser})
	c.out = append(c.out, "+RESET\r\n"...)
	return nil
}

func (c *conn) selectDB(args [][]byte) error {
	switch n, ok := integer(args[1]); {
	case !ok:
		c.fail("ERR value is not an integer or out of range")
	case n != 0:
		c.fail("ERR DB index is out of range")
	default:
		c.ok()
	}
	return nil
}

// multi refuses a transaction, and ends the connection: what follows is meant to be part of one, and must not be done by itself.
func (c *conn) multi([][]byte) error {
	c.fail("ERR MULTI is not supported: several keys are not changed in one step here. The connection is closed")
	return errQuit
}

// auth is AUTH [USER] PASSWORD.
func (c *conn) auth(args [][]byte) error {
	user, password := []byte(defaultUser), args[len(args)-1]
	switch {
	case len(args) > 3:
		c.fail(syntaxError)
		return nil
	case len(args) == 3:
		user = args[1]
	case c.srv.users == nil:
		c.fail("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
		return nil
	}
	if c.identify(user, password) {
		c.ok()
	}
	return nil
}

// identify admits the client if it is a user; else it answers so. Without users the default one is admitted with any password, as by Redis.
func (c *conn) identify(user, password []byte) bool {
	known := c.srv.users == nil && string(user) == defaultUser
	if c.srv.users != nil {
		known = c.srv.users.Know(user, password)
	}
	if !known {
		c.fail("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	a := *c.about.Load()
	a.user = string(user)
	c.about.Store(&a)
	c.admitted = true
	return true
}

// hello is HELLO [PROTOCOL [AUTH USER PASSWORD] [SETNAME NAME]].
func (c *conn) hello(args [][]byte) error {
	resp3 := c.resp3
	if len(args) > 1 {
		v, ok := integer(args[1])
		if !ok {
			c.fail("ERR Protocol version is not an integer or out of range")
			return nil
		}
		if v < 2 || v > 3 {
			c.fail("NOPROTO unsupported protocol version")
			return nil
		}
		resp3 = v == 3
	}
	var user, password, name []byte
	named := false
	for i := 2; i < len(args); {
		switch left := len(args) - i - 1; {
		case is(args[i], "AUTH") && left >= 2:
			user, password = args[i+1], args[i+2]
			i += 3
		case is(args[i], "SETNAME") && left >= 1:
			if name, named = args[i+1], true; !printableName(name) {
				c.fail(badName)
				return nil
			}
			i += 2
		default:
			c.fail("ERR Syntax error in HELLO option '" + string(args[i]) + "'")
			return nil
		}
	}
	if user != nil && !c.identify(user, password) {
		return nil
	}
	if !c.admitted {
		c.fail("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
		return nil
	}
	c.resp3 = resp3
	if named {
		c.rename(name)
	}
	c.mapping(7)
	c.text("server")
	c.text("redis")
	c.text("version")
	c.text(Version)
	c.text("proto")
	if c.resp3 {
		c.number(3)
	} else {
		c.number(2)
	}
	c.text("id")
	c.number(c.id)
	c.text("mode")
	c.text("standalone")
	c.text("role")
	c.text("master")
	c.text("modules")
	c.array(0)
	return nil
}

// longestName bounds what a client says of itself.
const longestName = 1 << 10

const badName = "ERR Client names cannot contain spaces, newlines or special characters."

// printableName reports whether a client may call itself so.
func printableName(name []byte) bool {
	if len(name) > longestName {
		return false
	}
	for _, b := range name {
		if b < '!' || b > '~' {
			return false
		}
	}
	return true
}

// rename gives the client another name.
func (c *conn) rename(name []byte) {
	a := *c.about.Load()
	a.name = string(name)
	c.about.Store(&a)
}
