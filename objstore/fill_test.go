package objstore

import (
	"bytes"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/lab/locks/cas"
)

// filled returns two clients of a store over shm whose values of more than 64 bytes have segments.
func filled(t *testing.T) (c, other *Client) {
	t.Helper()
	cl := shmCluster(t, 4<<20, 1)
	cfg := shmConfig()
	segmented(&cfg)
	s, err := Open(shmPort(t, cl, 0), cfg)
	wantErr(t, "open", err, nil)
	return shmClient(t, cl, 0, s), shmClient(t, cl, 0, s)
}

// from returns what fills with data, at most so many bytes at a time, and its rest.
func from(data []byte, most int) (f func(dst []byte) int, rest func() []byte) {
	return func(dst []byte) int {
		n := copy(dst[:min(len(dst), most)], data)
		data = data[n:]
		return n
	}, func() []byte { return data }
}

// putUpload puts an upload without a beginning.
func putUpload(t *testing.T, c *Client, key []byte, u *Upload) {
	t.Helper()
	wantErr(t, "put", c.Update(key, Update{Apply: func(*Object) Change { return Change{Action: Put, Upload: u} }}), nil)
}

// A value that is filled where it lies, some bytes at a time and by several clients, is the value. Its segments are as long as others.
func TestFill(t *testing.T) {
	c, other := filled(t)
	key, value := []byte("key"), bytes.Repeat([]byte("0123456789"), 20)[:197]
	u, err := c.UploadToFill(key, 0, len(value))
	wantErr(t, "upload", err, nil)
	n, length := u.Segments()
	if n != 4 || length != 50 {
		t.Fatalf("%d segments of %d bytes", n, length)
	}
	read, rest := from(value, 7)
	for i := range n {
		placed, err := c.Place(u, i)
		if !placed || err != nil {
			t.Fatal(placed, err)
		}
		begin, length := u.Span(i)
		for at := 0; at < length; {
			got, err := other.Fill(u, i, at, func(dst []byte) int { // some of what is there, then nothing
				if at%2 == 1 {
					at++
					return read(dst[:1])
				}
				return 0
			})
			if err != nil || got > 1 {
				t.Fatal(got, err)
			}
			at = len(value) - len(rest()) - begin
			got, err = c.Fill(u, i, at, read)
			if err != nil || got != length-at {
				t.Fatalf("segment %d: %d bytes from %d on, %v", i, got, at, err)
			}
			at += got
		}
	}
	wantErr(t, "get", func() error { _, err := c.Get(key); return err }(), ErrNotFound)
	putUpload(t, c, key, u)
	it, err := other.Get(key)
	if err != nil || !bytes.Equal(it.Value, value) {
		t.Fatalf("get: %q, %v", it.Value, err)
	}
	if _, err := c.Fill(u, 0, 0, read); err == nil {
		t.Error("a value that was put is filled on")
	}
	wantErr(t, "delete", c.Delete(key), nil)
	if all, _ := stray(t, c); all != 0 {
		t.Errorf("%d segments are left", all)
	}
}

// What was filled in part and is given up, or was taken away meanwhile, leaves nothing, and is filled no more.
func TestFillOfWhatIsGone(t *testing.T) {
	c, other := filled(t)
	u, err := c.UploadToFill([]byte("key"), 0, 200)
	wantErr(t, "upload", err, nil)
	for i := range 2 {
		placed, err := c.Place(u, i)
		if !placed || err != nil {
			t.Fatal(placed, err)
		}
		_, err = c.Fill(u, i, 0, func(dst []byte) int { return copy(dst[:5], "12345") })
		wantErr(t, "fill", ignore(err, nil), nil)
	}
	wantErr(t, "evict", other.removeSegment(u.l.ref(1)), nil)
	calls := 0
	count := func([]byte) int { calls++; return 0 }
	n, err := c.Fill(u, 1, 5, count)
	wantErr(t, "fill of what was evicted", err, ErrNoSpace)
	wantErr(t, "abort", c.Abort(u), nil)
	if _, err := c.Fill(u, 0, 5, count); err == nil {
		t.Error("what was given up is filled on")
	}
	if all, _ := stray(t, c); n != 0 || calls != 0 || all != 0 {
		t.Errorf("%d bytes, %d calls, %d segments are left", n, calls, all)
	}
	mustBeSound(t, c)
}

// far is a Port that has lost the memory from its address space.
type far struct {
	fabric.Port
	near, calls int // how many times it still reaches it, and has been asked
}

func (p *far) Under() fabric.Port { return p.Port }

func (p *far) Fills(fabric.MemID) bool { return true }

func (p *far) Fill(a fabric.Addr, n int, f func([]byte) int) (int, error) {
	if p.calls++; p.calls > p.near {
		return 0, &fabric.ChainError{Op: fabric.Write(a, nil), Unposted: true, Err: fabric.ErrUnsupported}
	}
	return p.Port.(fabric.Filler).Fill(a, min(n, 10), f)
}

// A segment of which the memory goes out of reach while it is filled gets the rest by WRITEs.
func TestFillOutOfReach(t *testing.T) {
	for near := range 4 {
		cl := shmCluster(t, 4<<20, 1)
		cfg := shmConfig()
		segmented(&cfg)
		s, err := Open(shmPort(t, cl, 0), cfg)
		wantErr(t, "open", err, nil)
		p := &far{Port: shmPort(t, cl, 0), near: near}
		c, err := s.Client(cas.New(p, cas.Config{Plain: true}))
		wantErr(t, "client", err, nil)
		key, value := []byte("key"), bytes.Repeat([]byte("0123456789"), 20)
		u, err := c.UploadToFill(key, 0, len(value))
		wantErr(t, "upload", err, nil)
		read, _ := from(value, 11)
		n, _ := u.Segments()
		for i := range n {
			placed, err := c.Place(u, i)
			if !placed || err != nil {
				t.Fatal(placed, err)
			}
			_, length := u.Span(i)
			if got, err := c.Fill(u, i, 0, read); got != length || err != nil {
				t.Fatal(got, err)
			}
		}
		putUpload(t, c, key, u)
		if it, err := c.Get(key); err != nil || !bytes.Equal(it.Value, value) || p.calls <= near {
			t.Errorf("out of reach after %d: %q, %v, %d calls", near, it.Value, err, p.calls)
		}
	}
}

// Where memory is not in the clients' address space, or is replicated, nothing is placed, and uploads are what they are.
func TestPlaceFallsBack(t *testing.T) {
	for _, copies := range []int{0, 2} {
		w := newReplicated(t, sim.Config{NIC: sim.Ideal()}, 1, 16<<20, 1, copies)
		cfg := w.config()
		segmented(&cfg)
		p := w.port(0)
		if copies == 2 {
			p = &far{Port: p}
		}
		c, err := w.open(0, cfg).Client(cas.New(p, cas.Config{}))
		wantErr(t, "client", err, nil)
		u, err := c.UploadToFill([]byte("key"), 0, 200)
		wantErr(t, "upload", err, nil)
		if placed, err := c.Place(u, 0); placed || err != nil {
			t.Errorf("%d copies: %v, %v", copies, placed, err)
		}
		if n, length := u.Segments(); n != 7 || length != 29 {
			t.Errorf("%d copies: %d segments of %d bytes", copies, n, length)
		}
		wantErr(t, "abort", c.Abort(u), nil)
		if all, _ := stray(t, c); all != 0 {
			t.Errorf("%d copies: %d segments are there", copies, all)
		}
	}
}
