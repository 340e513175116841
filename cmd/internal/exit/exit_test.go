package exit

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/declock/declock/fabric/shm"
)

func TestCodesAreDistinct(t *testing.T) {
	seen, names := map[Code]bool{}, map[string]bool{}
	for _, r := range table {
		if seen[r.Code] || names[r.Name] || r.Meaning == "" || r.Code < 0 || r.Code > 255 {
			t.Errorf("row %+v", r)
		}
		seen[r.Code], names[r.Name] = true, true
		if r.Code.String() != r.Name {
			t.Errorf("%d is %q, want %q", r.Code, r.Code, r.Name)
		}
		if !strings.Contains(Text(), fmt.Sprintf("%4d  %s", r.Code, r.Name)) {
			t.Errorf("the text has no %q", r.Name)
		}
	}
	for _, c := range codes {
		if !seen[c.code] {
			t.Errorf("%v has code %d, which is not in the table", c.err, c.code)
		}
	}
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, OK},
		{errors.New("x"), Other},
		{fmt.Errorf("a: %w", shm.ErrNoCluster), NoCluster},
		{With(TooLarge, fmt.Errorf("a: %w", shm.ErrNoCluster)), TooLarge},
		{fmt.Errorf("b: %w", Errorf(Denied, "x")), Denied},
		{errors.Join(nil, Errorf(NodeLost, "x"), Errorf(Denied, "y")), NodeLost},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("Of(%v) = %v, want %v", c.err, got, c.want)
		}
	}
	if With(Usage, nil) != nil {
		t.Error("With makes an error of nil")
	}
}

func TestMessageSaysWhatToDo(t *testing.T) {
	text := Message(fmt.Errorf("declock: %w: %q", shm.ErrNoCluster, "x"))
	if strings.HasPrefix(text, "declock:") || !strings.Contains(text, "declock status") {
		t.Errorf("%q", text)
	}
}

// docs/operations.md has the same table.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range table {
		if row := fmt.Sprintf("| %d | %s | %s |\n", r.Code, r.Name, r.Meaning); !strings.Contains(string(doc), row) {
			t.Errorf("docs/operations.md lacks %q", row)
		}
	}
}
