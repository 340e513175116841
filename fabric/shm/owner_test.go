package shm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A spoiling gives a part of a cluster to others.
type spoiling struct {
	what  string
	spoil func(t *testing.T, path string)
}

func chmod(mode os.FileMode) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

var spoilings = []spoiling{
	{"another user's", func(t *testing.T, path string) {
		t.Helper()
		if os.Geteuid() != 0 {
			t.Skip("only root can give files away")
		}
		if err := os.Chown(path, 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}},
	{"writable by its group", chmod(0o770)},
	{"writable by all", chmod(0o707)},
	{"a symbolic link", func(t *testing.T, path string) {
		t.Helper()
		if err := errors.Join(os.Rename(path, path+"-moved"), os.Symlink(path+"-moved", path)); err != nil {
			t.Fatal(err)
		}
	}},
}

// A cluster whose directory or files belong to others, or can be written by them, is neither served nor joined nor removed.
func TestClustersOfOthers(t *testing.T) {
	for _, file := range []string{"", clusterFile, "mn0"} {
		for _, s := range spoilings {
			t.Run(file+" "+s.what, func(t *testing.T) {
				o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, Sparse: true, Keep: true}
				server, err := Serve(o)
				if err != nil {
					t.Fatal(err)
				}
				if err := server.Close(); err != nil {
					t.Fatal(err)
				}
				s.spoil(t, filepath.Join(clusterDir(o.Dir, o.Name), file))
				if server, err := Serve(o); !errors.Is(err, ErrForeign) {
					t.Errorf("Serve: %v, %v", server, err)
				}
				if file == "mn0" {
					return // it is not up, so that no node that joins looks at it
				}
				if n, err := Join(context.Background(), o); !errors.Is(err, ErrForeign) {
					t.Errorf("Join: %v, %v", n, err)
				}
				if info, err := Inspect(o.Dir, o.Name); err != nil || !errors.Is(info.Broken, ErrForeign) {
					t.Errorf("Inspect: %+v, %v", info, err)
				}
				if err := Remove(o.Dir, o.Name); !errors.Is(err, ErrForeign) {
					t.Errorf("Remove: %v", err)
				}
			})
		}
	}
}

// The memory of a server that runs has been given to others: a node that joins does not map it.
func TestMemoryOfOthers(t *testing.T) {
	for _, s := range spoilings {
		t.Run(s.what, func(t *testing.T) {
			o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, Sparse: true}
			server, err := Serve(o)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			s.spoil(t, server.Path())
			if n, err := Join(context.Background(), o); !errors.Is(err, ErrForeign) {
				t.Errorf("Join: %v, %v", n, err)
			}
		})
	}
}

// The file of Options.Path may be reached by a symbolic link, but must be this user's own.
func TestPathOfOthers(t *testing.T) {
	for _, s := range spoilings {
		t.Run(s.what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "memory")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.spoil(t, path)
			server, err := Serve(Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, Sparse: true, Path: path})
			if s.what == "a symbolic link" {
				if err != nil {
					t.Fatal(err)
				}
				server.Close()
				return
			}
			if !errors.Is(err, ErrForeign) {
				t.Errorf("Serve: %v, %v", server, err)
			}
		})
	}
}

// A directory in which all users can replace the cluster's is refused, unless it is sticky as /dev/shm is.
func TestDirectoryOfAll(t *testing.T) {
	o := Options{Name: "c", Dir: t.TempDir(), Size: 1 << 20, Sparse: true}
	chmod(0o777)(t, o.Dir)
	if server, err := Serve(o); !errors.Is(err, ErrForeign) {
		t.Errorf("Serve: %v, %v", server, err)
	}
	chmod(0o777|os.ModeSticky)(t, o.Dir)
	server, err := Serve(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}
