package units

import (
	"strings"
	"testing"
)

func TestParseBytes(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
	}{
		{"0", 0}, {"4096", 4096}, {"64MiB", 64 << 20}, {"1GiB", 1 << 30}, {"1e9", 1e9}, {"1.5KiB", 1536},
		{"500k", 500_000}, {" 2 GB ", 2e9}, {"1g", 1e9}, {"1Gi", 1 << 30}, {"1PiB", 1 << 50}, {"18446744073709551615", 1<<64 - 1},
	} {
		if got, err := ParseBytes(c.in); err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", c.in, got, err, c.want)
		}
	}
	for _, in := range []string{"", "GiB", "-1", "1x", "1.5", "abc", "1e30", "0x10", "1_000", "20000000TiB", "20000PiB", "nan", "inf", "1 2"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", in, got)
		}
	}
}

func TestParseCount(t *testing.T) {
	for in, want := range map[string]uint64{"5e6": 5_000_000, "100k": 100_000, "5M": 5_000_000, "7": 7} {
		if got, err := ParseCount(in); err != nil || got != want {
			t.Errorf("ParseCount(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"1MiB", "x", "-3", "1.5", "3kb"} {
		if got, err := ParseCount(in); err == nil {
			t.Errorf("ParseCount(%q) = %d, want an error", in, got)
		}
	}
}

// Errors of a count speak of counts, and not of bytes.
func TestErrorsOfCounts(t *testing.T) {
	for in, says := range map[string]string{"1e30": "more than 18,446,744,073,709,551,615", "1.5": "whole number as in", "20000000T": "more than 18,446"} {
		if _, err := ParseCount(in); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "B") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1 << 30: "1 GiB", 1536: "1.5 KiB"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
