package redis

import (
	"bytes"
	"fmt"
)

// Bounds of a request, besides that of a value.
const (
	mostArgs      = 1 << 17
	longestInline = 64 << 10
	longestNumber = 32 // of a line with a length

	strangersArgs  = 10 // as by Redis
	strangersValue = 16 << 10
)

// A protocolError ends a connection: what follows cannot be told apart.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// A parser finds requests in what a connection reads. It goes on where it was when more has been read: no byte is looked at twice.
type parser struct {
	mostValue   int  // bytes of an argument
	mostRequest int  // of a whole request
	stranger    bool // the client has not said who it is: its requests are short

	pos     int  // how much of the request has been looked at
	begun   bool // its first line has been read
	left    int  // arguments to come
	size    int  // of the argument to come; -1: its length is to come
	spans   []span
	args    [][]byte
	scratch []byte // of a line with quotes
}

type span struct{ from, to int }

// next returns the request at the beginning of b and how long it is. Neither args nor error: b is the beginning of one only. args are good until the bytes of b are
// changed; without error but with a length, the request is empty.
func (p *parser) next(b []byte) (args [][]byte, n int, err error) {
	if !p.begun {
		if len(b) == 0 {
			return nil, 0, nil
		}
		if b[0] != '*' {
			return p.inline(b)
		}
		count, ok, err := p.length(b, '*', "invalid multibulk length", mostArgs)
		if !ok {
			return nil, 0, err
		}
		if count <= 0 {
			return nil, p.reset(), nil
		}
		if p.stranger && count > strangersArgs {
			return nil, 0, protocolError("unauthenticated multibulk length")
		}
		p.begun, p.left, p.size = true, count, -1
		p.spans = p.spans[:0]
	}
	for p.left > 0 {
		if p.size < 0 {
			size, ok, err := p.length(b, '$', "invalid bulk length", p.mostValue)
			if !ok {
				return nil, 0, err
			}
			if p.size = size; size < 0 || p.pos+size > p.mostRequest {
				return nil, 0, protocolError("invalid bulk length")
			}
			if p.stranger && size > strangersValue {
				return nil, 0, protocolError("unauthenticated bulk length")
			}
		}
		end := p.pos + p.size
		if len(b) < end+2 {
			return nil, 0, nil
		}
		p.spans = append(p.spans, span{p.pos, end})
		p.pos, p.size = end+2, -1
		p.left--
	}
	p.args = p.args[:0]
	for _, s := range p.spans {
		p.args = append(p.args, b[s.from:s.to:s.to])
	}
	return p.args, p.reset(), nil
}

// reset begins a new request, and returns the length of the one before.
func (p *parser) reset() (n int) {
	n = p.pos
	p.pos, p.begun = 0, false
	return n
}

// need returns how long what there is of the request must become for next to make sense, as far as that is known.
func (p *parser) need() int {
	if p.begun && p.size >= 0 {
		return p.pos + p.size + 2
	}
	return 0
}

// passed notes that the bytes of the argument to come have been taken out of the request: it is empty.
func (p *parser) passed() { p.size = 0 }

// trim gives up memory that a large request has needed. It has as many arguments as spans, a line of words has no spans.
func (p *parser) trim() {
	if cap(p.args) > keepArgs {
		p.spans, p.args = nil, nil
	}
	if cap(p.scratch) > keepArgs {
		p.scratch = nil
	}
}

// memory returns about how many bytes of memory the parser has: 16 for a span, 24 for an argument.
func (p *parser) memory() int { return 16*cap(p.spans) + 24*cap(p.args) + cap(p.scratch) }

const keepArgs = 1 << 10

// length reads a line with a mark and a number. It is not ok if the line has not arrived, or there is an error.
func (p *parser) length(b []byte, mark byte, wrong string, most int) (n int, ok bool, err error) {
	rest := b[p.pos:]
	if len(rest) == 0 {
		return 0, false, nil
	}
	if rest[0] != mark {
		return 0, false, protocolError(fmt.Sprintf("expected '%c', got '%c'", mark, printable(rest[0])))
	}
	end := bytes.IndexByte(rest[:min(len(rest), longestNumber)], '\n')
	if end < 0 {
		if len(rest) >= longestNumber {
			return 0, false, protocolError(wrong)
		}
		return 0, false, nil
	}
	v, ok := integer(bytes.TrimSuffix(rest[1:end], []byte("\r")))
	if !ok || v > int64(most) {
		return 0, false, protocolError(wrong)
	}
	p.pos += end + 1
	return int(max(v, -1)), true, nil
}

func printable(b byte) byte {
	if b < ' ' || b > '~' {
		return '.'
	}
	return b
}

// inline reads a request that is a line of words, as people type them: with quotes, and \ before what is special.
func (p *parser) inline(b []byte) (args [][]byte, n int, err error) {
	end := bytes.IndexByte(b[p.pos:min(len(b), longestInline)], '\n')
	if end < 0 {
		if len(b) >= longestInline {
			return nil, 0, protocolError("too big inline request")
		}
		p.pos = len(b)
		return nil, 0, nil
	}
	end += p.pos
	p.pos = end + 1
	line := bytes.TrimSuffix(b[:end], []byte("\r"))
	p.args, p.scratch = p.args[:0], p.scratch[:0]
	if cap(p.scratch) < len(line) {
		p.scratch = make([]byte, 0, len(line)) // words lie in it: it must not move
	}
	for {
		line = bytes.TrimLeft(line, " \t\r\v\f\x00")
		if len(line) == 0 {
			return p.args, p.reset(), nil
		}
		from := len(p.scratch)
		if line = p.word(line); line == nil {
			return nil, 0, protocolError("unbalanced quotes in request")
		}
		p.args = append(p.args, p.scratch[from:len(p.scratch):len(p.scratch)])
	}
}

// word appends the word at the beginning of a line to scratch, and returns what is behind it; nil: its quotes are wrong.
func (p *parser) word(line []byte) []byte {
	var quote byte
	for i := 0; i < len(line); i++ {
		ch := line[i]
		switch {
		case quote != 0 && ch == quote:
			if i+1 < len(line) && line[i+1] != ' ' && line[i+1] != '\t' {
				return nil
			}
			return line[i+1:]
		case quote == '"' && ch == '\\' && i+3 < len(line) && line[i+1] == 'x' && hexDigit(line[i+2]) >= 0 && hexDigit(line[i+3]) >= 0:
			ch = byte(hexDigit(line[i+2])<<4 | hexDigit(line[i+3]))
			i += 3
		case quote == '"' && ch == '\\' && i+1 < len(line):
			i++
			ch = unescape(line[i])
		case quote == '\'' && ch == '\\' && i+1 < len(line) && line[i+1] == '\'':
			i++
			ch = '\''
		case quote == 0 && (ch == '"' || ch == '\''):
			quote = ch
			continue
		case quote == 0 && (ch == ' ' || ch == '\t' || ch == '\r' || ch == 0):
			return line[i:]
		}
		p.scratch = append(p.scratch, ch)
	}
	if quote != 0 {
		return nil
	}
	return line[len(line):]
}

func hexDigit(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b >= 'a' && b <= 'f':
		return int(b-'a') + 10
	case b >= 'A' && b <= 'F':
		return int(b-'A') + 10
	}
	return -1
}

func unescape(b byte) byte {
	switch b {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return b
}
