package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// ErrConfig: a configuration file that is malformed, or says what makes no sense.
var ErrConfig = errors.New("bad configuration file")

// A Setting is one line of a configuration file.
type Setting struct {
	Name, Value string
	Line        int
}

// Errorf returns an error of a line of a file.
func Errorf(file string, line int, format string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: %w", ErrConfig, file, line, fmt.Errorf(format, args...))
}

// Parse reads the settings of a file, in order.
func Parse(file string, text []byte) ([]Setting, error) {
	f, err := parser.ParseBytes(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")), 0) // some editors begin files with a byte order mark
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrConfig, file, strings.TrimSpace(err.Error()))
	}
	var list []Setting
	seen := map[string]int{}
	for i, doc := range f.Docs {
		if doc.Body == nil {
			continue
		}
		line := lineOf(doc.Body)
		if i > 0 {
			return nil, Errorf(file, line, "a second document")
		}
		pairs, ok := mapping(doc.Body)
		if !ok {
			return nil, Errorf(file, line, "want lines like \"name: value\"")
		}
		for _, p := range pairs {
			s, err := setting(file, p)
			if err != nil {
				return nil, err
			}
			if before, twice := seen[s.Name]; twice {
				return nil, Errorf(file, s.Line, "%s is set already, in line %d", s.Name, before)
			}
			seen[s.Name] = s.Line
			list = append(list, s)
		}
	}
	return list, nil
}

func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	case *ast.CommentGroupNode:
		return nil, true
	}
	return nil, false
}

func lineOf(n ast.Node) int {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 1
}

func setting(file string, p *ast.MappingValueNode) (Setting, error) {
	line := lineOf(p.Key)
	key, ok := p.Key.(*ast.StringNode)
	if !ok {
		return Setting{}, Errorf(file, line, "%s is no name of a setting", p.Key)
	}
	s := Setting{Name: key.Value, Line: line}
	switch v := p.Value.(type) {
	case *ast.StringNode:
		s.Value = v.Value
	case *ast.LiteralNode:
		s.Value = strings.TrimSpace(v.Value.Value)
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		s.Value = v.GetToken().Value // as it is written: the setting decides what it means
	case *ast.NullNode:
		return s, Errorf(file, line, "%s has no value", s.Name)
	default:
		return s, Errorf(file, line, "%s must be a single value", s.Name)
	}
	return s, nil
}
