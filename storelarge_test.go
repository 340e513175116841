package declock_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/objstore"
)

func openSegmented(t *testing.T) *declock.Store {
	t.Helper()
	c, _ := open(t)
	st, err := c.Store(t.Context(), "large", declock.StoreConfig{Objects: 1000, MaxValue: 1 << 20, Segment: 4096})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// Values of all sizes are written and read as streams, and are as they are by Set and Get.
func TestValueStreams(t *testing.T) {
	st, key := openSegmented(t), []byte("key")
	for _, size := range []int{0, 1, 4096, 4097, 8192, 100_000, 1 << 20} {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(rand.Uint32())
		}
		w, err := st.Writer(t.Context(), key, int64(size), declock.SetOptions{Flags: 3, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		for rest := value; len(rest) > 0; {
			n := min(1+rand.IntN(10_000), len(rest))
			if k, err := w.Write(rest[:n]); k != n || err != nil {
				t.Fatal(k, err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		it, err := st.GetItem(t.Context(), key, nil)
		if err != nil || !bytes.Equal(it.Value, value) || it.Flags != 3 || it.Expiry == 0 {
			t.Fatalf("%d bytes: there are %d, flags %d, expiry %d, %v", size, len(it.Value), it.Flags, it.Expiry, err)
		}
		r, err := st.Reader(t.Context(), key)
		if err != nil || r.Size() != int64(size) || r.Item.CAS != it.CAS {
			t.Fatalf("%d bytes: a reader of %d, %v", size, r.Size(), err)
		}
		if size < 10_000 { // TestReader reads byte by byte, too
			if err := iotest.TestReader(r, value); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			if _, err := r.Seek(0, io.SeekStart); err != nil {
				t.Fatal(err)
			}
		}
		var all bytes.Buffer
		if n, err := r.WriteTo(&all); err != nil || n != int64(size) || !bytes.Equal(all.Bytes(), value) {
			t.Fatalf("%d bytes: %d are copied, %v", size, n, err)
		}
		if size > 1 {
			part := make([]byte, size/2)
			if n, err := r.ReadAt(part, int64(size/3)); n != len(part) || err != nil || !bytes.Equal(part, value[size/3:][:size/2]) {
				t.Fatalf("%d bytes: a part has %d, %v", size, n, err)
			}
		}
	}
}

// A value that is given up, or has not the bytes that it was to have, is not there, and leaves nothing; a reader of a value that is replaced says so.
func TestValueStreamsThatEnd(t *testing.T) {
	st, key, value := openSegmented(t), []byte("key"), make([]byte, 50_000)
	writer := func(n int) *declock.ValueWriter {
		w, err := st.Writer(t.Context(), key, int64(len(value)), declock.SetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(value[:n]); err != nil {
			t.Fatal(err)
		}
		return w
	}
	if err := writer(30_000).Close(); !errors.Is(err, declock.ErrShortValue) {
		t.Errorf("too short: %v", err)
	}
	w := writer(50_000)
	if _, err := w.Write(value[:1]); !errors.Is(err, declock.ErrShortValue) {
		t.Errorf("too long: %v", err)
	}
	if err := w.Close(); !errors.Is(err, declock.ErrShortValue) {
		t.Errorf("too long: %v", err)
	}
	w = writer(50_000)
	if err := w.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := w.Write(nil); err == nil {
		t.Error("a write after Abort")
	}
	if _, err := st.Reader(t.Context(), key); !errors.Is(err, objstore.ErrNotFound) {
		t.Errorf("of a value that was never stored: %v", err)
	}
	check := func(want uint64) {
		t.Helper()
		err := st.Use(t.Context(), func(k *objstore.Client) error {
			r, err := k.Check(objstore.CheckOptions{})
			if err == nil && (r.Unnamed != 0 || r.Segments != want) {
				t.Errorf("%d segments, %d in no value; want %d", r.Segments, r.Unnamed, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	check(0)
	if err := writer(50_000).Close(); err != nil {
		t.Fatal(err)
	}
	check(25)
	r, err := st.Reader(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Set(t.Context(), key, []byte("other"), declock.SetOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); !errors.Is(err, objstore.ErrChanged) {
		t.Errorf("of a value that was replaced: %v", err)
	}
	if _, err := st.Writer(t.Context(), key, 1<<20+1, declock.SetOptions{}); !errors.Is(err, objstore.ErrValueSize) {
		t.Errorf("too large: %v", err)
	}
	check(0)
}

// The largest value that there may be passes through a program with memory for some segments, written and read in pieces.
func TestValueStreamsAreBounded(t *testing.T) {
	const piece, most = 100_000, 10 << 20
	size := 512 << 20
	if testing.Short() {
		size = 48 << 20
	}
	c, _ := open(t, declock.WithMemory(uint64(size+size/4)))
	st, err := c.Store(t.Context(), "large", declock.StoreConfig{Objects: 1000, MaxValue: uint32(size)})
	if err != nil {
		t.Fatal(err)
	}
	before, calls := heapInUse(), 0
	bounded := func(what string) {
		if calls++; calls%100 > 0 {
			return
		}
		if now := heapInUse(); now > before+most {
			t.Fatalf("%s: the heap has grown by %d MiB", what, (now-before)>>20)
		}
	}
	w, err := st.Writer(t.Context(), []byte("key"), int64(size), declock.SetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, piece)
	for i := 0; i < size; i += piece {
		for j := range b {
			b[j] = byte((i + j) >> 12)
		}
		if _, err := w.Write(b[:min(piece, size-i)]); err != nil {
			t.Fatal(err)
		}
		bounded("writer")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := st.Reader(t.Context(), []byte("key"))
	if err != nil {
		t.Fatal(err)
	}
	got := 0
	n, err := io.Copy(writerFunc(func(p []byte) (int, error) {
		for i := 0; i < len(p); i += 1000 {
			if p[i] != byte((got+i)>>12) {
				t.Fatalf("%d at %d", p[i], got+i)
			}
		}
		if got += len(p); got>>23 != (got-len(p))>>23 {
			calls = 99
			bounded("reader")
		}
		return len(p), nil
	}), r)
	if n != int64(size) || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A TTL is exact to the millisecond: of Set, of Touch, and of a value that a ValueWriter stores in segments.
func TestTTLIsExact(t *testing.T) {
	c, _ := open(t, declock.WithMemory(128<<20))
	ctx, key := t.Context(), []byte("k")
	st, err := c.Store(ctx, "s", declock.StoreConfig{MaxValue: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	large := make([]byte, st.Segment()+1)
	for i := range 12 {
		life := time.Duration(20+17*i) * time.Millisecond
		o := declock.SetOptions{TTL: life}
		if i%3 == 1 {
			o.TTL = time.Hour
		}
		began := time.Now()
		if i%3 < 2 {
			err = st.Set(ctx, key, []byte("v"), o)
		} else {
			var w *declock.ValueWriter
			if w, err = st.Writer(ctx, key, int64(len(large)), o); err == nil {
				_, err = w.Write(large)
				began = time.Now()
				err = errors.Join(err, w.Close())
			}
		}
		if i%3 == 1 && err == nil {
			began = time.Now()
			err = st.Touch(ctx, key, life)
		}
		if err != nil {
			t.Fatal(err)
		}
		for stored := time.Now(); ; time.Sleep(time.Millisecond / 2) {
			asked := time.Now()
			_, err := st.GetItem(ctx, key, nil)
			gone := errors.Is(err, objstore.ErrNotFound)
			if err != nil && !gone {
				t.Fatal(err)
			}
			if gone && time.Since(began) < life {
				t.Fatalf("%v: gone after %v", life, time.Since(began))
			}
			if !gone && asked.Sub(stored) > life+2*time.Millisecond {
				t.Fatalf("%v: there after %v", life, asked.Sub(stored))
			}
			if gone {
				break
			}
		}
	}
}
