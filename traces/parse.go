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
func parseLine(line []byte, rec *Record, maxValue uint32) (column int, what string) {
	// Column 1, forwards.
	i, time := 0, uint64(0)
	for i < len(line) && line[i]-'0' <= 9 && i < maxDigits {
		time = time*10 + uint64(line[i]-'0')
		i++
	}
	if i == 0 || i == len(line) || line[i] != ',' || time > 1<<32-1 {
		return frontError(line, i, time)
	}
	// Columns 7 to 3, backwards; e is where the column to the left ends.
	ttl, e, what := number(line, len(line), i)
	if what != "" {
		return backError(line, 7, what)
	}
	comma := e - 1
	for comma > i && line[comma] != ',' { // an operation is short
		comma--
	}
	if comma <= i {
		return 0, tooFew(line)
	}
	op := ParseOp(line[comma+1 : e])
	if op == OpNone {
		return backError(line, 6, "not an operation of the traces (get, gets, set, add, replace, cas, append, prepend, delete, incr, decr)")
	}
	client, e, what := number(line, comma, i)
	if what != "" {
		return backError(line, 5, what)
	}
	valueSize, e, what := number(line, e, i)
	if what != "" {
		return backError(line, 4, what)
	}
	keySize, e, what := number(line, e, i)
	if what != "" {
		return backError(line, 3, what)
	}
	key := line[i+1 : e]
	switch {
	case len(key) == 0:
		return 2, "the key is empty"
	case bytes.IndexByte(key, 0) >= 0:
		return 2, "the key holds a NUL byte"
	case keySize > 1<<20:
		return 3, "the key size is over the bound of 1 MiB"
	case valueSize > uint64(maxValue):
		return 4, fmt.Sprintf("the value size is over the bound of %d bytes", maxValue)
	case ttl > 1<<32-1:
		return 7, "the TTL does not fit 32 bits"
	}
	rec.Time, rec.Key, rec.KeySize, rec.ValueSize = uint32(time), key, uint32(keySize), uint32(valueSize)
	rec.Client, rec.Op, rec.TTL = client, op, uint32(ttl)
	return 0, ""
}

// number reads the decimal column that ends before line[end], and returns the
// place of the comma before it, which must lie behind line[first], the line's first comma.
func number(line []byte, end, first int) (v uint64, comma int, what string) {
	i, scale := end-1, uint64(1)
	for ; i > first && line[i]-'0' <= 9; i-- {
		if end-i > maxDigits {
			return 0, 0, "the number has more than 18 digits"
		}
		v += uint64(line[i]-'0') * scale
		scale *= 10
	}
	switch {
	case i <= first || line[i] != ',':
		return 0, 0, "not a decimal number without sign"
	case i == end-1:
		return 0, 0, "the column is empty"
	}
	return v, i, ""
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
	return fmt.Sprintf("the line has %d of 7 columns (timestamp,key,key size,value size,client id,operation,TTL)",
		bytes.Count(line, oneComma)+1)
}

// backError is an error of a column that was found from the right: with too few columns there it is another one.
func backError(line []byte, column int, what string) (int, string) {
	if bytes.Count(line, oneComma) < numColumns-1 {
		return 0, tooFew(line)
	}
	return column, what
}

func frontError(line []byte, i int, time uint64) (int, string) {
	switch {
	case bytes.HasPrefix(line, []byte("\xff\xfe")) || bytes.HasPrefix(line, []byte("\xfe\xff")):
		return 0, "the file is UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
	case bytes.IndexByte(line, ',') < 0:
		if bytes.IndexByte(line, 0) >= 0 {
			return 0, "NUL bytes: this is not a text file"
		}
		return 0, tooFew(line)
	case i < len(line) && line[i] == ',' && i > 0 && time > 1<<32-1:
		return 1, "the timestamp does not fit 32 bits of seconds"
	case i == 0 && line[0] == ',':
		return 1, "the column is empty"
	}
	return 1, "not a decimal number of seconds"
}
