package btree

import (
	"fmt"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/lock"
)

// A Dump is a node, for people.
type Dump struct {
	Self    string       `json:"self"`
	Addr    fabric.Addr  `json:"addr"` // of its lock
	State   string       `json:"state"`
	Level   int          `json:"level"`
	Version uint32       `json:"version"`
	Token   lock.Token   `json:"token"`
	Low     string       `json:"low"`
	High    string       `json:"high"` // quoted, or none
	Link    string       `json:"link"`
	Used    int          `json:"used"`
	Size    int          `json:"size"`
	Records int          `json:"records"` // with those that do not count any more
	Entries []DumpRecord `json:"entries"`
}

// A DumpRecord is a record that counts.
type DumpRecord struct {
	Key   string `json:"key"`
	Kind  string `json:"kind"`
	Value string `json:"value"` // or where it is
}

func (d *Dump) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "node %s at %v: %s, level %d, [%s, %s), right neighbour %s\n", d.Self, d.Addr, d.State, d.Level, d.Low, d.High, d.Link)
	fmt.Fprintf(&b, "%d of %d bytes used by %d records, version %d, token %d\n", d.Used, d.Size, d.Records, d.Version, d.Token)
	for _, r := range d.Entries {
		fmt.Fprintf(&b, "  %-24s %-8s %s\n", r.Key, r.Kind, r.Value)
	}
	return b.String()
}

// Inspect returns the node of a level that a key belongs to, read without a lock. Level 0 is the leaf.
func (c *Client) Inspect(key []byte, level int) (*Dump, error) {
	if err := c.start(key, nil); err != nil {
		return nil, err
	}
	defer c.session.End()
	if level < 0 || level > maxLevel {
		return nil, fmt.Errorf("btree: level %d: want 0 to %d", level, maxLevel)
	}
	c.search.begin(uint8(level), c.ownKey(key), false, false)
	n := &c.n
	if err := c.seek(&c.search, n, c.leaf); err != nil {
		return nil, err
	}
	d := &Dump{
		Self: n.self.String(), Addr: c.t.lockAddr(n.self), State: stateAlive.String(), Level: int(n.level), Version: n.version, Token: n.token,
		Low: fmt.Sprintf("%q", n.low), High: "none", Link: "none", Used: n.used, Size: c.t.geo.nodeSize,
	}
	if n.dead {
		d.State = stateDead.String()
	}
	if n.high.some {
		d.High = fmt.Sprintf("%q", n.high.key)
	}
	if n.link != 0 {
		d.Link = n.link.String()
	}
	for at := n.first; at < n.used; d.Records++ {
		_, end := n.record(at)
		if end == 0 {
			return nil, n.corrupt(at)
		}
		at = end
	}
	items, err := c.sorted(n)
	for i := range items {
		d.Entries = append(d.Entries, dumpRecord(n.level, &items[i].record))
	}
	return d, err
}

func dumpRecord(level uint8, r *record) DumpRecord {
	x := DumpRecord{Key: fmt.Sprintf("%q", r.key)}
	switch {
	case level > 0:
		x.Kind, x.Value = "child", r.child().String()
	case r.kind == kindOutOfLine:
		o := decodeOutOfLine(r.value)
		x.Kind, x.Value = "outside", fmt.Sprintf("%d bytes at %v, CRC %#x", o.size, o.at, o.sum)
	default:
		x.Kind, x.Value = "inline", fmt.Sprintf("%.60q", r.value)
	}
	return x
}
