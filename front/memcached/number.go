package memcached

// memcached reads numbers with strtoul and its kin: blanks and a sign may stand before the digits, and white space ends them.

// space reports whether a byte is white space to the C library.
func space(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// digits parses a number with a sign and blanks before it. It is not ok if there are no digits, if something else follows them, or if it has no room
// in 64 bits.
func digits(b []byte) (v uint64, negative, ok bool) {
	for len(b) > 0 && space(b[0]) {
		b = b[1:]
	}
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	n := 0
	for ; n < len(b) && b[n] >= '0' && b[n] <= '9'; n++ {
		d := uint64(b[n] - '0')
		if v > (1<<64-1-d)/10 {
			return 0, negative, false
		}
		v = v*10 + d
	}
	return v, negative, n > 0 && (n == len(b) || space(b[n]) || b[n] == 0)
}

// parseUint64 is memcached's safe_strtoull: what is negative becomes a number below 2^63, or is refused.
func parseUint64(b []byte) (uint64, bool) {
	v, negative, ok := digits(b)
	if negative {
		v = -v
		ok = ok && int64(v) >= 0
	}
	return v, ok
}

// parseUint32 is memcached's safe_strtoul: as parseUint64, and then the low 32 bits.
func parseUint32(b []byte) (uint32, bool) {
	v, ok := parseUint64(b)
	return uint32(v), ok
}

// parseInt64 is memcached's safe_strtoll.
func parseInt64(b []byte) (int64, bool) {
	v, negative, ok := digits(b)
	if negative {
		return -int64(v), ok && v <= 1<<63
	}
	return int64(v), ok && v < 1<<63
}

// parseInt32 is memcached's safe_strtol: the low 32 bits of a long.
func parseInt32(b []byte) (int32, bool) {
	v, ok := parseInt64(b)
	return int32(v), ok
}

// parseExptime parses when an item expires: 32 bits, as memcached has them.
func parseExptime(b []byte) (int64, bool) {
	v, ok := parseInt32(b)
	return int64(v), ok
}
