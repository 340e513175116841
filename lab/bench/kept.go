package bench

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"
)

// A measurements is what has been measured, by measurand: experiments have points in common. With a file, hours of measuring can be done in parts.
type measurements struct {
	mu   sync.Mutex
	has  map[string]Metrics
	file *bbolt.DB // nil: none
}

// known is what this process has measured, with the file in which Run was told to keep measurements.
var known = measurements{has: map[string]Metrics{}}

// openKept opens or makes a file of measurements. Its bucket is named after the program, for figures of another one may differ.
func openKept(name string) (*bbolt.DB, error) {
	program, err := programHash()
	if err != nil {
		return nil, err
	}
	db, err := bbolt.Open(name, 0o666, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		if other, _ := tx.Cursor().First(); other != nil && !bytes.Equal(other, program) {
			return fmt.Errorf("%s: measured by another build of declock-lab: name another file, or remove it", name)
		}
		_, err := tx.CreateBucketIfNotExists(program)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func programHash() ([]byte, error) {
	name, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}

// keepIn makes a file the one that measurements are kept in; nil: none is.
func (k *measurements) keepIn(db *bbolt.DB) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.file = db
}

// find returns the metrics of a measurand, nil if it has not been measured.
func (k *measurements) find(what string) (m Metrics, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m = k.has[what]; m != nil || k.file == nil {
		return m, nil
	}
	err = k.file.View(func(tx *bbolt.Tx) error {
		program, _ := tx.Cursor().First()
		text := tx.Bucket(program).Get([]byte(what))
		if text == nil {
			return nil
		}
		return gob.NewDecoder(bytes.NewReader(text)).Decode(&m)
	})
	return m, err
}

// keep adds the metrics of a measurand.
func (k *measurements) keep(what string, m Metrics) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.has[what] = m; k.file == nil {
		return nil
	}
	return k.file.Update(func(tx *bbolt.Tx) error {
		var text bytes.Buffer
		program, _ := tx.Cursor().First()
		return errors.Join(gob.NewEncoder(&text).Encode(m), tx.Bucket(program).Put([]byte(what), text.Bytes()))
	})
}
