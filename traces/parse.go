package traces

import (
	"bytes"
	"fmt"
)

// numColumns of a line: see the package's comment.
const numColumns = 7

var columnNames = [numColumns + 1]string{"", "timestamp", "key", "key size", "value size", "client id", "operation", "TTL"}

// A LineError says what is wrong with a line. errors.Is(err, ErrFormat) holds.
type LineError struct {
	Name   string // of the trace
	Line   int64  // from 1
	Column int    // 1 to 7, or 0 for the line as a whole
	What   string
	Text   string // the line's beginning
}

func (e *LineError) Error() string {
	where := fmt.Sprintf("%s: line %d", e.Name, e.Line)
	if e.Column > 0 && e.Column <= numColumns {
		where += fmt.Sprintf(", column %d (%s)", e.Column, columnNames[e.Column])
	}
	return fmt.Sprintf("traces: %s: %s: %q", where, e.What, e.Text)
}

func (e *LineError) Unwrap() error { return ErrFormat }

// clip copies the beginning of a line for an error.
func clip(line []byte) string {
	const most = 80
	if len(line) > most {
		return string(line[:most]) + "..."
	}
	return string(line)
}

// maxDigits of a number keeps it within 64 bits, so that the parse needs no overflow test.
const maxDigits = 18

// parseLine reads a line. It goes from both ends to the middle: a key may hold commas, the
// other columns cannot. A non-empty what says which column is wrong and why.
func parseLine(line []byte, rec *Record) (column int, what string) {
	front, key, ok := bytes.Cut(line, oneComma)
	if !ok {
		return 0, tooFew(line)
	}
	seconds, what := number(front)
	switch {
	case bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff")):
		return 0, "the file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
	case what != "":
		return 1, what
	}
	var v [numColumns + 1]uint64
	for c := numColumns; c > 2; c-- {
		comma := bytes.LastIndexByte(key, ',')
		if comma < 0 {
			return 0, tooFew(line)
		}
		text := key[comma+1:]
		key = key[:comma]
		switch {
		case column != 0: // the others only need to be there
		case c == 6:
			if rec.Op = ParseOp(text); rec.Op == OpNone {
				column, what = c, "not an operation of the traces (get, gets, set, add, replace, cas, append, prepend, delete, incr, decr)"
			}
		default:
			if v[c], what = number(text); what != "" {
				column = c
			}
		}
	}
	switch {
	case column != 0:
		return column, what
	case len(key) == 0:
		return 2, "the key is empty"
	case bytes.IndexByte(key, 0) >= 0:
		return 2, "the key holds a NUL byte"
	case seconds > 1<<32-1:
		return 1, "the timestamp does not fit 32 bits of seconds"
	case v[3] > 1<<20:
		return 3, "the key size is over the bound of 1 MiB"
	case v[4] > maxValueSize:
		return 4, fmt.Sprintf("the value size is over the bound of %d bytes", maxValueSize)
	case v[7] > 1<<32-1:
		return 7, "the TTL does not fit 32 bits"
	}
	rec.Time, rec.Key, rec.KeySize, rec.ValueSize = uint32(seconds), key, uint32(v[3]), uint32(v[4])
	rec.Client, rec.TTL = v[5], uint32(v[7])
	return 0, ""
}

// number reads a decimal column.
func number(text []byte) (v uint64, what string) {
	switch {
	case len(text) == 0:
		return 0, "the column is empty"
	case len(text) > maxDigits && len(bytes.Trim(text, "0123456789")) == 0:
		return 0, "the number has more than 18 digits"
	}
	for _, c := range text {
		if c-'0' > 9 {
			return 0, "not a decimal number without sign"
		}
		v = v*10 + uint64(c-'0')
	}
	return v, ""
}

var oneComma = []byte{','}

// byteOrderMark begins text files of some programs, in UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// isHeader reports whether a line names the columns: there are seven, and none begins as a number does.
func isHeader(line []byte) bool {
	columns := bytes.Split(line, oneComma)
	for _, c := range columns {
		if c = bytes.Trim(c, " \"'"); len(c) == 0 || c[0]-'0' <= 9 || c[0] == '-' || c[0] == '+' {
			return false
		}
	}
	return len(columns) == numColumns
}

func tooFew(line []byte) string {
	if bytes.IndexByte(line, ',') < 0 && bytes.IndexByte(line, 0) >= 0 {
		return "NUL bytes: this is not a text file"
	}
	return fmt.Sprintf("the line has %d of 7 columns (timestamp,key,key size,value size,client id,operation,TTL)",
		bytes.Count(line, oneComma)+1)
}
