package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/declock/declock/lab/locks"
	"github.com/declock/declock/lab/picture"
)

const pictures = "../../docs/handover"

// The pictures of the documentation are what the command draws today.
func TestHandoverPicturesAreUpToDate(t *testing.T) {
	for _, name := range picture.Handovers {
		tr, err := picture.Handover(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b bytes.Buffer
		if err := tr.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		old, err := os.ReadFile(filepath.Join(pictures, name+".svg"))
		if err != nil || !bytes.Equal(old, b.Bytes()) {
			t.Errorf("the picture of %s is not up to date (%v): go run ./cmd/declock-lab sim handover --all docs/handover", name, err)
		}
	}
	files, err := filepath.Glob(pictures + "/*.svg")
	if err != nil || len(files) != len(picture.Handovers) {
		t.Errorf("%s has %d pictures, want %d: %v", pictures, len(files), len(picture.Handovers), err)
	}
}

// Each lock can be drawn, and its picture says how it goes on: from each client to the next.
func TestHandoverOfEachLock(t *testing.T) {
	for _, name := range locks.Names() {
		tr, err := picture.Handover(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var b bytes.Buffer
		if err := tr.WriteSVG(&b); err != nil {
			t.Fatal(err)
		}
		text := wellFormed(t, name, b.Bytes())
		for _, want := range []string{"cn1/1 holds lock exclusive, reads 0", "cn2/1 holds lock exclusive, reads", "cn2/2 holds lock exclusive, reads", "cn1/2 holds lock shared, reads"} {
			if strings.Count(text, want) != 1 {
				t.Errorf("%s: the picture says %d times %q", name, strings.Count(text, want), want)
			}
		}
		if strings.Contains(text, "message 0x") {
			t.Errorf("%s: a message has no name", name)
		}
	}
	if _, err := picture.Handover("nope"); !errors.Is(err, locks.ErrUnknown) {
		t.Errorf("a lock that there is not: %v", err)
	}
}

// wellFormed returns the text of a picture, without titles: lines joined by newlines.
func wellFormed(t *testing.T, name string, svg []byte) string {
	t.Helper()
	var text strings.Builder
	title := false
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text.String()
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			title = tok.Name.Local == "title" || tok.Name.Local == "style"
		case xml.EndElement:
			if title = false; tok.Name.Local == "text" {
				text.WriteByte('\n')
			}
		case xml.CharData:
			if !title {
				text.Write(tok)
			}
		}
	}
}
