package objstore

import (
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
)

// getMulti gets all keys.
func getMulti(c *Client, keys [][]byte, results []Result) error {
	for len(keys) > 0 {
		n, _, err := c.GetMulti(keys, results, nil)
		if err != nil {
			return err
		}
		keys, results = keys[n:], results[n:]
	}
	return nil
}

// GetMulti finds what gets find, of each key: there or not, known to the location cache or not, large, expired, twice, too long, in overflow blocks, and in stores of which gets
// take locks; and where READs of a chain may be exchanged.
func TestGetMulti(t *testing.T) {
	for _, how := range []struct {
		paper    bool
		exchange float64
	}{{}, {paper: true}, {exchange: 0.5}, {paper: true, exchange: 0.5}} {
		paper := how.paper
		w := newWorld(t, sim.Config{NIC: sim.Ideal(), ExchangeReads: how.exchange}, 3, 64<<20, 1)
		cfg := w.config()
		cfg.Paper, cfg.Objects = paper, 100 // so that buckets overflow
		s := w.open(0, cfg)
		c := w.client(0, s)
		c.SetNow(100)
		var keys [][]byte
		for i := range 400 {
			k := fmt.Appendf(nil, "k%d", i)
			keys = append(keys, k)
			o := Options{Flags: uint32(i)}
			v := fmt.Appendf(nil, "value %d", i)
			switch {
			case i%7 == 0:
				continue // not there
			case i%11 == 0:
				o.TTL = 1
			case i%50 == 1:
				v = append(v, make([]byte, 300<<10)...)
			}
			wantErr(t, "set", c.Set(k, v, o), nil)
			if i%3 == 0 {
				s.places.put(s.locate(k).hash, 0, 0)
			}
		}
		c.SetNow(200)
		keys = append(keys, keys[1], nil, make([]byte, MaxKey+1))
		it, err := c.Get(keys[2])
		wantErr(t, "get", err, nil)
		keys = append(keys, it.Value) // lies where objects are read to
		got := make([]Result, len(keys))
		copies := make([][]byte, len(keys))
		for i, k := range keys {
			copies[i] = append([]byte(nil), k...)
		}
		wantErr(t, "get multi", getMulti(c, keys, got), nil)
		for i, k := range copies {
			want, err := c.Get(k)
			if fmt.Sprint(got[i].Err) != fmt.Sprint(err) || string(got[i].Value) != string(want.Value) ||
				got[i].Flags != want.Flags || got[i].CAS != want.CAS {
				t.Fatalf("paper %v, %.20q: %d bytes, flags %d, %v; Get: %d bytes, flags %d, %v", paper, k,
					len(got[i].Value), got[i].Flags, got[i].Err, len(want.Value), want.Flags, err)
			}
		}
		c.Close()
		wantErr(t, "after Close", getMulti(c, keys, got), ErrClosed)
	}
}

// A batch of large values is not returned at once: its memory is bounded, whatever its keys are.
func TestGetMultiIsBounded(t *testing.T) {
	w := newWorld(t, sim.Config{NIC: sim.Ideal()}, 1, 64<<20, 1)
	s := w.open(0, w.config())
	c := w.client(0, s)
	for _, known := range []bool{false, true} {
		var keys [][]byte
		for i := range 40 {
			keys = append(keys, fmt.Appendf(nil, "k%d", i%20))
		}
		for _, k := range keys {
			wantErr(t, "set", c.Set(k, make([]byte, 300<<10), Options{}), nil)
			if !known {
				s.places.put(s.locate(k).hash, 0, 0)
			}
		}
		for got := make([]Result, len(keys)); len(keys) > 0; {
			n, dst, err := c.GetMulti(keys, got, nil)
			wantErr(t, "get multi", err, nil)
			if n < 1 || len(dst) > batchBytes+301<<10 {
				t.Fatalf("known %v: %d keys in %d bytes", known, n, len(dst))
			}
			for _, r := range got[:n] {
				if r.Err != nil || len(r.Value) != 300<<10 {
					t.Fatalf("known %v: %d bytes, %v", known, len(r.Value), r.Err)
				}
			}
			keys = keys[n:]
		}
	}
}

// 100 keys take the time of two round trips and a little at most, of one memory node or three: in chains that are under way at the same time. Where READs of a
// chain may be exchanged these are up to eight, for the location cache does not know all.
func TestGetMultiTime(t *testing.T) {
	for _, mns := range []int{1, 3} {
		for _, known := range []bool{true, false} {
			getMultiTime(t, mns, known, 0, 3, 45)
			getMultiTime(t, mns, known, 0.5, 9, 60)
		}
	}
}

// getMultiTime gets 100 keys of memory nodes, in some round trips and chains at most.
func getMultiTime(t *testing.T, mns int, known bool, exchange float64, trips, most int) {
	t.Helper()
	nic := sim.Ideal()
	nic.PostMin, nic.PostMax, nic.Poll = 0, 0, 0 // the time of the network alone
	w := newWorld(t, sim.Config{NIC: nic, ExchangeReads: exchange}, mns, 64<<20, 1)
	s := w.open(0, w.config())
	c := w.client(0, s)
	var keys [][]byte
	for i := range 100 {
		keys = append(keys, fmt.Appendf(nil, "key %d", i))
		wantErr(t, "set", c.Set(keys[i], make([]byte, 32), Options{}), nil)
	}
	op := fabric.Load(s.slotsAddr(s.locate(keys[0]).bucket))
	start := c.port.Now()
	wantErr(t, "one READ", c.port.Do([]fabric.Op{op}), nil)
	trip := c.port.Now() - start
	if !known {
		for _, k := range keys {
			s.places.put(s.locate(k).hash, 0, 0)
		}
	}
	chains := c.port.Stats().Chains
	start = c.port.Now()
	got := make([]Result, len(keys))
	wantErr(t, "get multi", getMulti(c, keys, got), nil)
	took, n := c.port.Now()-start, c.port.Stats().Chains-chains
	t.Logf("%d memory nodes, known %v, exchange %v: %d chains in %d ns; a round trip %d ns", mns, known, exchange, n, took, trip)
	for i := range got {
		wantErr(t, "result", got[i].Err, nil)
	}
	if took > fabric.Time(trips)*trip || n > uint64(most) {
		t.Errorf("%d memory nodes, known %v, exchange %v: %d chains in %d ns, more than %d, or %d round trips of %d", mns, known, exchange, n, took, most, trips, trip)
	}
}

// A value of many segments is read in some three round trips and the time of its bytes: the segments are found at a time, and read side by side, whether
// the process knows where they are or not.
func TestLargeReadTime(t *testing.T) {
	for _, known := range []bool{true, false} {
		nic := sim.Ideal()
		nic.PostMin, nic.PostMax, nic.Poll = 0, 0, 0
		w := newWorld(t, sim.Config{NIC: nic}, 1, 64<<20, 1)
		cfg := w.config()
		cfg.Segment, cfg.MaxValue = 4096, 1<<20
		s := w.open(0, cfg)
		c := w.client(0, s)
		wantErr(t, "set", c.Set([]byte("key"), make([]byte, 15*4096), Options{}), nil)
		start := c.port.Now()
		wantErr(t, "one READ", c.port.Do([]fabric.Op{fabric.Load(s.slotsAddr(s.bucket(0, 0)))}), nil)
		trip := c.port.Now() - start
		if !known {
			clear(s.places.list)
		}
		start = c.port.Now()
		it, err := c.Get([]byte("key"))
		took := c.port.Now() - start
		t.Logf("known %v: %d ns; a round trip %d ns", known, took, trip)
		if wantErr(t, "get", err, nil); len(it.Value) != 15*4096 || took > 15*trip {
			t.Errorf("known %v: %d bytes in %d ns, more than 15 round trips of %d", known, len(it.Value), took, trip)
		}
	}
}

// A memory node that is down costs the keys on it, and no others.
func TestGetMultiWithANodeDown(t *testing.T) {
	for down := range 3 {
		w, keys, c, _ := downWorld(t)
		w.c.KillMN(w.mns[down])
		for range 2 { // the first batch meets it in the middle of its chains
			got := make([]Result, 100)
			var batch [][]byte
			for i := range got {
				batch = append(batch, []byte(keys[i%3]))
			}
			wantErr(t, "get multi", getMulti(c, batch, got), nil)
			for i, r := range got {
				if i%3 == down {
					wantErr(t, "key of what is down", r.Err, fabric.ErrNodeDown)
				} else if r.Err != nil || string(r.Value) != "old" {
					t.Fatalf("memory node %d is down: %d is %q, %v", down, i, r.Value, r.Err)
				}
			}
		}
	}
}
