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

// The picture of a train says which tickets go in it, and that its last releases for all.
func TestHandoverInTrain(t *testing.T) {
	tr, err := picture.Handover(picture.Train)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tr.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	text := wellFormed(t, picture.Train, b.Bytes())
	for _, want := range []string{
		"place 0 of the train with 1s cn3/1, 2x cn4/1, readers first} to cn2/1", "place 1 of a train, reports to cn4/1 of place 2} to cn3/1",
		"place 2 of the train with 1s cn3/1, 2x cn4/1, readers first, waits for reports of 1} to cn4/1", "sends Report{lock index 3, of place 1} to cn4/1",
		"FAA lock: qhead=1 qsize=4 wcnt=3 reset=0 → qhead=4 qsize=1 wcnt=1", "cn5/1 holds lock exclusive",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("the picture says %d times %q:\n%s", strings.Count(text, want), want, text)
		}
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
