package lint

import (
	"go/ast"
	"go/token"
	"go/types"
	"strconv"
	"strings"
	"testing"
)

// TestNoNilIsWrapped: where "err != nil || other" holds, err may be nil, and "%w" of nil prints "%!w(<nil>)".
func TestNoNilIsWrapped(t *testing.T) {
	fset, files := load(t)
	for _, f := range files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			s, ok := n.(*ast.IfStmt)
			if !ok {
				return true
			}
			maybe := maybeNil(s.Cond)
			ast.Inspect(s.Body, func(n ast.Node) bool {
				if inner, ok := n.(*ast.IfStmt); ok && inner != s {
					return false // it may know better
				}
				for _, arg := range wrapped(n) {
					if maybe[types.ExprString(arg)] {
						t.Errorf("%v: %s may be nil here", fset.Position(arg.Pos()), types.ExprString(arg))
					}
				}
				return true
			})
			return true
		})
	}
}

// maybeNil returns what a condition "x != nil || other" compares with nil.
func maybeNil(cond ast.Expr) map[string]bool {
	list := map[string]bool{}
	var operands func(e ast.Expr)
	operands = func(e ast.Expr) {
		b, ok := e.(*ast.BinaryExpr)
		switch {
		case ok && b.Op == token.LOR:
			operands(b.X)
			operands(b.Y)
		case ok && b.Op == token.NEQ && types.ExprString(b.Y) == "nil":
			list[types.ExprString(b.X)] = true
		}
	}
	if b, ok := cond.(*ast.BinaryExpr); ok && b.Op == token.LOR {
		operands(b)
	}
	return list
}

// wrapped returns what a call of fmt.Errorf wraps.
func wrapped(n ast.Node) (list []ast.Expr) {
	c, ok := n.(*ast.CallExpr)
	if !ok || len(c.Args) == 0 || !strings.HasSuffix(types.ExprString(c.Fun), "Errorf") {
		return nil
	}
	for i, arg := range c.Args {
		lit, ok := arg.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			continue
		}
		format, _ := strconv.Unquote(lit.Value)
		format = strings.ReplaceAll(format, "%%", "")
		for at, verb := range strings.Split(format, "%")[1:] {
			if k := i + 1 + at; strings.HasPrefix(verb, "w") && k < len(c.Args) {
				list = append(list, c.Args[k])
			}
		}
		break
	}
	return list
}
