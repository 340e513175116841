package lint

import (
	"go/ast"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mapPages are the pages that lead through the code by its names.
var mapPages = []string{"architecture.md", "incarnations.md"}

// declared returns what Go files declare, as "package.Name" and "Type.member" (a method or a field).
func declared(files []file) map[string]bool {
	list := map[string]bool{}
	for _, f := range files {
		add := func(name string) { list[f.ast.Name.Name+"."+name] = true }
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					list[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							add(n.Name)
						}
					case *ast.TypeSpec:
						add(s.Name.Name)
						members(s, list)
					}
				}
			}
		}
	}
	return list
}

// members adds the fields of a struct, or the methods of an interface.
func members(s *ast.TypeSpec, list map[string]bool) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			list[s.Name.Name+"."+n.Name] = true
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestNamedCodeExists: functions, types and fields that the pages name, with a dot or with a capital inside, are in the code, so that these pages follow a rename.
func TestNamedCodeExists(t *testing.T) {
	_, files := load(t)
	have, bare := declared(files), map[string]bool{}
	for pair := range have { // each by itself, too
		_, member, _ := strings.Cut(pair, ".")
		bare[member] = true
	}
	code := regexp.MustCompile("`([^`\n]+)`")
	camel := regexp.MustCompile(`^[a-zA-Z]+[a-z][A-Z]\w*$`)
	name := regexp.MustCompile(`^(?:[a-zA-Z]\w*\.)+[a-zA-Z]\w*$`)
	for _, p := range pages(t) {
		if !slices.Contains(mapPages, filepath.Base(p.path)) {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(p.text, -1) {
			if camel.MatchString(m[1]) && !bare[m[1]] {
				t.Errorf("%s: the code has no %s", p.path, m[1])
			}
			parts := strings.Split(m[1], ".")
			if last := parts[len(parts)-1]; !name.MatchString(m[1]) || last == "md" || last == "go" {
				continue
			}
			for i := 1; i < len(parts); i++ {
				if pair := parts[i-1] + "." + parts[i]; !have[pair] {
					t.Errorf("%s: the code has no %s (in %s)", p.path, pair, m[1])
				}
			}
		}
	}
}
