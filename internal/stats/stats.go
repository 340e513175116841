// Package stats adds and subtracts structs of counters: each mechanism's, fabric's, store's and tree's Stats.
package stats

import "reflect"

// Add adds each counter of from to that of to. Counters are the unsigned numbers in a struct, and in its structs and arrays; what else is
// there stays.
func Add[T any](to, from *T) { combine(to, from, func(a, b uint64) uint64 { return a + b }) }

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
