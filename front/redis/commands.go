package redis

import (
	"bytes"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/declock/declock/objstore"
)

// A command is one that clients may ask for.
type command struct {
	name  string
	arity int // with its name; negative: at least
	flags string
	// first, last and step say which arguments are keys.
	first, last, step int
	value             int  // the argument that is stored while it arrives, if it is large; 0: none
	unit              unit // of times that it has as arguments, or answers with
	do                func(c *conn, args [][]byte) error
	number            int
}

// commands are all commands, by name in upper case; list has them in order.
var (
	commands = map[string]*command{}
	list     []*command
)

const (
	reads   = "readonly fast"
	stores  = "write denyoom"
	changes = "write fast"
	talks   = "fast"
	manages = "admin"
)

func init() {
	list = slices.Concat(ofStrings(), ofKeys(), ofConnections())
	for i, k := range list {
		k.number = i
		commands[strings.ToUpper(k.name)] = k
	}
}

func ofStrings() []*command {
	return []*command{
		{name: "get", arity: 2, flags: reads, first: 1, last: 1, step: 1, do: (*conn).get},
		{name: "set", arity: -3, flags: stores, first: 1, last: 1, step: 1, value: 2, do: (*conn).set},
		{name: "setnx", arity: 3, flags: stores, first: 1, last: 1, step: 1, value: 2, do: (*conn).setNX},
		{name: "setex", arity: 4, flags: stores, first: 1, last: 1, step: 1, value: 3, unit: seconds, do: (*conn).setEX},
		{name: "psetex", arity: 4, flags: stores, first: 1, last: 1, step: 1, value: 3, unit: milliseconds, do: (*conn).setEX},
		{name: "getset", arity: 3, flags: stores, first: 1, last: 1, step: 1, value: 2, do: (*conn).getSet},
		{name: "getdel", arity: 2, flags: changes, first: 1, last: 1, step: 1, do: (*conn).getDel},
		{name: "getex", arity: -2, flags: changes, first: 1, last: 1, step: 1, do: (*conn).getEX},
		{name: "mget", arity: -2, flags: reads, first: 1, last: -1, step: 1, do: (*conn).mget},
		{name: "mset", arity: -3, flags: stores, first: 1, last: -1, step: 2, do: (*conn).mset},
		{name: "msetnx", arity: -3, flags: stores, first: 1, last: -1, step: 2, do: (*conn).msetNX},
		{name: "incr", arity: 2, flags: stores, first: 1, last: 1, step: 1, do: (*conn).incr},
		{name: "decr", arity: 2, flags: stores, first: 1, last: 1, step: 1, do: (*conn).decr},
		{name: "incrby", arity: 3, flags: stores, first: 1, last: 1, step: 1, do: (*conn).incrBy},
		{name: "decrby", arity: 3, flags: stores, first: 1, last: 1, step: 1, do: (*conn).decrBy},
		{name: "incrbyfloat", arity: 3, flags: stores, first: 1, last: 1, step: 1, do: (*conn).incrByFloat},
		{name: "append", arity: 3, flags: stores, first: 1, last: 1, step: 1, value: 2, do: (*conn).append},
		{name: "strlen", arity: 2, flags: reads, first: 1, last: 1, step: 1, do: (*conn).strlen},
		{name: "getrange", arity: 4, flags: reads, first: 1, last: 1, step: 1, do: (*conn).getRange},
		{name: "substr", arity: 4, flags: reads, first: 1, last: 1, step: 1, do: (*conn).getRange},
		{name: "setrange", arity: 4, flags: stores, first: 1, last: 1, step: 1, value: 3, do: (*conn).setRange},
	}
}

func ofKeys() []*command {
	return []*command{
		{name: "del", arity: -2, flags: changes, first: 1, last: -1, step: 1, do: (*conn).del},
		{name: "unlink", arity: -2, flags: changes, first: 1, last: -1, step: 1, do: (*conn).del},
		{name: "delex", arity: -2, flags: changes, first: 1, last: 1, step: 1, do: (*conn).delEX},
		{name: "exists", arity: -2, flags: reads, first: 1, last: -1, step: 1, do: (*conn).exists},
		{name: "touch", arity: -2, flags: reads, first: 1, last: -1, step: 1, do: (*conn).exists},
		{name: "type", arity: 2, flags: reads, first: 1, last: 1, step: 1, do: (*conn).typeOf},
		{name: "expire", arity: -3, flags: changes, first: 1, last: 1, step: 1, unit: seconds, do: (*conn).expire},
		{name: "pexpire", arity: -3, flags: changes, first: 1, last: 1, step: 1, unit: milliseconds, do: (*conn).expire},
		{name: "expireat", arity: -3, flags: changes, first: 1, last: 1, step: 1, unit: unixSeconds, do: (*conn).expire},
		{name: "pexpireat", arity: -3, flags: changes, first: 1, last: 1, step: 1, unit: unixMilliseconds, do: (*conn).expire},
		{name: "ttl", arity: 2, flags: reads, first: 1, last: 1, step: 1, unit: seconds, do: (*conn).ttl},
		{name: "pttl", arity: 2, flags: reads, first: 1, last: 1, step: 1, unit: milliseconds, do: (*conn).ttl},
		{name: "expiretime", arity: 2, flags: reads, first: 1, last: 1, step: 1, unit: unixSeconds, do: (*conn).ttl},
		{name: "pexpiretime", arity: 2, flags: reads, first: 1, last: 1, step: 1, unit: unixMilliseconds, do: (*conn).ttl},
		{name: "persist", arity: 2, flags: changes, first: 1, last: 1, step: 1, do: (*conn).persist},
		{name: "flushall", arity: -1, flags: changes, do: (*conn).flushAll},
		{name: "flushdb", arity: -1, flags: changes, do: (*conn).flushAll},

		{name: "scan", arity: -2, flags: "readonly", do: (*conn).scan},
		{name: "dbsize", arity: 1, flags: reads, do: (*conn).dbSize},

		{name: "eval", arity: -3, flags: stores, do: (*conn).eval},
		{name: "evalsha", arity: -3, flags: stores, do: (*conn).eval},
		{name: "script", arity: -2, flags: container},
		{name: "script|load", arity: 3, flags: talks, do: (*conn).scriptLoad},
		{name: "script|exists", arity: -3, flags: talks, do: (*conn).scriptExists},
		{name: "script|flush", arity: -2, flags: talks, do: (*conn).scriptFlush},
	}
}

func ofConnections() []*command {
	return []*command{
		{name: "ping", arity: -1, flags: talks, do: (*conn).ping},
		{name: "echo", arity: 2, flags: talks, do: (*conn).echo},
		{name: "time", arity: 1, flags: talks, do: (*conn).time},
		{name: "hello", arity: -1, flags: unadmitted, do: (*conn).hello},
		{name: "auth", arity: -2, flags: unadmitted, do: (*conn).auth},
		{name: "quit", arity: -1, flags: unadmitted, do: (*conn).quit},
		{name: "reset", arity: 1, flags: unadmitted, do: (*conn).reset},
		{name: "select", arity: 2, flags: talks, do: (*conn).selectDB},
		{name: "command", arity: -1, flags: container, do: (*conn).commandList},
		{name: "command|count", arity: 2, flags: talks, do: (*conn).commandCount},
		{name: "command|list", arity: 2, flags: talks, do: (*conn).commandNames},
		{name: "command|docs", arity: -2, flags: talks, do: (*conn).commandDocs},
		{name: "command|info", arity: -2, flags: talks, do: (*conn).commandInfo},
		{name: "client", arity: -2, flags: container},
		{name: "client|id", arity: 2, flags: talks, do: (*conn).clientID},
		{name: "client|getname", arity: 2, flags: talks, do: (*conn).clientGetName},
		{name: "client|setname", arity: 3, flags: talks, do: (*conn).clientSetName},
		{name: "client|setinfo", arity: 4, flags: talks, do: (*conn).clientSetInfo},
		{name: "client|info", arity: 2, flags: talks, do: (*conn).clientInfo},
		{name: "client|list", arity: 2, flags: talks, do: (*conn).clientList},
		{name: "client|reply", arity: 3, flags: talks, do: (*conn).clientReply},
		{name: "client|no-evict", arity: 3, flags: talks, do: (*conn).fine},
		{name: "client|no-touch", arity: 3, flags: talks, do: (*conn).fine},
		{name: "config", arity: -2, flags: container},
		{name: "config|get", arity: -3, flags: talks, do: (*conn).configGet},
		{name: "config|set", arity: -4, flags: talks, do: (*conn).configSet},
		{name: "config|resetstat", arity: 2, flags: talks, do: (*conn).configResetStat},
		{name: "info", arity: -1, flags: talks, do: (*conn).info},
		{name: "multi", arity: 1, flags: talks, do: (*conn).multi},
	}
}

// container are the flags of commands that have subcommands, with names such as "client|id". One without a function cannot do without.
const container = "container"

// unadmitted are the flags of commands that a client may ask for before it has said who it is.
const unadmitted = "noauth fast"

// counted are the counters of a server.
type counted struct {
	read, written, idled, overBuffers, errors atomic.Uint64
	hits, misses                              atomic.Uint64
	calls                                     [128]atomic.Uint64 // by command.number
}

// lookup returns the command of a name, or of that of a container and a subcommand.
func (c *conn) lookup(parts ...[]byte) *command {
	n := 0
	for i, name := range parts {
		if n+1+len(name) > len(c.name) {
			return nil
		}
		if i > 0 {
			c.name[n] = '|'
			n++
		}
		for _, b := range name {
			if b >= 'a' && b <= 'z' {
				b -= 'a' - 'A'
			}
			if b == '|' {
				return nil
			}
			c.name[n] = b
			n++
		}
	}
	return commands[string(c.name[:n])]
}

// command serves a request.
func (c *conn) command(args [][]byte) error {
	k := c.lookup(args[0])
	if k != nil && k.flags == container && len(args) > 1 {
		sub := c.lookup(args[0], args[1])
		if sub == nil {
			c.fail("ERR unknown subcommand '" + string(text(args[1], 128)) + "'. Try " + strings.ToUpper(k.name) + " HELP.")
			return nil
		}
		k = sub
	}
	switch {
	case k == nil && (is(args[0], "POST") || is(args[0], "HOST:")):
		return errQuit // a browser that a page has sent here: the next lines are the page's
	case k == nil:
		c.unknown(args)
		return nil
	case !k.admits(len(args)):
		c.fail("ERR wrong number of arguments for '" + k.name + "' command")
		return nil
	case !c.admitted && k.flags != unadmitted:
		c.fail("NOAUTH Authentication required.")
		return nil
	}
	c.srv.counted.calls[k.number].Add(1)
	c.now = k
	if wrong := k.refuses(args); wrong != "" {
		c.fail(wrong)
		return nil
	}
	return k.do(c, args)
}

// admits reports whether a request for the command may have so many arguments, with its name.
func (k *command) admits(n int) bool { return n == k.arity || k.arity < 0 && n >= -k.arity }

// refuses returns what is wrong with one of many keys: then nothing is done of the request, for an error says so.
func (k *command) refuses(args [][]byte) (wrong string) {
	if k.last >= 0 {
		return "" // there is one key, for the store to look at
	}
	for i := k.first; i < len(args); i += k.step {
		if n := len(args[i]); n == 0 || n > objstore.MaxKey {
			return badKey
		}
	}
	return ""
}

// text returns an argument for the text of an error: up to a zero byte, as Redis does, and bounded.
func text(arg []byte, most int) []byte {
	arg = arg[:min(len(arg), most)]
	if i := bytes.IndexByte(arg, 0); i >= 0 {
		arg = arg[:i]
	}
	return arg
}

// unknown says that there is no such command, as Redis does.
func (c *conn) unknown(args [][]byte) {
	const most = 128
	var b strings.Builder
	b.WriteString("ERR unknown command '")
	b.Write(text(args[0], most))
	b.WriteString("', with args beginning with: ")
	for begin, i := b.Len(), 1; i < len(args) && b.Len()-begin < most; i++ {
		b.WriteByte('\'')
		b.Write(text(args[i], most-(b.Len()-begin)))
		b.WriteString("' ")
	}
	c.fail(b.String())
}

// is reports whether an argument is a word, which is in upper case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i, b := range arg {
		if b >= 'a' && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}
