package traces

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// ReaderOptions of [NewReader] and [Open]; the zero value is good.
type ReaderOptions struct {
	// SkipBad counts malformed lines (Reader.Skipped) and goes on; else the first ends the stream.
	SkipBad bool
	// MaxLine is the longest line in bytes; 0 is 4096.
	MaxLine int
	// Name stands for the trace in errors; Open takes the path.
	Name string
}

const (
	maxLine      = 4096    // bytes
	maxValueSize = 1 << 30 // that is believed
	readBuffer   = 256 << 10
	// maxZstdWindow is what the zstd command accepts without --long.
	maxZstdWindow = 128 << 20
)

// Reader reads a trace: plain, zstd or gzip, which it tells by the first bytes.
// It holds one buffer and allocates nothing per record.
type Reader struct {
	o       ReaderOptions
	in      *bufio.Reader // of lines
	raw     *rawInput     // below the decompressor
	closers []func() error

	line, skipped int64
	firstBad      error
	err           error
}

// rawInput remembers the error of the input itself, to tell it from that of a decompressor.
type rawInput struct {
	r   io.Reader
	err error
}

func (in *rawInput) Read(b []byte) (int, error) {
	n, err := in.r.Read(b)
	if err != nil && err != io.EOF {
		in.err = err
	}
	return n, err
}

// Open opens a trace file; "-" is standard input.
func Open(path string, o ReaderOptions) (*Reader, error) {
	if o.Name == "" {
		o.Name = path
	}
	if path == "-" {
		o.Name = "standard input"
		return NewReader(os.Stdin, o)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("traces: cannot open the trace: %w", err)
	}
	if st, err := f.Stat(); err == nil && st.IsDir() {
		f.Close()
		return nil, fmt.Errorf("traces: %s is a directory: give one trace file of it", path)
	}
	r, err := NewReader(f, o)
	if err != nil {
		f.Close()
		return nil, err
	}
	r.closers = append(r.closers, f.Close)
	return r, nil
}

// NewReader reads a trace from r. Close what it holds with Close; that does not close r.
func NewReader(r io.Reader, o ReaderOptions) (*Reader, error) {
	if o.MaxLine <= 0 {
		o.MaxLine = maxLine
	}
	if o.Name == "" {
		o.Name = "trace"
	}
	t := &Reader{o: o, raw: &rawInput{r: r}}
	var magic [6]byte
	n, err := io.ReadFull(t.raw, magic[:])
	if t.raw.err != nil {
		return nil, t.streamError(err)
	}
	var all io.Reader = bytes.NewReader(magic[:n])
	if err == nil { // else the file is that short, and r need not say its end twice
		all = io.MultiReader(all, t.raw)
	}
	if all, err = t.decompressor(magic[:n], all); err != nil {
		return nil, err
	}
	t.in = bufio.NewReaderSize(all, readBuffer+o.MaxLine)
	return t, nil
}

// decompressor chooses by magic bytes.
func (r *Reader) decompressor(magic []byte, all io.Reader) (io.Reader, error) {
	isZstd := bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd})
	// Skippable frames, which pzstd writes first, are 0x184D2A50 to 5F.
	isSkippable := len(magic) >= 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:4], []byte{0x2a, 0x4d, 0x18})
	switch {
	case isZstd || isSkippable:
		// One goroutine at a time: on a busy machine clients want the other cores, and a cut
		// stream then delivers every whole block before its error.
		z, err := zstd.NewReader(all, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, r.streamError(err)
		}
		r.closers = append(r.closers, func() error { z.Close(); return nil })
		return z, nil
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(all)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, r.streamError(err)
		}
		return z, nil // its Close says again what its Read said
	case bytes.HasPrefix(magic, []byte("BZh")):
		return nil, fmt.Errorf("%w: %s is bzip2: pipe it through bzip2 -dc and read \"-\"", ErrCompression, r.o.Name)
	case bytes.HasPrefix(magic, []byte{0xfd, '7', 'z', 'X', 'Z', 0}):
		return nil, fmt.Errorf("%w: %s is xz: pipe it through xz -dc and read \"-\"", ErrCompression, r.o.Name)
	}
	return all, nil
}

// streamError says what an error of the input means.
func (r *Reader) streamError(err error) error {
	switch {
	case r.raw.err != nil:
		return fmt.Errorf("traces: read %s: %w", r.o.Name, r.raw.err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %s ends after line %d in the middle of its compressed data: fetch it again, or use the lines before",
			ErrTruncated, r.o.Name, r.line)
	}
	return fmt.Errorf("%w: %s is damaged after line %d: %w", ErrCompression, r.o.Name, r.line, err)
}

// Next implements [Source].
func (r *Reader) Next(rec *Record) bool {
	for r.err == nil {
		line, ok := r.readLine()
		if !ok {
			return false
		}
		if r.line == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if len(line) == 0 {
			continue // a blank line says nothing
		}
		column, what := parseLine(line, rec)
		if what == "" {
			return true
		}
		if r.line == 1 && isHeader(line) {
			continue
		}
		r.bad(column, what, line)
	}
	return false
}

// bad skips and counts a malformed line, or ends the stream with it.
func (r *Reader) bad(column int, what string, line []byte) {
	if r.o.SkipBad {
		r.skipped++
		if r.firstBad != nil {
			return
		}
	}
	err := &LineError{Name: r.o.Name, Line: r.line, Column: column, What: what, Text: clip(line)}
	if r.o.SkipBad {
		r.firstBad = err
	} else {
		r.err = err
	}
}

// readLine returns the next line without its end. What stands behind the last line feed of a cut stream is
// half a line, which would parse as a record with a wrong TTL: it is not delivered.
func (r *Reader) readLine() ([]byte, bool) {
	for r.err == nil {
		line, err := r.in.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull && (err != io.EOF || len(line) == 0) {
			r.ends(err)
			return nil, false
		}
		r.line++
		line = bytes.TrimSuffix(line, []byte{'\n'})
		if len(line) <= r.o.MaxLine {
			return bytes.TrimSuffix(line, []byte{'\r'}), true
		}
		r.bad(0, fmt.Sprintf("the line is longer than %d bytes", r.o.MaxLine), line)
		for err == bufio.ErrBufferFull { // the rest of the line
			_, err = r.in.ReadSlice('\n')
		}
		r.ends(err)
	}
	return nil, false
}

// ends notes the error of an input that has no more.
func (r *Reader) ends(err error) {
	if err != nil && err != io.EOF && r.err == nil {
		r.err = r.streamError(err)
	}
}

// Err implements [Source]: nil at the end, a *[LineError], [ErrTruncated], [ErrCompression] or the input's own error.
func (r *Reader) Err() error { return r.err }

// Line returns the number of lines read.
func (r *Reader) Line() int64 { return r.line }

// Skipped returns the number of malformed lines that were skipped, and the first of them as an error.
func (r *Reader) Skipped() (int64, error) { return r.skipped, r.firstBad }

// Close ends the stream and closes the file that Open opened.
func (r *Reader) Close() error {
	var first error
	for _, c := range r.closers {
		if err := c(); err != nil && first == nil {
			first = err
		}
	}
	r.closers = nil
	r.in.Reset(bytes.NewReader(nil))
	return first
}
