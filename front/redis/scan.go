package redis

import "strconv"

// scan is SCAN. The cursor is the bucket to go on with: they never move, so that a key which is there all the time is found, and seldom twice.
func (c *conn) scan(args [][]byte) error {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		c.fail("ERR invalid cursor")
		return nil
	}
	count, pattern, strings := int64(10), []byte(nil), true
	for i := 2; i < len(args); i += 2 {
		switch {
		case i+1 < len(args) && is(args[i], "COUNT"):
			v, ok := integer(args[i+1])
			if !ok {
				c.fail(notInteger)
				return nil
			}
			if v < 1 {
				c.fail(syntaxError)
				return nil
			}
			count = min(v, mostArgs)
		case i+1 < len(args) && is(args[i], "MATCH"):
			pattern = args[i+1]
		case i+1 < len(args) && is(args[i], "TYPE"):
			strings = is(args[i+1], "STRING")
		default:
			c.fail(syntaxError)
			return nil
		}
	}
	x := c.store()
	if x == nil {
		return nil
	}
	keys, cursor, err := x.Scan(c.srv.ops, cursor, int(count), nil)
	if err != nil {
		c.failed(err)
		return nil
	}
	if cursor >= x.Buckets() {
		cursor = 0
	}
	n := 0
	for _, k := range keys {
		if strings && (pattern == nil || matches(pattern, k)) {
			keys[n] = k
			n++
		}
	}
	c.array(2)
	c.text(strconv.FormatUint(cursor, 10))
	c.array(n)
	for _, k := range keys[:n] {
		c.bulk(k)
	}
	return nil
}

// dbSize answers how many keys there are, about.
func (c *conn) dbSize([][]byte) error {
	x := c.store()
	if x == nil {
		return nil
	}
	n, err := x.Count(c.srv.ops)
	if err != nil {
		c.failed(err)
		return nil
	}
	c.number(int64(n))
	return nil
}

// matches reports whether a text is like a glob pattern, of Redis's kind: * ? [a-z] [^a] and \. It takes time in proportion to the product of the
// lengths, at most.
func matches(pattern, text []byte) bool {
	p, t := 0, 0
	star, from := -1, 0 // where to go on if what follows the last * does not fit
	for t < len(text) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p, t
			p++
			continue
		}
		if n, ok := one(pattern[p:], text[t]); ok {
			p += n
			t++
			continue
		}
		if star < 0 {
			return false
		}
		from++
		p, t = star+1, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// one reports whether a byte is like the beginning of a pattern, and how long that is.
func one(pattern []byte, b byte) (n int, ok bool) {
	if len(pattern) == 0 {
		return 0, false
	}
	switch pattern[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pattern) > 1 {
			return 2, pattern[1] == b
		}
	case '[':
		return set(pattern, b)
	}
	return 1, pattern[0] == b
}

// set is one, of a pattern that begins with a set. One that does not end goes to the end of the pattern.
func set(pattern []byte, b byte) (n int, ok bool) {
	i := 1
	not := i < len(pattern) && pattern[i] == '^'
	if not {
		i++
	}
	for ; i < len(pattern) && pattern[i] != ']'; i++ {
		switch {
		case pattern[i] == '\\' && i+1 < len(pattern):
			i++
			ok = ok || pattern[i] == b
		case i+2 < len(pattern) && pattern[i+1] == '-':
			low, high := min(pattern[i], pattern[i+2]), max(pattern[i], pattern[i+2])
			ok = ok || low <= b && b <= high
			i += 2
		default:
			ok = ok || pattern[i] == b
		}
	}
	return min(i+1, len(pattern)), ok != not
}
