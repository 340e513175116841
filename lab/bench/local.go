package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"

	"github.com/declock/declock/fabric"
)

var expLocal = &Experiment{
	Name: "local", Title: "What a compute node keeps: its table of local locks, and its clock",
	Paper:   "Section 5: tables of local locks take less than 20 MB on each compute node; clocks are synchronised to within the latency of one READ, typically less than 3 us.",
	Columns: []string{"lock", "clients", "table_kb", "clock_us"},
	Points: func(o Options) []Point {
		var points []Point
		add := func(policy string, clients int) {
			points = append(points, Point{Cost: 1000, Near: true, Measure: one(Params{{"lock", policy}, {"clients", clients}}, func(ctx context.Context, seed uint64) (Metrics, error) {
				gap := 5 * fabric.Millisecond
				if o.Tiny {
					gap = fabric.Millisecond
				}
				return measureLocal(ctx, seed, o.NIC, policy, clients, gap)
			})})
		}
		add("declock", 0)
		for _, policy := range []string{"declock-tf", "declock-pf", "declock"} {
			add(policy, clientsPerCN*courseCNs)
		}
		return points
	},
	Judge: func(rows Rows) []Claim {
		return []Claim{
			Claim{Text: "table of local locks of a compute node at the default point, at most", Unit: "kB", Paper: 20_000,
				Note: "with buckets, waiters and free locks; a local lock is there only as long as a client of the node uses it"}.AtMost(valueOf(rows.Max("table_kb"), "table_kb"), 20_000),
			Claim{Text: "clocks of two compute nodes after a synchronisation differ by at most", Unit: "us", Paper: 3,
				Note: fmt.Sprintf("without clients. While 256 clients begin it is up to %s us: READs take longer then", Figure(rows.Max("clock_us").Value("clock_us")))}.
				AtMost(valueOf(rows.Find("clients", 0), "clock_us"), 3),
		}
	},
}

// measureLocal runs the default point for a while, and looks at the tables and clocks of the compute nodes.
func measureLocal(ctx context.Context, seed uint64, nic, policy string, clients int, span fabric.Time) (Metrics, error) {
	d, t, err := newCourse(seed, nic, policy, clients, span)
	if err != nil {
		return nil, err
	}
	defer d.c.Close()
	if err := d.run(ctx, &t); err != nil {
		return nil, err
	}
	m := Metrics{"table_kb": 0, "clock_us": 0}
	var first, last int64
	for i := range d.tables {
		m["table_kb"] = max(m["table_kb"], float64(deepSize(reflect.ValueOf(d.tables[i]), map[uintptr]bool{}))/1e3)
		// A clock's state begins with the time that it takes for zero; in the simulator all nodes' times are one.
		zero := int64(binary.LittleEndian.Uint64(d.clocks[i].AppendState(nil)))
		if i == 0 {
			first, last = zero, zero
		}
		first, last = min(first, zero), max(last, zero)
	}
	m["clock_us"] = float64(last-first) / 1e3
	return m, nil
}

// deepSize returns the bytes that a value takes with all that it points to, each once. Functions and interfaces count as words.
func deepSize(v reflect.Value, seen map[uintptr]bool) uintptr {
	return v.Type().Size() + pointed(v, seen)
}

// pointed is deepSize without the value's own bytes.
func pointed(v reflect.Value, seen map[uintptr]bool) (n uintptr) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			n = deepSize(v.Elem(), seen)
		}
	case reflect.Slice:
		if !v.IsNil() && !seen[v.Pointer()] {
			seen[v.Pointer()] = true
			n = uintptr(v.Cap()) * v.Type().Elem().Size()
			for i := range v.Len() {
				n += pointed(v.Index(i), seen)
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += pointed(v.Field(i), seen)
		}
	case reflect.Array:
		for i := range v.Len() {
			n += pointed(v.Index(i), seen)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			n += deepSize(it.Key(), seen) + deepSize(it.Value(), seen)
		}
	case reflect.String:
		n = uintptr(v.Len())
	}
	return n
}
