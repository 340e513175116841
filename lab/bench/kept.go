package bench

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// A keptFile has what earlier runs of this program have measured, so that hours of measuring can be done in parts. Its first line names the program,
// for figures of another one may differ; each further line has a measurand and its metrics, separated by tabs. A last line that is cut short, by a
// crash, is measured again.
type keptFile struct {
	mu   sync.Mutex
	file *os.File
	has  map[string]Metrics
}

// kept is what Run was told to keep measurements in; nil: nothing.
var kept atomic.Pointer[keptFile]

// openKept opens or makes such a file. Nothing else may write to it meanwhile.
func openKept(name string) (*keptFile, error) {
	program, err := programHash()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	k := &keptFile{file: f, has: map[string]Metrics{}}
	if err := k.read(program); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return k, nil
}

func programHash() (string, error) {
	name, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return fmt.Sprintf("declock-lab %x", h.Sum(nil)), nil
}

// read takes in all whole lines, and lets what is written next begin after them.
func (k *keptFile) read(program string) error {
	r, end := bufio.NewReader(k.file), int64(0)
	for {
		line, err := r.ReadString('\n')
		switch {
		case err == io.EOF && end == 0 && line == "":
			_, err := fmt.Fprintln(k.file, program)
			return err
		case err == io.EOF && end > 0:
			_, err := k.file.Seek(end, io.SeekStart)
			return errors.Join(err, k.file.Truncate(end))
		case err != nil && err != io.EOF:
			return err
		case end == 0 && line != program+"\n":
			return errors.New("measured by another build of declock-lab, or no such file: name another, or remove it")
		case end > 0:
			what, metrics, err := parseKept(strings.TrimSuffix(line, "\n"))
			if err != nil {
				return err
			}
			k.has[what] = metrics
		}
		end += int64(len(line))
	}
}

func parseKept(line string) (what string, m Metrics, err error) {
	fields := strings.Split(line, "\t")
	m = Metrics{}
	for _, f := range fields[1:] {
		name, text, _ := strings.Cut(f, "=")
		if m[name], err = strconv.ParseFloat(text, 64); err != nil {
			return "", nil, fmt.Errorf("metric %q: %w", f, err)
		}
	}
	return fields[0], m, nil
}

// find returns what is known of a measurand, nil if nothing.
func (k *keptFile) find(what string) Metrics {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.has[what]
}

// keep adds the metrics of a measurand.
func (k *keptFile) keep(what string, m Metrics) error {
	if k == nil {
		return nil
	}
	parts := []string{what}
	for name, v := range m {
		parts = append(parts, name+"="+strconv.FormatFloat(v, 'g', -1, 64))
	}
	slices.Sort(parts[1:])
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := fmt.Fprintln(k.file, strings.Join(parts, "\t"))
	return err
}
