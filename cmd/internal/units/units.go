// Package units reads and writes sizes in bytes as people do: 64MiB, 1GiB,
// 500k, 1e9.
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ErrSize: a text that is no size.
var ErrSize = errors.New("not a size: want a number of bytes as in 4096, 1e9, 64MiB, 1GiB, 500kB")

var (
	errTooMuch  = errors.New("more than 16 EiB")
	errFraction = errors.New("not a whole number of bytes")
)

var suffixes = map[string]float64{
	"": 1, "b": 1,
	"k": 1e3, "kb": 1e3, "ki": 1 << 10, "kib": 1 << 10,
	"m": 1e6, "mb": 1e6, "mi": 1 << 20, "mib": 1 << 20,
	"g": 1e9, "gb": 1e9, "gi": 1 << 30, "gib": 1 << 30,
	"t": 1e12, "tb": 1e12, "ti": 1 << 40, "tib": 1 << 40,
	"p": 1e15, "pb": 1e15, "pi": 1 << 50, "pib": 1 << 50,
}

// ParseBytes reads a size in bytes. It may have a fraction if the result has none.
func ParseBytes(s string) (uint64, error) {
	text := strings.TrimSpace(s)
	end := len(text)
	for end > 0 && isLetter(text[end-1]) {
		end--
	}
	unit, ok := suffixes[strings.ToLower(text[end:])]
	number := strings.TrimSpace(text[:end])
	if !ok || number == "" {
		return 0, fmt.Errorf("%q: %w", s, ErrSize)
	}
	if n, err := strconv.ParseUint(number, 10, 64); err == nil {
		if n > math.MaxUint64/uint64(unit) {
			return 0, fmt.Errorf("%q: %w", s, errTooMuch)
		}
		return n * uint64(unit), nil
	}
	v, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || math.IsNaN(v) || strings.ContainsAny(number, "xXpP_"):
		return 0, fmt.Errorf("%q: %w", s, ErrSize)
	case v < 0:
		return 0, fmt.Errorf("%q: it cannot be negative", s)
	case v*unit >= 1<<64:
		return 0, fmt.Errorf("%q: %w", s, errTooMuch)
	case v*unit != math.Trunc(v*unit):
		return 0, fmt.Errorf("%q: %w", s, errFraction)
	}
	return uint64(v * unit), nil
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

// ParseCount reads a count: a whole number, also as 5e6, 5M or 100k.
func ParseCount(s string) (uint64, error) {
	text := strings.ToLower(strings.TrimSpace(s))
	if strings.HasSuffix(text, "i") || strings.HasSuffix(text, "b") {
		return 0, fmt.Errorf("%q: not a count: want a whole number as in 100000, 100k, 5M, 5e6", s)
	}
	n, err := ParseBytes(text)
	switch {
	case errors.Is(err, ErrSize), errors.Is(err, errFraction):
		return 0, fmt.Errorf("%q: not a count: want a whole number as in 100000, 100k, 5M, 5e6", s)
	case errors.Is(err, errTooMuch):
		return 0, fmt.Errorf("%q: more than %s", s, Count(math.MaxUint64))
	}
	return n, err
}

// Bytes writes a size for people.
func Bytes(n uint64) string {
	const names = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(names)-1 {
		v, i = v/1024, i+1
	}
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f %ciB", v, names[i])
	}
	return fmt.Sprintf("%.1f %ciB", v, names[i])
}

// Count writes a count with its thousands apart.
func Count(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
