package locktrace_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/lab/locktrace"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/traces"
)

// artTable returns a letter for the table of a lock, of TPC-C's artifact: warehouse, district, customer, order, history, new order, line, stock.
func artTable(l uint32) byte {
	l %= locktrace.WarehouseLocks
	for i, from := range []uint32{artStock, artLines, artNewOrders, artHistory, artOrders, artCustomers, 1, 0} {
		if l >= from {
			return "slnhocdw"[i]
		}
	}
	return '?'
}

// contents draws transactions, and returns the locks of each kind as letters of tables, capital letters for exclusive ones, in the order of the alphabet; and a sum of all that was drawn.
func contents(src locktrace.Source, table func(uint32) byte) (map[string]string, uint32) {
	of, sum := map[string][]string{}, fnv.New32a()
	for range 6000 {
		list, letters := src.Next(nil), ""
		for _, a := range list {
			x := table(a.Lock)
			if a.Mode == lock.Exclusive {
				x -= 'a' - 'A'
			}
			letters += string(x)
			fmt.Fprint(sum, a.Lock, a.Mode, ",")
		}
		k := src.(interface{ Kind() locktrace.Kind }).Kind().String()
		if !slices.Contains(of[k], letters) {
			of[k] = append(of[k], letters)
		}
	}
	all := map[string]string{}
	for k, list := range of {
		slices.Sort(list)
		all[k] = strings.Join(list, " ")
	}
	return all, sum.Sum32()
}

// tatpTable returns what artTable does: subscriber, access info, facility, call forwarding. Access info ends where Get-Access-Data finds no more.
func tatpTable(db *locktrace.TATP, subscribers uint32) func(uint32) byte {
	src, facilities := db.Source(traces.NewRand(2, 2)), uint32(0)
	for range 20_000 {
		if list := src.Next(nil); src.(interface{ Kind() locktrace.Kind }).Kind() == locktrace.GetAccessData && len(list) > 0 {
			facilities = max(facilities, list[0].Lock+1)
		}
	}
	forwarding := uint32(db.Locks()) - subscribers*4/5
	return func(l uint32) byte {
		switch {
		case l < subscribers:
			return 's'
		case l < facilities:
			return 'a'
		case l < forwarding:
			return 'f'
		}
		return 'c'
	}
}

// What transactions of each kind take, of which tables and in which modes; and that nothing that is drawn changes unawares, for figures are of it.
func TestContents(t *testing.T) {
	of := func(artifact bool) (map[string]string, uint32) {
		db := locktrace.NewTATP(1000, artifact)
		table := tatpTable(db, 1000)
		return contents(locktrace.NewTATP(1000, artifact).Source(traces.NewRand(1, 1)), table)
	}
	got, sum := contents((&locktrace.TPCC{Warehouses: 8, Nodes: 4, Artifact: true}).Source(1, traces.NewRand(1, 1)), artTable)
	artifact, artSum := of(true)
	spec, specSum := of(false)
	_, rows := contents((&locktrace.TPCC{Warehouses: 8, Nodes: 4, Seed: 1}).Source(1, traces.NewRand(1, 1)), artTable)
	for _, c := range []struct {
		got  any
		want string
	}{
		{got, "map[dly:NOlC new:wDcONSSSSSL wDcONSSSSSSL wDcONSSSSSSSL wDcONSSSSSSSSL wDcONSSSSSSSSSL wDcONSSSSSSSSSSL os:col pay:WDCH sl:dls]"},
		{artifact, "map[dcf:s sC gad: a gnd: f fc fcc fccc gsd:s icf:sf sfC sff sffC sfff sfffC sffff sffffC ul:S usd:S SF]"},
		{spec, "map[dcf:s sC gad: a gnd: f fc fcc fccc gsd:s icf:sf sfC sff sffC sfff sfffC sffff sffffC ul:S usd:S SF]"},
		{[]uint32{sum, artSum, specSum, rows}, "[293372565 461983768 337201373 2218519266]"},
	} {
		if fmt.Sprint(c.got) != c.want {
			t.Errorf("got  %v\nwant %v", c.got, c.want)
		}
	}
}
