package traces

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// content returns the names of the files of a directory, and the text of one of them.
func content(t *testing.T, dir, name string) (names []string, text string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names, string(b)
}

// A file is there when it is complete, and not before: what was there stays until then, and stays if nothing comes of it.
func TestCreateReplacesWhenComplete(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "t.csv")
	rec := Record{Key: []byte("k"), KeySize: 1, Op: OpGet}
	if err := errors.Join(os.WriteFile(path, []byte("old"), 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	half, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := half.Write(&rec); err != nil {
		t.Fatal(err)
	}
	if _, text := content(t, dir, "t.csv"); text != "old" {
		t.Errorf("while it is written: %q", text)
	}
	half.Discard()
	if names, text := content(t, dir, "t.csv"); text != "old" || len(names) != 1 {
		t.Errorf("discarded: %v, %q", names, text)
	}
	if err := errors.Join(half.Write(&rec), half.Close()); err == nil {
		t.Error("it can be written after it was discarded")
	}
	// Two at a time: the last is there, whole.
	a, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	line := string(AppendRecord(nil, &rec)) + "\n"
	if err := errors.Join(a.Write(&rec), b.Write(&rec), b.Write(&rec), b.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if names, text := content(t, dir, "t.csv"); text != line || len(names) != 1 {
		t.Errorf("of two writers: %v, %q", names, text)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("its mode has changed: %v, %v", st.Mode(), err)
	}
}

// A symbolic link stays one, and a device is written to and never replaced.
func TestCreateBehindASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	rec := Record{Key: []byte("k"), KeySize: 1, Op: OpGet}
	for name, to := range map[string]string{"file": filepath.Join(dir, "real.csv"), "device": os.DevNull} {
		if name == "file" {
			if err := os.WriteFile(to, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		link := filepath.Join(dir, name)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		w, err := Create(link)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(&rec), w.Close()); err != nil {
			t.Fatal(err)
		}
		if at, err := os.Readlink(link); err != nil || at != to {
			t.Errorf("%s: the link is now %q, %v", name, at, err)
		}
	}
	if _, text := content(t, dir, "real.csv"); text == "" {
		t.Error("nothing was written behind the link")
	}
	if st, err := os.Stat(os.DevNull); err != nil || st.Mode().IsRegular() {
		t.Errorf("%s: %v, %v", os.DevNull, st, err)
	}
}

// What another has open as this process's standard output stays that file.
func TestCreateOfStandardOutput(t *testing.T) {
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	before := os.Stdout
	os.Stdout = out
	defer func() { os.Stdout = before }()
	w, err := Create(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	rec := Record{Key: []byte("k"), KeySize: 1, Op: OpGet}
	if err := errors.Join(w.Write(&rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	if st, err := out.Stat(); err != nil || st.Size() == 0 {
		t.Errorf("nothing has come where standard output is: %v", err)
	}
}
