package redis

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// integer parses a number as Redis does: digits with at most a minus before them, no zeros or blanks around, within 64 bits.
func integer(b []byte) (v int64, ok bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	var u uint64
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		u = u*10 + uint64(d-'0')
	}
	switch {
	case negative && u <= 1<<63:
		return -int64(u), true
	case !negative && u <= math.MaxInt64:
		return int64(u), true
	}
	return 0, false
}

// float is a number of x86's long double, in which Redis adds: 64 bits of mantissa.
func float(b []byte) (*big.Float, bool) {
	if len(b) > longestFloat {
		return nil, false
	}
	text := strings.ToLower(string(b))
	switch strings.TrimLeft(text, "+-") {
	case "inf", "infinity":
		return new(big.Float).SetInf(text[0] == '-'), true
	}
	hexadecimal := strings.HasPrefix(strings.TrimLeft(text, "+-"), "0x")
	if strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("0123456789+-.e", r) && !(hexadecimal && strings.ContainsRune("abcdfpx", r))
	}) {
		return nil, false
	}
	base := 10
	if hexadecimal {
		base = 0
	}
	f, _, err := big.ParseFloat(text, base, 64, big.ToNearestEven)
	if err != nil || !finite(f) {
		return nil, false
	}
	return f, true
}

// longestFloat is how long the text of a float may be.
const longestFloat = 5 << 10

// finite reports whether a number has a place among those of a long double.
func finite(f *big.Float) bool {
	e := f.MantExp(nil)
	return !f.IsInf() && e <= 16384 && e > -16445
}

// appendFloat appends a number as Redis writes it: 17 digits behind the point, without zeros at the end.
func appendFloat(b []byte, f *big.Float) []byte {
	text := strings.TrimRight(f.Text('f', 17), "0")
	text = strings.TrimSuffix(text, ".")
	if text == "-0" {
		text = "0"
	}
	return append(b, text...)
}

// A reply is appended to the answers of a connection.

// line appends a mark, a number and the end of a line.
func line(out []byte, mark byte, v int64) []byte {
	out = append(out, mark)
	if v >= 0 && v < 10 {
		return append(out, byte('0'+v), '\r', '\n')
	}
	return append(strconv.AppendInt(out, v, 10), '\r', '\n')
}

func bulk(out, value []byte) []byte {
	out = line(out, '$', int64(len(value)))
	out = append(out, value...)
	return append(out, '\r', '\n')
}
