// Package stats adds and subtracts structs of counters: each mechanism's, fabric's, store's and tree's Stats.
package stats

import (
	"reflect"
	"sync"
	"unsafe"
)

// Add adds each counter of from to that of to. Counters are the unsigned numbers in a struct, and in its structs and arrays; what else is
// there stays.
func Add[T any](to, from *T) {
	if a, b := words(to), words(from); a != nil {
		for i := range a {
			a[i] += b[i]
		}
		return
	}
	combine(to, from, func(a, b uint64) uint64 { return a + b })
}

// Subtract subtracts each counter of what was counted before.
func Subtract[T any](from, before *T) {
	combine(from, before, func(a, b uint64) uint64 { return a - b })
}

func combine[T any](to, with *T, f func(a, b uint64) uint64) {
	each(reflect.ValueOf(to).Elem(), reflect.ValueOf(with).Elem(), f)
}

func each(a, b reflect.Value, f func(a, b uint64) uint64) {
	switch a.Kind() {
	case reflect.Struct:
		for i := range a.NumField() {
			each(a.Field(i), b.Field(i), f)
		}
	case reflect.Array:
		for i := range a.Len() {
			each(a.Index(i), b.Index(i), f)
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		a.SetUint(f(a.Uint(), b.Uint()))
	}
}

// uniform has for each type that was asked for whether it is counters of 64 bits and nothing else.
var uniform sync.Map

// words returns the counters of a struct that is counters of 64 bits and nothing else, as nearly all are; of others nil. An experiment adds those of its
// clients some hundred times, for which reflection takes a fiftieth of all time.
func words[T any](p *T) []uint64 {
	t := reflect.TypeFor[T]()
	is, known := uniform.Load(t)
	if !known {
		is = isWords(t)
		uniform.Store(t, is)
	}
	if !is.(bool) {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(p)), unsafe.Sizeof(*p)/8)
}

func isWords(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if !isWords(t.Field(i).Type) {
				return false
			}
		}
		return t.NumField() > 0
	case reflect.Array:
		return t.Len() > 0 && isWords(t.Elem())
	}
	return t.Kind() == reflect.Uint64
}
