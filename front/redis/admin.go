package redis

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/declock/declock/objstore"
)

// commandList is COMMAND.
func (c *conn) commandList([][]byte) error {
	c.array(len(list))
	for _, k := range list {
		c.describe(k)
	}
	return nil
}

func (c *conn) commandCount([][]byte) error {
	c.number(int64(len(list)))
	return nil
}

func (c *conn) commandNames([][]byte) error {
	c.array(len(list))
	for _, k := range list {
		c.text(k.name)
	}
	return nil
}

func (c *conn) commandDocs([][]byte) error {
	c.mapping(0)
	return nil
}

func (c *conn) commandInfo(args [][]byte) error {
	if len(args) == 2 {
		return c.commandList(args)
	}
	c.array(len(args) - 2)
	for _, name := range args[2:] {
		if k := c.lookup(name); k != nil {
			c.describe(k)
		} else {
			c.null()
		}
	}
	return nil
}

// describe says what a command is, as Redis 6 does.
func (c *conn) describe(k *command) {
	c.array(6)
	c.text(k.name)
	c.number(int64(k.arity))
	flags := strings.Fields(k.flags)
	c.array(len(flags))
	for _, f := range flags {
		c.out = append(append(append(c.out, '+'), f...), '\r', '\n')
	}
	c.number(int64(k.first))
	c.number(int64(k.last))
	c.number(int64(k.step))
}

// fine is what needs nothing to be done.
func (c *conn) fine([][]byte) error {
	c.ok()
	return nil
}

func (c *conn) clientID([][]byte) error {
	c.number(c.id)
	return nil
}

func (c *conn) clientGetName([][]byte) error {
	if name := c.about.Load().name; name != "" {
		c.text(name)
	} else {
		c.null()
	}
	return nil
}

func (c *conn) clientSetName(args [][]byte) error {
	if !printableName(args[2]) {
		c.fail(badName)
		return nil
	}
	c.rename(args[2])
	c.ok()
	return nil
}

func (c *conn) clientSetInfo(args [][]byte) error {
	a := *c.about.Load()
	value := args[3]
	switch {
	case len(value) > longestName || !printableName(value):
		c.fail(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", strings.ToLower(string(args[2]))))
		return nil
	case is(args[2], "LIB-NAME"):
		a.lib = string(value)
	case is(args[2], "LIB-VER"):
		a.version = string(value)
	default:
		c.fail("ERR Unrecognized option '" + string(args[2]) + "'")
		return nil
	}
	c.about.Store(&a)
	c.ok()
	return nil
}

func (c *conn) clientInfo([][]byte) error {
	c.verbatim(c.describeClient(nil))
	return nil
}

func (c *conn) clientList([][]byte) error {
	var b []byte
	c.srv.mu.Lock()
	for o := range c.srv.sessions {
		b = o.describeClient(b)
	}
	c.srv.mu.Unlock()
	c.verbatim(b)
	return nil
}

// describeClient appends a line about a client, of what another goroutine may know.
func (c *conn) describeClient(b []byte) []byte {
	a := c.about.Load()
	idle := time.Since(c.srv.started) - time.Duration(c.lastAt.Load())
	return fmt.Appendf(b, "id=%d addr=%s laddr=%s name=%s age=%d idle=%d flags=N db=0 sub=0 psub=0 ssub=0 multi=-1 user=%s redir=-1 lib-name=%s lib-ver=%s\n",
		c.id, c.nc.RemoteAddr(), c.nc.LocalAddr(), a.name, int(time.Since(c.began).Seconds()), int(idle.Seconds()), a.user, a.lib, a.version)
}

func (c *conn) clientReply(args [][]byte) error {
	switch {
	case is(args[2], "ON"):
		c.silent = answers
		c.ok()
	case is(args[2], "OFF"):
		c.silent = silent
	case is(args[2], "SKIP"):
		if c.silent != silent {
			c.silent = skipNext
		}
	default:
		c.fail(syntaxError)
	}
	return nil
}

// settings are those that CONFIG GET knows.
func (c *conn) settings() [][2]string {
	policy := "allkeys-lru"
	if c.srv.o.NoEvict {
		policy = "noeviction"
	}
	memory := uint64(0)
	if a := c.srv.store.Load(); a != nil {
		memory = a.items.Limit()
	}
	return [][2]string{{"appendonly", "no"}, {"databases", "1"}, {"maxclients", strconv.Itoa(c.srv.o.MaxConns)}, {"maxmemory", strconv.FormatUint(memory, 10)},
		{"maxmemory-policy", policy}, {"proto-max-bulk-len", strconv.Itoa(c.srv.most())}, {"save", ""}, {"timeout", strconv.Itoa(int(c.srv.o.IdleTimeout.Seconds()))}}
}

func (c *conn) configGet(args [][]byte) error {
	var found [][2]string
	for _, s := range c.settings() {
		for _, p := range args[2:] {
			if is(p, strings.ToUpper(s[0])) {
				s[0] = string(p) // as it was asked for
			} else if !matches(bytes.ToLower(p), []byte(s[0])) {
				continue
			}
			found = append(found, s)
			break
		}
	}
	c.mapping(len(found))
	for _, s := range found {
		c.text(s[0])
		c.text(s[1])
	}
	return nil
}

func (c *conn) configSet(args [][]byte) error {
	c.fail("ERR CONFIG SET failed (possibly related to argument '" + string(args[2]) + "') - settings are those of declock-cn, and hold from its start on")
	return nil
}

func (c *conn) configResetStat([][]byte) error {
	t := &c.srv.counted
	for _, n := range []*atomic.Uint64{&t.read, &t.written, &t.idled, &t.overBuffers, &t.errors, &t.hits, &t.misses} {
		n.Store(0)
	}
	for i := range t.calls {
		t.calls[i].Store(0)
	}
	c.ok()
	return nil
}

// A section is a part of what INFO answers.
type section struct {
	name  string
	lines func(*conn) ([][2]string, error)
}

var sections = []section{
	{"Server", (*conn).infoServer}, {"Clients", (*conn).infoClients}, {"Memory", (*conn).infoMemory}, {"Stats", (*conn).infoStats},
	{"Replication", (*conn).infoReplication}, {"Commandstats", (*conn).infoCommands}, {"Keyspace", (*conn).infoKeys},
}

func (c *conn) info(args [][]byte) error {
	asked := args[1:]
	var b []byte
	for _, s := range sections {
		wanted := len(asked) == 0 && s.name != "Commandstats"
		for _, a := range asked {
			wanted = wanted || is(a, strings.ToUpper(s.name)) || is(a, "ALL") || is(a, "EVERYTHING") || is(a, "DEFAULT") && s.name != "Commandstats"
		}
		if !wanted {
			continue
		}
		lines, err := s.lines(c)
		if err != nil {
			c.failed(err)
			return nil
		}
		if len(b) > 0 {
			b = append(b, "\r\n"...)
		}
		b = fmt.Appendf(b, "# %s\r\n", s.name)
		for _, l := range lines {
			b = fmt.Appendf(b, "%s:%s\r\n", l[0], l[1])
		}
	}
	c.verbatim(b)
	return nil
}

func number[T int | int64 | uint64](v T) string { return fmt.Sprint(v) }

func (c *conn) infoServer() ([][2]string, error) {
	up := time.Since(c.srv.started)
	return [][2]string{{"redis_version", Version}, {"redis_mode", "standalone"}, {"server_name", "declock"}, {"os", runtime.GOOS + " " + runtime.GOARCH}, {"arch_bits", "64"},
		{"process_id", number(os.Getpid())}, {"uptime_in_seconds", number(int(up.Seconds()))}, {"uptime_in_days", number(int(up.Hours() / 24))}}, nil
}

func (c *conn) infoClients() ([][2]string, error) {
	return [][2]string{{"connected_clients", number(c.srv.accept.Open())}, {"maxclients", number(c.srv.o.MaxConns)}, {"blocked_clients", "0"},
		{"client_buffers", number(c.srv.buffers.Load())}}, nil
}

func (c *conn) infoMemory() ([][2]string, error) {
	u, limit, err := c.usage()
	return [][2]string{{"used_memory", number(u.Bytes)}, {"maxmemory", number(limit)}, {"maxmemory_policy", c.settings()[4][1]}}, err
}

// usage returns how much of the store is in use, and of how much.
func (c *conn) usage() (u objstore.Usage, limit uint64, err error) {
	a := c.srv.store.Load()
	if a == nil {
		return u, 0, errDetached
	}
	u, err = a.items.Usage(c.srv.ops)
	return u, a.items.Limit(), err
}

func (c *conn) infoStats() ([][2]string, error) {
	t, calls := &c.srv.counted, uint64(0)
	for i := range t.calls {
		calls += t.calls[i].Load()
	}
	st := c.srv.StoreStats()
	return [][2]string{{"total_connections_received", number(c.srv.accept.Accepted.Load())}, {"total_commands_processed", number(calls)},
		{"total_net_input_bytes", number(t.read.Load())}, {"total_net_output_bytes", number(t.written.Load())},
		{"rejected_connections", number(c.srv.accept.Rejected.Load())}, {"expired_keys", number(st.Expired)}, {"evicted_keys", number(st.Evictions)},
		{"evicted_clients", number(t.overBuffers.Load())}, {"keyspace_hits", number(t.hits.Load())}, {"keyspace_misses", number(t.misses.Load())},
		{"total_error_replies", number(t.errors.Load())}}, nil
}

func (c *conn) infoReplication() ([][2]string, error) {
	return [][2]string{{"role", "master"}, {"connected_slaves", "0"}}, nil
}

func (c *conn) infoCommands() (lines [][2]string, _ error) {
	for _, k := range list {
		if n := c.srv.counted.calls[k.number].Load(); n > 0 {
			lines = append(lines, [2]string{"cmdstat_" + k.name, "calls=" + number(n)})
		}
	}
	return lines, nil
}

func (c *conn) infoKeys() ([][2]string, error) {
	a := c.srv.store.Load()
	if a == nil {
		return nil, errDetached
	}
	n, err := a.items.Count(c.srv.ops)
	if err != nil || n == 0 {
		return nil, err
	}
	return [][2]string{{"db0", fmt.Sprintf("keys=%d,expires=0,avg_ttl=0", n)}}, nil
}
