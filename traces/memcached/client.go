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
	answer, err := c.send(append(c.line[:0], "version"...), nil)
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
	answer, err := c.send(append(c.line[:0], "flush_all"...), nil)
	return c.expect("OK", answer, err)
}

// Get implements objstore.Cache. It is memcached's gets.
func (c *Client) Get(key []byte) (objstore.Item, error) {
	answer, err := c.ask("gets", key, nil)
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
	answer, err = c.readLine()
	item.Value = data[:n:n]
	return item, c.expect("END", answer, err)
}

// parseValue reads "VALUE key flags bytes unique".
func parseValue(line, key []byte) (item objstore.Item, size int, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("VALUE "))
	rest, same := bytes.CutPrefix(rest, key)
	if !ok || !same || !bytes.HasPrefix(rest, []byte(" ")) {
		return item, 0, false
	}
	var field [3]uint64
	n := 0
	for text := range bytes.FieldsSeq(rest) {
		v, err := strconv.ParseUint(string(text), 10, 64)
		if err != nil || n == len(field) {
			return item, 0, false
		}
		field[n] = v
		n++
	}
	if n < len(field) || field[0] > 1<<32-1 || field[1] > maxValue {
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
	return c.store("add", key, value, o, objstore.ErrExists)
}

// Replace implements objstore.Cache.
func (c *Client) Replace(key, value []byte, o objstore.Options) error {
	return c.store("replace", key, value, o, objstore.ErrNotFound)
}

// CompareAndSwap implements objstore.Cache.
func (c *Client) CompareAndSwap(key, value []byte, o objstore.Options, cas uint64) error {
	return c.store("cas", key, value, o, nil, cas)
}

// Append implements objstore.Cache.
func (c *Client) Append(key, data []byte) error {
	return c.store("append", key, data, objstore.Options{}, objstore.ErrNotFound)
}

// Prepend implements objstore.Cache.
func (c *Client) Prepend(key, data []byte) error {
	return c.store("prepend", key, data, objstore.Options{}, objstore.ErrNotFound)
}

// store is all commands with data: COMMAND key flags exptime bytes [unique]. notStored is what NOT_STORED means.
func (c *Client) store(name string, key, value []byte, o objstore.Options, notStored error, unique ...uint64) error {
	if len(value) > maxValue {
		return objstore.ErrValueSize
	}
	if value == nil {
		value = []byte{}
	}
	args := [4]uint64{uint64(o.Flags), c.exptime(o.TTL), uint64(len(value))}
	n := 3 + copy(args[3:], unique)
	answer, err := c.ask(name, key, value, args[:n]...)
	if err == nil && string(answer) == "NOT_STORED" && notStored != nil {
		return notStored
	}
	return c.expect("STORED", answer, err)
}

// Delete implements objstore.Cache.
func (c *Client) Delete(key []byte) error {
	answer, err := c.ask("delete", key, nil)
	return c.expect("DELETED", answer, err)
}

// Touch implements objstore.Cache.
func (c *Client) Touch(key []byte, ttl uint32) error {
	answer, err := c.ask("touch", key, nil, c.exptime(ttl))
	return c.expect("TOUCHED", answer, err)
}

// Incr implements objstore.Cache.
func (c *Client) Incr(key []byte, delta uint64) (uint64, error) { return c.count("incr", key, delta) }

// Decr implements objstore.Cache.
func (c *Client) Decr(key []byte, delta uint64) (uint64, error) { return c.count("decr", key, delta) }

func (c *Client) count(name string, key []byte, delta uint64) (uint64, error) {
	answer, err := c.ask(name, key, nil, delta)
	if err == nil {
		if n, err := strconv.ParseUint(string(bytes.TrimRight(answer, " ")), 10, 64); err == nil {
			return n, nil
		}
	}
	return 0, c.expect("a number", answer, err)
}

// exptime is the TTL as memcached wants it.
func (c *Client) exptime(ttl uint32) uint64 {
	if ttl > maxRelative {
		return uint64(time.Now().Unix()) + uint64(ttl)
	}
	return uint64(ttl)
}

// expect judges an answer without data, and the error of asking for it.
func (c *Client) expect(good string, answer []byte, err error) error {
	if err != nil {
		return err
	}
	switch string(answer) {
	case good:
		return nil
	case "EXISTS":
		return objstore.ErrExists
	case "NOT_FOUND":
		return objstore.ErrNotFound
	}
	return c.unexpected(answer)
}
