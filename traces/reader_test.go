package traces

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func readAll(t testing.TB, r io.Reader, o ReaderOptions) ([]string, *Reader) {
	t.Helper()
	tr, err := NewReader(r, o)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for rec := range All(tr) {
		out = append(out, rec.String())
	}
	return out, tr
}

// TestGolden: all operations, a miss, a key with commas, a line without line feed, largest numbers; plain, zstd and gzip.
func TestGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/sample.csv")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSuffix(string(golden), "\n")
	for _, name := range []string{"t.csv", "t.csv.zst", "t.csv.gz"} {
		path := filepath.Join(t.TempDir(), name)
		src, err := Open("testdata/sample.csv", ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := w.WriteAll(src); n != 13 || err != nil {
			t.Fatalf("WriteAll: %d, %v", n, err)
		}
		if err := errors.Join(w.Close(), src.Close()); err != nil {
			t.Fatal(err)
		}
		// The name must not matter: magic bytes do.
		odd := filepath.Join(t.TempDir(), "noextension")
		if err := os.Rename(path, odd); err != nil {
			t.Fatal(err)
		}
		r, err := Open(odd, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		for rec := range All(r) {
			lines = append(lines, rec.String())
		}
		if got := strings.Join(lines, "\n"); got != want || r.Err() != nil {
			t.Errorf("%s: %v\n%s", name, r.Err(), got)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	crlf := strings.ReplaceAll(want, "\n", "\r\n") // and no end of the last line
	for _, in := range []io.Reader{strings.NewReader(crlf), iotest.OneByteReader(strings.NewReader(crlf))} {
		if got, r := readAll(t, in, ReaderOptions{}); strings.Join(got, "\n") != want || r.Err() != nil {
			t.Errorf("CRLF: %v\n%s", r.Err(), got)
		}
	}
}

func TestRecordFields(t *testing.T) {
	r, _ := NewReader(strings.NewReader("1,a,b,c,5,9,1,gets,0\n2,k,1,0,3,get,0\n"), ReaderOptions{})
	var rec Record
	if !r.Next(&rec) || string(rec.Key) != "a,b,c" || rec.KeySize != 5 || rec.ValueSize != 9 || rec.Client != 1 || rec.Op != OpGets || rec.IsMiss() {
		t.Errorf("%+v", rec)
	}
	if !r.Next(&rec) || !rec.IsMiss() || rec.Time != 2 || r.Next(&rec) || r.Err() != nil {
		t.Errorf("%+v %v", rec, r.Err())
	}
}

// A byte order mark and a header are not part of the first record; what is not clearly a header is an error that names its line.
func TestByteOrderMarkAndHeader(t *testing.T) {
	const record, mark = "0,key,3,5,1,get,0", "\xef\xbb\xbf"
	const header = "timestamp,anonymized key,key size,value size,client id,operation,TTL"
	for _, text := range []string{
		mark + record, header + "\n" + record, mark + header + "\r\n" + record, strings.ReplaceAll(header, ",", ", ") + "\n" + record,
		`"time","key","key_size","value_size","client","op","ttl"` + "\n" + record, mark + "\n" + record, mark + "\r\n" + record,
	} {
		for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			if got, r := readAll(t, in, ReaderOptions{}); r.Err() != nil || len(got) != 1 || got[0] != record {
				t.Errorf("%q: %q, %v", text, got, r.Err())
			}
		}
	}
	for text, says := range map[string]string{
		record + "\n" + header: "line 2, column 1", header + "\n" + header: "line 2, column 1", "\n" + header: "line 2, column 1",
		"time,key,op\n" + record: "line 1, column 1", "x,key,3,5,1,get,0": "line 1, column 1", "time,key,3,5,1,get,0": "line 1, column 1",
		record + "\n" + mark + record: "line 2, column 1", "\xff\xfe0\x00,\x00": "iconv",
	} {
		if _, r := readAll(t, strings.NewReader(text), ReaderOptions{}); !errors.Is(r.Err(), ErrFormat) || !strings.Contains(r.Err().Error(), says) {
			t.Errorf("%q: %v", text, r.Err())
		}
	}
}

// TestMalformed: what is wrong is said with line and column.
func TestMalformed(t *testing.T) {
	const good = "0,k,1,2,3,get,0\n"
	for _, c := range []struct {
		line   string
		column int
		what   string
	}{
		{"x,k,1,2,3,get,0", 1, "not a decimal number"},
		{",k,1,2,3,get,0", 1, "empty"},
		{"-1,k,1,2,3,get,0", 1, "not a decimal"},
		{"4294967296,k,1,2,3,get,0", 1, "32 bits"},
		{"0,,1,2,3,get,0", 2, "empty"},
		{"0,a\x00b,1,2,3,get,0", 2, "NUL"},
		{"0,k,1x,2,3,get,0", 3, "not a decimal"},
		{"0,k,9999999,2,3,get,0", 3, "bound"},
		{"0,k,1,,3,get,0", 4, "empty"},
		{"0,k,1,1073741825,3,get,0", 4, "bound"},
		{"0,k,1,-2,3,get,0", 4, "not a decimal"},
		{"0,k,1,2,1234567890123456789,get,0", 5, "18 digits"},
		{"0,k,1,2,3,gett,0", 6, "not an operation"},
		{"0,k,1,2,3,,0", 6, "not an operation"},
		{"0,k,1,2,3,get,", 7, "empty"},
		{"0,k,1,2,3,get,0 ", 7, "not a decimal"},
		{"0,k,1,2,3,get,4294967296", 7, "32 bits"},
		{"0,k,2,3,get,0", 0, "6 of 7 columns"},
		{"0", 0, "1 of 7 columns"},
		{"garbage", 0, "1 of 7 columns"},
		{"0,1", 0, "2 of 7 columns"},
		{"get,0", 1, "not a decimal"},
		{",,,,,,", 1, "empty"},
		{"\x00\x01\x02", 0, "not a text file"},
		{"0," + strings.Repeat("k", 5000) + ",1,2,3,get,0", 0, "longer than 4096"},
		{"0," + strings.Repeat("k", 500000) + ",1,2,3,get,0", 0, "longer than 4096"},
	} {
		in := good + c.line + "\n" + good
		got, r := readAll(t, strings.NewReader(in), ReaderOptions{Name: "x.csv"})
		var le *LineError
		if err := r.Err(); !errors.As(err, &le) || !errors.Is(err, ErrFormat) || le.Line != 2 || le.Column != c.column ||
			!strings.Contains(err.Error(), c.what) || !strings.Contains(err.Error(), "x.csv: line 2") || len(err.Error()) > 400 {
			t.Errorf("%.40q: column %d %s: got %v", c.line, c.column, c.what, err)
		}
		if len(got) != 1 {
			t.Errorf("%.40q: %d records before the error", c.line, len(got))
		}
		got, r = readAll(t, strings.NewReader(in), ReaderOptions{SkipBad: true})
		if n, first := r.Skipped(); len(got) != 2 || r.Err() != nil || n != 1 || first == nil || r.Line() != 3 {
			t.Errorf("%.40q: skipping: %d records, %v, %d skipped, %v, line %d", c.line, len(got), r.Err(), n, first, r.Line())
		}
	}
}

func compressed(t testing.TB, c Compression, lines int) (data []byte, text string) {
	var out, plain bytes.Buffer
	w, err := NewWriter(&out, c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range lines {
		rec := Record{Time: uint32(i), Key: fmt.Appendf(nil, "key%x", mix(uint64(i), 7)), KeySize: 9, ValueSize: 5, Client: 3, Op: OpGet}
		if err := w.Write(&rec); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&plain, &rec)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), plain.String()
}

// TestCutCompressedStream: whole lines before the cut arrive, then a clear error.
func TestCutCompressedStream(t *testing.T) {
	for _, c := range []Compression{Zstd, Gzip} {
		data, text := compressed(t, c, 50000)
		for _, n := range []int{5, len(data) / 3, len(data) - 1} {
			r, err := NewReader(bytes.NewReader(data[:n]), ReaderOptions{Name: "cut"})
			count, ok := 0, true
			if err == nil {
				rest := text
				for rec := range All(r) {
					line, after, _ := strings.Cut(rest, "\n")
					ok, rest = ok && rec.String() == line, after
					count++
				}
				err = r.Err()
			}
			if !errors.Is(err, ErrTruncated) || !ok {
				t.Errorf("compression %d cut at %d of %d: %d records, %v", c, n, len(data), count, err)
			}
			if n == len(data)/3 && count < 50000/5 {
				t.Errorf("compression %d cut at a third: only %d of 50000 records", c, count)
			}
		}
		damaged := bytes.Clone(data)
		for i := len(data) / 2; i < len(data)/2+64; i++ {
			damaged[i] ^= 0x5a
		}
		_, r := readAll(t, bytes.NewReader(damaged), ReaderOptions{SkipBad: true})
		if err := r.Err(); !errors.Is(err, ErrCompression) && !errors.Is(err, ErrTruncated) {
			t.Errorf("compression %d damaged: %v", c, err)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := Open(t.TempDir(), ReaderOptions{}); err == nil || !strings.Contains(err.Error(), "directory") {
		t.Error(err)
	}
	if _, err := Open("no/such/file", ReaderOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := NewReader(strings.NewReader("BZh91AY"), ReaderOptions{}); !errors.Is(err, ErrCompression) {
		t.Error(err)
	}
	if _, err := NewReader(strings.NewReader("\xfd7zXZ\x00."), ReaderOptions{}); !errors.Is(err, ErrCompression) {
		t.Error(err)
	}
	broken := errors.New("cable")
	_, r := readAll(t, io.MultiReader(strings.NewReader("0,k,1,2,3,get,0\n"), iotest.ErrReader(broken)), ReaderOptions{})
	if !errors.Is(r.Err(), broken) || r.Line() != 1 {
		t.Error(r.Err())
	}
	if got, r := readAll(t, strings.NewReader(""), ReaderOptions{}); len(got) != 0 || r.Err() != nil {
		t.Error("empty trace:", r.Err())
	}
	if _, err := Create("no/such/dir/x"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestWriterRefuses(t *testing.T) {
	w, _ := NewWriter(io.Discard, Plain)
	good := Record{Key: []byte("k"), Op: OpGet}
	for _, edit := range []func(r *Record){
		func(r *Record) { r.Op = OpNone }, func(r *Record) { r.Op = NumOps }, func(r *Record) { r.Key = nil },
		func(r *Record) { r.Key = []byte("a\nb") }, func(r *Record) { r.Key = []byte("a\x00b") },
		func(r *Record) { r.Key = make([]byte, 5000) }, func(r *Record) { r.ValueSize = 1<<30 + 1 },
		func(r *Record) { r.Client = 1e18 },
	} {
		bad := good
		edit(&bad)
		if err := w.Write(&bad); !errors.Is(err, ErrFormat) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := w.Write(&good); err != nil || w.n != 1 {
		t.Error(err)
	}
	full := errors.New("disk full")
	w, _ = NewWriter(failWriter{full}, Zstd)
	_ = w.Write(&good)
	if err := w.Close(); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failWriter struct{ err error }

func (f failWriter) Write([]byte) (int, error) { return 0, f.err }

func recordGen() *rapid.Generator[Record] {
	key := rapid.SliceOfN(rapid.ByteRange(1, 255).Filter(func(b byte) bool { return b != '\n' }), 1, 300)
	return rapid.Custom(func(t *rapid.T) Record {
		return Record{
			Time: rapid.Uint32().Draw(t, "time"), Key: key.Draw(t, "key"), KeySize: rapid.Uint32Range(0, 1<<20).Draw(t, "keySize"),
			ValueSize: rapid.Uint32Range(0, 1<<30).Draw(t, "valueSize"), Client: rapid.Uint64Range(0, 1e18-1).Draw(t, "client"),
			Op: Op(rapid.IntRange(int(OpGet), int(NumOps)-1).Draw(t, "op")), TTL: rapid.Uint32().Draw(t, "ttl"),
		}
	})
}

// TestRoundTrip: what the Writer takes the Reader gives back, whatever the key.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(recordGen(), 0, 20).Draw(t, "records")
		var out bytes.Buffer
		w, _ := NewWriter(&out, Compression(rapid.IntRange(0, 2).Draw(t, "compression")))
		for i := range recs {
			if err := w.Write(&recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := NewReader(&out, ReaderOptions{})
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for rec := range All(r) {
			if rec.String() != recs[i].String() {
				t.Fatalf("record %d: %q became %q", i, &recs[i], rec)
			}
			i++
		}
		if i != len(recs) || r.Err() != nil {
			t.Fatalf("%d of %d records: %v", i, len(recs), r.Err())
		}
	})
}

// FuzzReader: no input crashes it, and what it accepts can be written and read again.
func FuzzReader(f *testing.F) {
	golden, _ := os.ReadFile("testdata/sample.csv")
	f.Add(golden, true)
	f.Add([]byte("0,k,1,2,3,get,0\r\n\n\n,,,,,,\n0,\x00,1,2,3,get,0"), true)
	f.Add([]byte("99999999999999999999,k,1,2,3,get,0\n"), false)
	for _, c := range []Compression{Zstd, Gzip} {
		data, _ := compressed(f, c, 20)
		f.Add(data, false)
		f.Add(data[:len(data)/2], true)
	}
	f.Add([]byte{0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 9}, true)
	f.Fuzz(func(t *testing.T, data []byte, skip bool) {
		r, err := NewReader(bytes.NewReader(data), ReaderOptions{SkipBad: skip, MaxLine: 256})
		if err != nil {
			return
		}
		defer r.Close()
		for rec := range All(r) {
			line := AppendRecord(nil, rec)
			var again Record
			if column, what := parseLine(line, &again); what != "" {
				t.Fatalf("%q: column %d: %s", line, column, what)
			}
			if !bytes.Equal(AppendRecord(nil, &again), line) {
				t.Fatalf("%q became %q", line, &again)
			}
		}
	})
}

func sampleTrace(lines int) []byte {
	g, err := NewGenerator(GenConfig{Preset: mustPreset(IOPSBound), Keys: 10000, Requests: uint64(lines), Clients: 8})
	if err != nil {
		panic(err)
	}
	var out bytes.Buffer
	w, _ := NewWriter(&out, Plain)
	if _, err := w.WriteAll(g.All()); err != nil {
		panic(err)
	}
	_ = w.Close()
	return out.Bytes()
}

func mustPreset(name string) Preset {
	p, err := FindPreset(name)
	if err != nil {
		panic(err)
	}
	return p
}

func TestReaderAllocates0(t *testing.T) {
	data := sampleTrace(20000)
	r, _ := NewReader(bytes.NewReader(data), ReaderOptions{})
	var rec Record
	if n := testing.AllocsPerRun(15000, func() { r.Next(&rec) }); n != 0 {
		t.Errorf("%g allocations per record", n)
	}
}

func BenchmarkReader(b *testing.B) {
	data := sampleTrace(100000)
	b.SetBytes(int64(len(data) / 100000))
	b.ReportAllocs()
	in := bytes.NewReader(data)
	r, _ := NewReader(in, ReaderOptions{})
	var rec Record
	for b.Loop() {
		if !r.Next(&rec) {
			in.Reset(data)
			r, _ = NewReader(in, ReaderOptions{})
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	w, _ := NewWriter(io.Discard, Plain)
	rec := Record{Time: 1, Key: bytes.Repeat([]byte("k"), 40), KeySize: 40, ValueSize: 414, Client: 5, Op: OpSet, TTL: 86400}
	b.ReportAllocs()
	for b.Loop() {
		_ = w.Write(&rec)
	}
}
