package traces

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression of a trace that is written.
type Compression uint8

// The compressions that [NewWriter] writes and [NewReader] knows by their first bytes.
const (
	Plain Compression = iota
	Zstd
	Gzip
)

// CompressionOf returns the compression that a file name's extension asks for: .zst, .gz, or else plain.
func CompressionOf(path string) Compression {
	switch {
	case strings.HasSuffix(path, ".zst"):
		return Zstd
	case strings.HasSuffix(path, ".gz"):
		return Gzip
	}
	return Plain
}

// Writer writes a trace. Its Close completes the file and must be asked for its error.
type Writer struct {
	out     *bufio.Writer
	closers []func() error // innermost first
	n       int64
	err     error

	path, temp string // of a file: where it is to be, and where it is until it is complete; empty: neither
}

const writeBuffer = 128 << 10

// Create writes a trace file, compressed as its extension says; "-" is standard output, plain. The file is there when Close has
// succeeded, whole, in the place of one that was and with its mode: until then what is written is in another beside it. Devices and
// pipes are written to directly, and so is a file that cannot be replaced: one in a directory that may not be written to, and
// what standard output or standard error is.
func Create(path string) (*Writer, error) {
	if path == "-" {
		return NewWriter(os.Stdout, Plain)
	}
	w, err := create(path)
	if err != nil {
		return nil, fmt.Errorf("traces: cannot create the trace: %w", err)
	}
	return w, nil
}

func create(path string) (*Writer, error) {
	compression, mode := CompressionOf(path), os.FileMode(0o666)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	was, err := os.Stat(path)
	if err == nil { // a file that may not be written may not be replaced
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return nil, err
		}
		if !was.Mode().IsRegular() || isOutput(was) {
			return newFile(f, compression)
		}
		f.Close()
		mode = was.Mode().Perm()
	} else {
		was = nil
	}
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, fmt.Sprintf(".%s.%d-%08x", name, os.Getpid(), rand.Uint32()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if was != nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			return nil, err
		}
		return newFile(f, compression)
	}
	if err != nil {
		return nil, err
	}
	if was != nil {
		err = f.Chmod(mode) // the umask is for new files
	}
	var w *Writer
	if err == nil {
		w, err = newFile(f, compression)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(temp))
	}
	w.path, w.temp = path, temp
	return w, nil
}

// isOutput reports whether a file is this process's standard output or error: a program that has it open would not see another in its place.
func isOutput(file os.FileInfo) bool {
	for _, out := range []*os.File{os.Stdout, os.Stderr} {
		if st, err := out.Stat(); err == nil && os.SameFile(file, st) {
			return true
		}
	}
	return false
}

// newFile is NewWriter to a file, which Close closes.
func newFile(f *os.File, c Compression) (*Writer, error) {
	w, err := NewWriter(f, c)
	if err != nil {
		f.Close()
		return nil, err
	}
	w.closers = append(w.closers, f.Close)
	return w, nil
}

// NewWriter writes a trace to out. Close completes it; that does not close out.
func NewWriter(out io.Writer, c Compression) (*Writer, error) {
	w := new(Writer)
	switch c {
	case Plain:
	case Zstd:
		z, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
		if err != nil {
			return nil, fmt.Errorf("traces: zstd: %w", err)
		}
		out, w.closers = z, append(w.closers, z.Close)
	case Gzip:
		z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
		if err != nil {
			return nil, fmt.Errorf("traces: gzip: %w", err)
		}
		out, w.closers = z, append(w.closers, z.Close)
	default:
		return nil, fmt.Errorf("traces: Compression(%d) is not one of Plain, Zstd, Gzip", c)
	}
	w.out = bufio.NewWriterSize(out, writeBuffer)
	return w, nil
}

// Write adds a record. It refuses with ErrFormat one that a Reader would not read back.
func (w *Writer) Write(rec *Record) error {
	if w.err != nil {
		return w.err
	}
	if what := unwritable(rec); what != "" {
		return fmt.Errorf("%w: record %d cannot be written: %s", ErrFormat, w.n+1, what)
	}
	w.n++
	_, err := w.out.Write(append(AppendRecord(w.out.AvailableBuffer(), rec), '\n'))
	return w.failed("write", err)
}

func unwritable(rec *Record) string {
	switch {
	case rec.Op == OpNone || rec.Op >= NumOps:
		return fmt.Sprintf("%s is not an operation", rec.Op)
	case len(rec.Key) == 0:
		return "the key is empty"
	case len(rec.Key) > maxLine-100:
		return "the key is too long for a line"
	case bytes.IndexByte(rec.Key, '\n') >= 0 || bytes.IndexByte(rec.Key, 0) >= 0:
		return "the key holds a line feed or a NUL byte"
	case rec.KeySize > 1<<20 || rec.ValueSize > maxValueSize:
		return "the key size or the value size is over the bound"
	case rec.Client >= 1e18:
		return "the client id has more than 18 digits"
	}
	return ""
}

// WriteAll writes all records of a source and returns how many; the error is the source's or the writer's.
func (w *Writer) WriteAll(s Source) (int64, error) {
	before := w.n
	var rec Record
	for s.Next(&rec) {
		if err := w.Write(&rec); err != nil {
			return w.n - before, err
		}
	}
	return w.n - before, s.Err()
}

// failed keeps the first error.
func (w *Writer) failed(what string, err error) error {
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("traces: %s: %w", what, err)
	}
	return w.err
}

// errDiscarded is the error of a Writer after Discard.
var errDiscarded = errors.New("traces: the trace was discarded")

// Discard ends the writing without a file: what was at its path before is there still.
func (w *Writer) Discard() {
	if w.err == nil {
		w.err = errDiscarded
	}
	_ = w.Close() // the file is removed
}

// Close writes what is buffered, completes the compressed stream, and puts the file in its place.
func (w *Writer) Close() error {
	if w.err == nil {
		_ = w.failed("write", w.out.Flush())
	}
	for _, c := range w.closers {
		_ = w.failed("close", c())
	}
	w.closers = nil
	if w.temp == "" {
		return w.err
	}
	temp := w.temp
	w.temp = ""
	if w.err == nil {
		_ = w.failed("close", replace(w.path, temp))
	}
	if w.err != nil {
		_ = os.Remove(temp) // w.err says why
	}
	return w.err
}

// replace puts temp in the place of path: by its name, or, where path is a mount, as in a container, by what is in it.
func replace(path, temp string) error {
	err := os.Rename(temp, path)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	from, err := os.Open(temp)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err != nil {
		return err
	}
	return os.Remove(temp)
}

// AppendRecord appends the record's line, without a line feed.
func AppendRecord(b []byte, rec *Record) []byte {
	b = append(strconv.AppendUint(b, uint64(rec.Time), 10), ',')
	b = append(append(b, rec.Key...), ',')
	b = append(strconv.AppendUint(b, uint64(rec.KeySize), 10), ',')
	b = append(strconv.AppendUint(b, uint64(rec.ValueSize), 10), ',')
	b = append(strconv.AppendUint(b, rec.Client, 10), ',')
	b = append(append(b, rec.Op.String()...), ',')
	return strconv.AppendUint(b, uint64(rec.TTL), 10)
}
