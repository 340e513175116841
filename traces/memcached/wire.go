package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/declock/declock/objstore"
)

// ask sends a command on a key, with numbers behind it, as send does.
func (c *Client) ask(name string, key, data []byte, args ...uint64) ([]byte, error) {
	if len(key) == 0 || len(key) > objstore.MaxKey {
		return nil, objstore.ErrKeySize
	}
	for _, b := range key {
		if b <= ' ' || b == 0x7f {
			return nil, fmt.Errorf("%w: %q", ErrKey, key)
		}
	}
	cmd := append(append(append(c.line[:0], name...), ' '), key...)
	for _, n := range args {
		cmd = strconv.AppendUint(append(cmd, ' '), n, 10)
	}
	return c.send(cmd, data)
}

// send sends a command, with data unless that is nil, and returns the first line of the answer, which is
// valid until the next read. A connection that broke earlier is made anew; a command is never sent twice.
func (c *Client) send(cmd, data []byte) ([]byte, error) {
	if c.conn == nil {
		if err := c.connect(); err != nil {
			return nil, err
		}
	}
	if err := c.extendDeadline(); err != nil {
		return nil, c.broken(err)
	}
	// bufio keeps the first error, and Flush returns it.
	c.line = append(cmd, '\r', '\n')
	_, _ = c.w.Write(c.line)
	if data != nil {
		_, _ = c.w.Write(data)
		_, _ = c.w.WriteString("\r\n")
	}
	if err := c.w.Flush(); err != nil {
		return nil, c.broken(err)
	}
	return c.readLine()
}

// extendDeadline sets the deadline anew when a quarter of it is gone: not for every operation.
func (c *Client) extendDeadline() error {
	now := time.Now()
	if c.deadline.Sub(now) > c.o.Timeout*3/4 {
		return nil
	}
	c.deadline = now.Add(c.o.Timeout)
	return c.conn.SetDeadline(c.deadline)
}

// readLine returns a line of an answer, without its end.
func (c *Client) readLine() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, c.unexpected(line)
	}
	if err != nil {
		return nil, c.broken(err)
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte{'\r'}), nil
}

// broken drops the connection after an error of the network.
func (c *Client) broken(err error) error {
	c.Close()
	return fmt.Errorf("%w: %s: %w", ErrUnknown, c.address, err)
}

// unexpected is for an answer that the operation does not know: an error report of memcached, or no
// memcached at all, after which the connection cannot be trusted.
func (c *Client) unexpected(answer []byte) error {
	const most = 80
	text := string(answer[:min(len(answer), most)])
	switch {
	case bytes.HasPrefix(answer, []byte("SERVER_ERROR object too large")):
		return objstore.ErrValueSize
	case bytes.HasPrefix(answer, []byte("SERVER_ERROR out of memory")):
		return fmt.Errorf("%w: %s", objstore.ErrNoSpace, text)
	case bytes.HasPrefix(answer, []byte("CLIENT_ERROR cannot increment or decrement non-numeric value")):
		return objstore.ErrNotNumber
	case bytes.HasPrefix(answer, []byte("SERVER_ERROR ")):
		return fmt.Errorf("%w: %s", ErrServer, text)
	case bytes.HasPrefix(answer, []byte("CLIENT_ERROR ")) || string(answer) == "ERROR":
		// After a bad data chunk the rest of it would be taken for commands.
		c.Close()
		return fmt.Errorf("%w: %s", ErrServer, text)
	}
	c.Close()
	return fmt.Errorf("%w: %q", ErrProtocol, text)
}
