package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/declock/declock/cmd/internal/exit"
)

// ErrClosed: the other side has gone in the middle.
var ErrClosed = errors.New("control: the connection was closed")

// lines reads and writes bounded JSON lines.
type lines struct {
	conn net.Conn
	in   *bufio.Reader
	mu   sync.Mutex // of writing
}

func newLines(c net.Conn) *lines { return &lines{conn: c, in: bufio.NewReader(c)} }

// read reads a line of at most MaxLine bytes into v.
func (l *lines) read(v any) error {
	var line []byte
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) > MaxLine {
			return exit.Errorf(exit.Mismatch, "control: a line of more than %d bytes", MaxLine)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			if err := json.Unmarshal(line, v); err != nil {
				return exit.Errorf(exit.Mismatch, "control: no line of this protocol: %v", err)
			}
			return nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF):
			return ErrClosed
		default:
			return fmt.Errorf("%w: %w", ErrClosed, err)
		}
	}
}

// writeTimeout is how long a peer may not read before it counts as gone.
const writeTimeout = 30 * time.Second

func (l *lines) write(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	if len(b) >= MaxLine {
		return exit.Errorf(exit.TooLarge, "control: a line of %d bytes, at most %d", len(b), MaxLine)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := l.conn.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("%w: %w", ErrClosed, err)
	}
	return nil
}

// A Client is a command's end of a connection. One goroutine reads from it at a time.
type Client struct{ l *lines }

// Dial connects to the socket at a path.
func Dial(ctx context.Context, path string) (*Client, error) {
	var d net.Dialer
	short, done, err := shortPath(path)
	if err != nil {
		return nil, err
	}
	defer done()
	c, err := d.DialContext(ctx, "unix", short)
	if err != nil {
		return nil, fmt.Errorf("control: no answer at %s: %w", path, errors.Unwrap(err))
	}
	return &Client{l: newLines(c)}, nil
}

// Close closes the connection, which cancels what is under way.
func (c *Client) Close() error { return c.l.conn.Close() }

// Send sends a request.
func (c *Client) Send(r Request) error {
	r.Version = Version
	return c.l.write(&r)
}

// Next returns the next reply. A reply of type error is returned as its error.
func (c *Client) Next() (*Reply, error) {
	var r Reply
	if err := c.l.read(&r); err != nil {
		return nil, err
	}
	if r.Version != Version {
		return nil, exit.Errorf(exit.Mismatch, "control: the daemon speaks version %d, this command %d: use those of one release", r.Version, Version)
	}
	if r.Type == TypeError {
		if r.Error == nil {
			return nil, exit.Errorf(exit.Mismatch, "control: an error without a message")
		}
		return nil, r.Error.Err()
	}
	return &r, nil
}

// Status asks for the daemon's status.
func (c *Client) Status(ctx context.Context) (*Status, error) {
	if d, ok := ctx.Deadline(); ok {
		_ = c.l.conn.SetReadDeadline(d)
	}
	if err := c.Send(Request{Op: OpStatus}); err != nil {
		return nil, err
	}
	r, err := c.Next()
	switch {
	case err != nil:
		return nil, err
	case r.Status == nil:
		return nil, exit.Errorf(exit.Mismatch, "control: asked for the status, got %q", r.Type)
	}
	return r.Status, nil
}

// maxSunPath is what fits in a socket address, with its zero byte.
const maxSunPath = 107

// shortPath returns a path to the same file that fits in a socket address: one through an
// open directory of this process if need be. Call done when it is no longer needed.
func shortPath(path string) (short string, done func(), err error) {
	if len(path) <= maxSunPath {
		return path, func() {}, nil
	}
	f, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", f.Fd(), filepath.Base(path)), func() { _ = f.Close() }, nil
}
