package config

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := Parse("f", []byte("# a comment\ncluster: tcp://a:1,b:2/demo  # more\nsize: 16GiB\nmem: 0\n\ninsecure: true\nhttp: \":9400\"\ndead-after: 5s\nsize2: 1e9\n"))
	want := []Setting{{"cluster", "tcp://a:1,b:2/demo", 2}, {"size", "16GiB", 3}, {"mem", "0", 4}, {"insecure", "true", 6}, {"http", ":9400", 7},
		{"dead-after", "5s", 8}, {"size2", "1e9", 9}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := Parse("f", []byte("\xef\xbb\xbfcluster: x\r\n")); err != nil || !reflect.DeepEqual(got, []Setting{{"cluster", "x", 1}}) {
		t.Errorf("with a byte order mark: %v, %v", got, err)
	}
	for _, empty := range []string{"\xef\xbb\xbf", "", "# nothing\n", "---\n", "{}\n"} {
		if got, err := Parse("f", []byte(empty)); err != nil || len(got) != 0 {
			t.Errorf("%q: %v, %v", empty, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"a: 1\nb:\n":            "f:2: b has no value",
		"a: 1\na: 2\n":          "2",
		"a: [1, 2]\n":           "f:1: a must be a single value",
		"a:\n  b: 1\n":          "f:1: a must be a single value",
		"- a\n":                 "f:1: want lines like",
		"just text\n":           "f:1: want lines like",
		"a: 1\n---\nb: 2\n":     "a second document",
		"a: 'x\n":               "f: ",
		"a: &x 1\nb: *x\n":      "must be a single value",
		"a: 1\n  b: 2\n":        "f",
		"? {a: b}\n: c\n":       "f",
		"1: x\n":                "f:1: 1 is no name",
		"a: !!binary aGVsbG8=":  "must be a single value",
		"a: {b: c}\n":           "must be a single value",
		"\tcluster: x\n":        "f",
		"a: 1\nb: \"unclosed\n": "f: ",
	} {
		got, err := Parse("f", []byte(text))
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, says)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("a: 1\nb: [x]\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse("f", text)
		if err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("%v", err)
		}
		seen := map[string]bool{}
		for _, s := range list {
			if seen[s.Name] {
				t.Errorf("%s twice", s.Name)
			}
			seen[s.Name] = true
		}
	})
}
