package redis

import (
	"crypto/sha1"
	"encoding/hex"
	"sync"

	"github.com/declock/declock/front/item"
	"github.com/declock/declock/objstore"
)

// Locks on Redis are keys with a value that only the holder knows. What releases and extends them compares the value and then deletes the key or gives it another
// expiry. Clients send a script of Lua for that; here it is one operation on the key, under its lock.

// A script is one that is known: it compares the value of its key with its first argument.
type script struct {
	args int // that it needs
	// equal returns what becomes of a key that has the value, and the answer.
	equal func(o *item.Object, n []int64) (item.Change, int64)
	// absent and other are the answers if there is no key, or one with another value.
	absent, other int64
	// sets stores a key that is not there, with the value, to expire after the second argument.
	sets bool
}

func remove(*item.Object, []int64) (item.Change, int64) {
	return item.Change{Action: objstore.Remove}, 1
}

// extend gives a key so many milliseconds from now on.
func extend(o *item.Object, n []int64) (item.Change, int64) {
	return expireAt(o, o.NowMs()+n[0]), 1
}

// extendSeconds is extend with seconds.
func extendSeconds(o *item.Object, n []int64) (item.Change, int64) {
	return expireAt(o, o.NowMs()+1000*n[0]), 1
}

// add gives a key that expires so many milliseconds more than it has, or from now on if the third argument is not 0.
func add(o *item.Object, n []int64) (item.Change, int64) {
	switch {
	case o.Expiry == 0:
		return item.Change{}, 0
	case n[1] == 0:
		return expireAt(o, o.Expiry+n[0]), 1
	}
	return extend(o, n)
}

// known are the scripts, by the SHA-1 of their normalised text.
var known = map[string]*script{
	// redsync: Unlock, Extend, Extend with WithSetNXOnExtend.
	"5f851f2ef1cdcac21aa82b064c9ac022a9a7adb0": {args: 1, equal: remove, absent: -1},
	"d4477b9f7579af482457f0c2f363525cff4ea1d4": {args: 2, equal: extend},
	"1f9a1f028f75d4d6ce17714651295ce404fad2d5": {args: 2, equal: extend, sets: true},
	// redis-py's Lock: release, extend, reacquire.
	"7207705fe594df3ae9284ac1bb02cb839e6bb6d6": {args: 1, equal: remove},
	"f450802dd75d333e0f6e746befbe093331bc1869": {args: 3, equal: add},
	"7e5b8b1c8492617cc2e01b1f67de23df28f74ccb": {args: 2, equal: extend},
	// Those of Redis's documentation, in use by many: compare and delete, compare and expire.
	"c0c707c4bec016dafd187acc09028350cd8b3f6d": {args: 1, equal: remove},
	"9d071e3e2e37313935eefcd4507f6faa9172728e": {args: 2, equal: extendSeconds},
}

// normalised returns the text of a script without comments and blanks that mean nothing, in lower case, with quotes of one kind: clients' releases differ in these.
func normalised(text []byte) []byte {
	out := make([]byte, 0, len(text))
	gap := false
	for i := 0; i < len(text); i++ {
		b := text[i]
		switch {
		case b == ' ' || b >= '\t' && b <= '\r':
			gap = true
			continue
		case b == '-' && i+1 < len(text) && text[i+1] == '-':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			gap = true
			continue
		case b == '\'':
			b = '"'
		case b >= 'A' && b <= 'Z':
			b += 'a' - 'A'
		}
		if gap && len(out) > 0 && ofWord(out[len(out)-1]) && ofWord(b) {
			out = append(out, ' ')
		}
		gap = false
		out = append(out, b)
	}
	return out
}

// ofWord reports whether a byte is one of a name or number of Lua, in lower case.
func ofWord(b byte) bool { return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '_' }

// scripts are those that clients have sent, by the SHA-1 of their text.
type scripts struct {
	mu   sync.RWMutex
	seen map[[sha1.Size]byte]*script
}

const (
	mostScripts   = 1000
	longestScript = 4 << 10
)

// of returns the script of a text; nil: it is not known.
func (s *scripts) of(text []byte) (k *script, hash [sha1.Size]byte) {
	hash = sha1.Sum(text)
	if k = s.get(hash); k != nil || len(text) > longestScript {
		return k, hash
	}
	n := sha1.Sum(normalised(text))
	if k = known[hex.EncodeToString(n[:])]; k == nil {
		return nil, hash
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil || len(s.seen) >= mostScripts {
		s.seen = map[[sha1.Size]byte]*script{} // clients send the others again
	}
	s.seen[hash] = k
	return k, hash
}

// forget forgets all of them.
func (s *scripts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = nil
}

func (s *scripts) get(hash [sha1.Size]byte) *script {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.seen[hash]
}

// byHash returns the script with a hash in hexadecimal, if a client has sent it.
func (s *scripts) byHash(text []byte) *script {
	var hash [sha1.Size]byte
	if len(text) != 2*sha1.Size {
		return nil
	}
	if _, err := hex.Decode(hash[:], text); err != nil {
		return nil
	}
	return s.get(hash)
}

const unknownScript = "ERR scripts are not supported, but for those of locks that are known: see docs/redis.md"

// eval is EVAL and EVALSHA.
func (c *conn) eval(args [][]byte) error {
	keys, ok := integer(args[2])
	switch {
	case !ok:
		c.fail(notInteger)
		return nil
	case keys > int64(len(args)-3):
		c.fail("ERR Number of keys can't be greater than number of args")
		return nil
	case keys < 0:
		c.fail("ERR Number of keys can't be negative")
		return nil
	}
	var s *script
	if c.now.name == "evalsha" {
		if s = c.srv.scripts.byHash(args[1]); s == nil {
			c.fail("NOSCRIPT No matching script. Please use EVAL.")
			return nil
		}
	} else if s, _ = c.srv.scripts.of(args[1]); s == nil {
		c.fail(unknownScript)
		return nil
	}
	rest := args[3:]
	if keys != 1 || len(rest) < 1+s.args {
		c.fail("ERR this script has 1 key here, and needs more arguments")
		return nil
	}
	var n []int64
	for _, a := range rest[2 : 1+s.args] {
		v, ok := integer(a)
		if !ok || v > item.LastExpiry/2 || v < -item.LastExpiry/2 {
			c.fail(notInteger)
			return nil
		}
		n = append(n, v)
	}
	c.run(s, rest[0], rest[1], n)
	return nil
}

// run executes a script: one operation on its key.
func (c *conn) run(s *script, key, value []byte, n []int64) {
	if len(value) > c.srv.most() {
		c.fail(tooLong)
		return
	}
	c.room(value)
	answer := s.absent
	called, ok := c.update(key, item.Update{Read: len(value), IfFound: !s.sets, Apply: func(o *item.Object) (ch item.Change) {
		switch {
		case o.Found && same(&o.Item, value):
			ch, answer = s.equal(o, n)
			return ch
		case o.Found:
			answer = s.other
		case s.sets && n[0] > 0:
			answer = 1
			return item.Change{Action: objstore.Put, Value: c.value, Expiry: o.NowMs() + n[0]}
		default:
			answer = s.absent
		}
		return item.Change{}
	}})
	if !called {
		answer = s.absent
	}
	if ok {
		c.number(answer)
	}
}

func (c *conn) scriptLoad(args [][]byte) error {
	s, hash := c.srv.scripts.of(args[2])
	if s == nil {
		c.fail(unknownScript)
		return nil
	}
	c.text(hex.EncodeToString(hash[:]))
	return nil
}

func (c *conn) scriptExists(args [][]byte) error {
	c.array(len(args) - 2)
	for _, h := range args[2:] {
		c.truth(c.srv.scripts.byHash(h) != nil)
	}
	return nil
}

func (c *conn) scriptFlush(args [][]byte) error {
	if len(args) > 3 || len(args) == 3 && !is(args[2], "ASYNC") && !is(args[2], "SYNC") {
		c.fail("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
		return nil
	}
	c.srv.scripts.forget()
	c.ok()
	return nil
}
