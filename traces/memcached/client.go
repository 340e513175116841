package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/declock/declock/objstore"
)

// Errors of the adapter, for errors.Is. Errors of the network come wrapped.
var (
	// ErrTarget: the target is not memcached://HOST:PORT or memcached:///PATH.
	ErrTarget = errors.New("memcached: bad target")
	// ErrProtocol: the answer is not memcached's. The connection is dropped.
	ErrProtocol = errors.New("memcached: unexpected answer")
	// ErrServer: memcached reports an error of its own.
	ErrServer = errors.New("memcached: server error")
	// ErrKey: memcached's text protocol cannot carry the key: it holds a blank or a control byte.
	ErrKey = errors.New("memcached: key holds a blank or a control byte")
	// ErrUnknown: the connection broke before the answer; whether the operation took effect is
	// unknown, and it is not done again.
	ErrUnknown = errors.New("memcached: connection lost, outcome unknown")
)

const (
	// Scheme begins a target.
	Scheme      = "memcached"
	defaultPort = "11211"
	// maxRelative is the longest TTL that memcached takes as relative; a larger number is a Unix time.
	maxRelative    = 30 * 24 * 3600
	defaultTimeout = 10 * time.Second
	maxValue       = 1 << 30
	bufferSize     = 64 << 10
)

// Options of a Client; the zero value is good.
type Options struct {
	// Timeout of connecting and of an operation, which gets at least three quarters of it; 0 is 10 s.
	Timeout time.Duration
	// Now is the Unix time, for TTLs over 30 days; nil is the wall clock's.
	Now func() int64
}

// A Client is one connection to a memcached. It implements objstore.Cache. One goroutine uses it at a time.
type Client struct {
	network, address string
	o                Options
	conn             net.Conn
	r                *bufio.Reader
	w                *bufio.Writer
	deadline         time.Time
	line             []byte // scratch for commands
	value            []byte // of the last Get
}

var _ objstore.Cache = (*Client)(nil)

// ParseTarget splits memcached://HOST[:PORT] or memcached:///PATH/OF/SOCKET into what Dial wants.
func ParseTarget(target string) (network, address string, err error) {
	u, err := url.Parse(target)
	switch {
	case err != nil || u.Scheme != Scheme || u.RawQuery != "" || u.Fragment != "" || u.User != nil:
	case u.Host == "" && len(u.Path) > 1:
		return "unix", u.Path, nil
	case u.Hostname() != "" && (u.Path == "" || u.Path == "/"):
		port := u.Port()
		if port == "" {
			port = defaultPort
		}
		return "tcp", net.JoinHostPort(u.Hostname(), port), nil
	}
	return "", "", fmt.Errorf("%w: %q: write memcached://HOST:PORT, or memcached:///PATH of a unix socket", ErrTarget, target)
}

// DialTarget is ParseTarget and Dial.
func DialTarget(target string, o Options) (*Client, error) {
	network, address, err := ParseTarget(target)
	if err != nil {
		return nil, err
	}
	return Dial(network, address, o)
}

// Dial connects to a memcached and makes sure that it is one.
func Dial(network, address string, o Options) (*Client, error) {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Now == nil {
		o.Now = func() int64 { return time.Now().Unix() }
	}
	c := &Client{network: network, address: address, o: o}
	if err := c.connect(); err != nil {
		return nil, err
	}
	if _, err := c.Version(); err != nil {
		c.Close()
		return nil, fmt.Errorf("memcached: is %s a memcached? %w", address, err)
	}
	return c, nil
}

func (c *Client) connect() error {
	conn, err := net.DialTimeout(c.network, c.address, c.o.Timeout)
	if err != nil {
		return fmt.Errorf("memcached: cannot connect to %s: %w", c.address, err)
	}
	c.conn, c.deadline = conn, time.Time{}
	c.r, c.w = bufio.NewReaderSize(conn, bufferSize), bufio.NewWriterSize(conn, bufferSize)
	return nil
}

// Close closes the connection.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	err := c.conn.Close()
	c.conn = nil
	return err
}

// Version returns the server's version.
func (c *Client) Version() (string, error) {
	answer, err := c.ask(append(c.line[:0], "version"...), nil)
	if err != nil {
		return "", err
	}
	v, ok := bytes.CutPrefix(answer, []byte("VERSION "))
	if !ok {
		return "", c.unexpected(answer)
	}
	return string(v), nil
}

// FlushAll removes all objects: what a replay begins with, to be comparable.
func (c *Client) FlushAll() error {
	answer, err := c.ask(append(c.line[:0], "flush_all"...), nil)
	return c.expect(answer, err, "OK")
}

// Get implements objstore.Cache. It is memcached's gets.
func (c *Client) Get(key []byte) (objstore.Item, error) {
	cmd, err := c.command("gets", key)
	if err != nil {
		return objstore.Item{}, err
	}
	answer, err := c.ask(cmd, nil)
	if err != nil {
		return objstore.Item{}, err
	}
	if string(answer) == "END" {
		return objstore.Item{}, objstore.ErrNotFound
	}
	item, n, ok := parseValue(answer, key)
	if !ok {
		return objstore.Item{}, c.unexpected(answer)
	}
	if cap(c.value) < n+2 {
		c.value = make([]byte, n+2)
	}
	data := c.value[:n+2]
	if _, err := io.ReadFull(c.r, data); err != nil {
		return objstore.Item{}, c.broken(err)
	}
	if data[n] != '\r' || data[n+1] != '\n' {
		return objstore.Item{}, c.unexpected(data[n:])
	}
	if answer, err = c.readLine(); err != nil {
		return objstore.Item{}, err
	}
	if string(answer) != "END" {
		return objstore.Item{}, c.unexpected(answer)
	}
	item.Value = data[:n:n]
	return item, nil
}

// parseValue reads "VALUE key flags bytes unique".
func parseValue(line, key []byte) (item objstore.Item, n int, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("VALUE "))
	if !ok || !bytes.HasPrefix(rest, key) {
		return item, 0, false
	}
	rest = rest[len(key):]
	var field [3]uint64
	for i := range field {
		if len(rest) < 2 || rest[0] != ' ' {
			return item, 0, false
		}
		rest = rest[1:]
		end := bytes.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		var err error
		if field[i], err = strconv.ParseUint(string(rest[:end]), 10, 64); err != nil {
			return item, 0, false
		}
		rest = rest[end:]
	}
	if len(rest) != 0 || field[0] > 1<<32-1 || field[1] > maxValue {
		return item, 0, false
	}
	return objstore.Item{Flags: uint32(field[0]), CAS: field[2]}, int(field[1]), true
}

// Set implements objstore.Cache.
func (c *Client) Set(key, value []byte, o objstore.Options) error {
	return c.store("set", key, value, o, nil)
}

// Add implements objstore.Cache.
func (c *Client) Add(key, value []byte, o objstore.Options) error {
	return notStored(c.store("add", key, value, o, nil), objstore.ErrExists)
}

// Replace implements objstore.Cache.
func (c *Client) Replace(key, value []byte, o objstore.Options) error {
	return notStored(c.store("replace", key, value, o, nil), objstore.ErrNotFound)
}

// CompareAndSwap implements objstore.Cache.
func (c *Client) CompareAndSwap(key, value []byte, o objstore.Options, cas uint64) error {
	return c.store("cas", key, value, o, &cas)
}

// Append implements objstore.Cache.
func (c *Client) Append(key, data []byte) error {
	return notStored(c.store("append", key, data, objstore.Options{}, nil), objstore.ErrNotFound)
}

// Prepend implements objstore.Cache.
func (c *Client) Prepend(key, data []byte) error {
	return notStored(c.store("prepend", key, data, objstore.Options{}, nil), objstore.ErrNotFound)
}

// errNotStored is NOT_STORED, which means what the operation makes of it.
var errNotStored = errors.New("memcached: not stored")

func notStored(err, meaning error) error {
	if err == errNotStored {
		return meaning
	}
	return err
}

// store is all commands with data: COMMAND key flags exptime bytes [unique].
func (c *Client) store(name string, key, value []byte, o objstore.Options, unique *uint64) error {
	cmd, err := c.command(name, key)
	if err != nil {
		return err
	}
	if len(value) > maxValue {
		return objstore.ErrValueSize
	}
	cmd = strconv.AppendUint(append(cmd, ' '), uint64(o.Flags), 10)
	cmd = strconv.AppendInt(append(cmd, ' '), c.exptime(o.TTL), 10)
	cmd = strconv.AppendUint(append(cmd, ' '), uint64(len(value)), 10)
	if unique != nil {
		cmd = strconv.AppendUint(append(cmd, ' '), *unique, 10)
	}
	if value == nil {
		value = []byte{}
	}
	answer, err := c.ask(cmd, value)
	if err != nil {
		return err
	}
	switch string(answer) {
	case "STORED":
		return nil
	case "NOT_STORED":
		return errNotStored
	case "EXISTS":
		return objstore.ErrExists
	case "NOT_FOUND":
		return objstore.ErrNotFound
	}
	return c.unexpected(answer)
}

// Delete implements objstore.Cache.
func (c *Client) Delete(key []byte) error {
	cmd, err := c.command("delete", key)
	if err != nil {
		return err
	}
	answer, err := c.ask(cmd, nil)
	return c.expect(answer, err, "DELETED")
}

// Touch implements objstore.Cache.
func (c *Client) Touch(key []byte, ttl uint32) error {
	cmd, err := c.command("touch", key)
	if err != nil {
		return err
	}
	answer, err := c.ask(strconv.AppendInt(append(cmd, ' '), c.exptime(ttl), 10), nil)
	return c.expect(answer, err, "TOUCHED")
}

// Incr implements objstore.Cache.
func (c *Client) Incr(key []byte, delta uint64) (uint64, error) { return c.count("incr", key, delta) }

// Decr implements objstore.Cache.
func (c *Client) Decr(key []byte, delta uint64) (uint64, error) { return c.count("decr", key, delta) }

func (c *Client) count(name string, key []byte, delta uint64) (uint64, error) {
	cmd, err := c.command(name, key)
	if err != nil {
		return 0, err
	}
	answer, err := c.ask(strconv.AppendUint(append(cmd, ' '), delta, 10), nil)
	if err != nil {
		return 0, err
	}
	if n, err := strconv.ParseUint(string(bytes.TrimRight(answer, " ")), 10, 64); err == nil {
		return n, nil
	}
	return 0, c.expect(answer, nil, "a number")
}

// command begins a command with a checked key.
func (c *Client) command(name string, key []byte) ([]byte, error) {
	if len(key) == 0 || len(key) > objstore.MaxKey {
		return nil, objstore.ErrKeySize
	}
	for _, b := range key {
		if b <= ' ' || b == 0x7f {
			return nil, fmt.Errorf("%w: %q", ErrKey, key)
		}
	}
	return append(append(append(c.line[:0], name...), ' '), key...), nil
}

// exptime is the TTL as memcached wants it.
func (c *Client) exptime(ttl uint32) int64 {
	if ttl > maxRelative {
		return c.o.Now() + int64(ttl)
	}
	return int64(ttl)
}

// expect judges an answer without data.
func (c *Client) expect(answer []byte, err error, good string) error {
	switch {
	case err != nil:
		return err
	case string(answer) == good:
		return nil
	case string(answer) == "NOT_FOUND":
		return objstore.ErrNotFound
	}
	return c.unexpected(answer)
}
