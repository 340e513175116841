package memcached

// meta serves meta commands: m and a letter.
func (c *conn) meta(t [][]byte) error {
	if t[0][1] == 'n' {
		c.say("MN")
		return c.flush()
	}
	c.say("ERROR")
	return nil
}
