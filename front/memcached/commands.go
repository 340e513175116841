package memcached

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// command serves what is no operation on a key.
func (c *conn) command(t [][]byte) error {
	switch name := string(t[0]); name {
	case "flush_all":
		return c.flushAll(t)
	case "version":
		c.say("VERSION " + Version)
	case "quit":
		return c.quit()
	case "verbosity":
		c.verbosity(t)
	case "stats":
		return c.stats(t)
	case "debugtime":
		if !c.srv.o.Debug {
			c.say("ERROR")
			return nil
		}
		return c.moveTime(t)
	case "shutdown":
		return c.shutdown(t)
	case "lru_crawler":
		return c.crawler(t)
	case "slabs":
		c.slabs(t)
	case "cache_memlimit":
		if c.has(t, 2, 3) {
			c.quiet(t)
			c.say("MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust")
		}
	case "refresh_certs":
		if c.srv.o.TLS == nil {
			c.say("ERROR")
		} else {
			c.say("OK") // a handshake reads those that have changed
		}
	case "watch":
		c.say("CLIENT_ERROR watch commands not allowed")
	default:
		if last := t[len(t)-1]; bytes.HasPrefix(last, []byte("HTTP/")) {
			return errQuit
		}
		c.say("ERROR")
	}
	return nil
}

// shutdown ends the server, if it may be ended by clients.
func (c *conn) shutdown(t [][]byte) error {
	switch {
	case c.srv.o.Shutdown == nil:
		c.say("ERROR: shutdown not enabled")
	case len(t) == 1, len(t) == 2 && string(t[1]) == "graceful":
		c.srv.o.Shutdown()
		return errQuit
	default:
		c.say("CLIENT_ERROR invalid shutdown mode")
	}
	return nil
}

// slabs answers what manages memcached's memory: the store manages its own.
func (c *conn) slabs(t [][]byte) {
	switch {
	case len(t) == 4 && string(t[1]) == "reassign":
		c.say("CLIENT_ERROR slab reassignment disabled")
	case len(t) >= 3 && string(t[1]) == "automove":
		c.quiet(t)
		switch level, ok := parseUint32(t[2]); {
		case !ok:
			c.say(badLine)
		case level > 2:
			c.say("ERROR")
		default:
			c.say("OK")
		}
	default:
		c.say("ERROR")
	}
}

// mostVerbose is memcached's limit.
const mostVerbose = 10

// verbosity notes how much the client wants logged, for stats settings: what is logged is this server's own choice.
func (c *conn) verbosity(t [][]byte) {
	if !c.has(t, 2, 3) {
		return
	}
	c.quiet(t)
	level, ok := parseUint32(t[1])
	if !ok {
		c.say(badLine)
		return
	}
	c.srv.verbose.Store(min(level, mostVerbose))
	c.say("OK")
}

// prefixEnd ends the prefix of a key, of which stats detail counts the requests.
const prefixEnd = ':'

// mostPrefixes bounds what is counted for.
const mostPrefixes = 10_000

// prefixes counts requests by the prefix of their keys.
type prefixes struct {
	on atomic.Bool

	mu    sync.Mutex
	count map[string]*prefixCount
}

type prefixCount struct{ gets, hits, sets, deletes uint64 }

// see counts a request for a key, if that is wanted.
func (p *prefixes) see(key []byte, add func(*prefixCount)) {
	end := bytes.IndexByte(key, prefixEnd)
	if end < 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.count[string(key[:end])]
	if n == nil {
		if len(p.count) >= mostPrefixes {
			return
		}
		if p.count == nil {
			p.count = map[string]*prefixCount{}
		}
		n = new(prefixCount)
		p.count[string(key[:end])] = n
	}
	add(n)
}

func (p *prefixes) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count = nil
}

// detail answers stats detail.
func (c *conn) detail(t [][]byte) {
	what := ""
	if len(t) > 0 {
		what = string(t[0])
	}
	p := &c.srv.prefixes
	switch what {
	case "on", "off":
		p.on.Store(what == "on")
		c.say("OK")
	case "dump":
		p.mu.Lock()
		defer p.mu.Unlock()
		var lines []string
		for prefix, n := range p.count {
			lines = append(lines, fmt.Sprintf("PREFIX %s get %d hit %d set %d del %d\r\n", prefix, n.gets, n.hits, n.sets, n.deletes))
		}
		slices.Sort(lines)
		for _, l := range lines {
			c.out = append(c.out, l...)
		}
		c.out = append(c.out, "END\r\n"...)
	default:
		c.say("CLIENT_ERROR usage: stats detail on|off|dump")
	}
}

// connections answers stats conns.
func (s *Server) connections() (list []stat) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, i := s.clock(), 0
	add := func(name, value string) { list = append(list, stat{fmt.Sprintf("%d:%s", i, name), value}) }
	for _, a := range s.accept.Listeners() {
		add("addr", a.Network()+":"+a.String())
		add("state", "conn_listening")
		add("secs_since_last_cmd", "0")
		i++
	}
	for c := range s.conns {
		remote := c.nc.RemoteAddr()
		add("addr", remote.Network()+":"+remote.String())
		local := c.nc.LocalAddr()
		add("listen_addr", local.Network()+":"+local.String())
		add("state", connStates[c.state.Load()])
		add("secs_since_last_cmd", number(int((now - time.Duration(c.lastAt.Load())).Seconds())))
		i++
	}
	return list
}
