package app

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/cmd/internal/units"
	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/urfave/cli/v2"
)

const inspectDescription = `It joins a running cluster as a compute node for a moment, and reads without locks: what changes meanwhile may look odd. roots lists the locks,
stores and trees by name; bucket and key read a store (--store), node reads a tree (--tree), header reads a lock at its address.

Examples:
   declock inspect superblock --cluster shm:demo
   declock inspect roots --cluster shm:demo
   declock inspect header mn0+0x14000 --cluster shm:demo    a lock: its header and queue
   declock inspect key user:17 --cluster shm:demo --store replay
   declock inspect bucket 0 --cluster shm:demo --store replay --mem 0
   declock inspect node user:17 --cluster shm:demo --tree users`

// inspector is what the commands of inspect have in common.
type inspector struct {
	env   *command.Env
	net   node.Network
	at    scheme.Cluster
	store string
	tree  string
	level int
	mem   fabric.MemID
	json  bool
}

func inspectCommand(env *command.Env) *cli.Command {
	sub := func(name, args, usage string, do func(*inspector, *looking, string) error) *cli.Command {
		i := &inspector{env: env}
		flags := append(i.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), command.JSONFlag(&i.json))
		if name == "bucket" || name == "key" {
			flags = append(flags, &cli.StringFlag{Name: "store", Usage: "name of the object store", Value: "replay", Destination: &i.store})
		}
		if name == "bucket" {
			flags = append(flags, command.CountFlag(&i.mem, "mem", 0, 0, scheme.MaxMN-1, "number of the memory node"))
		}
		if name == "node" {
			flags = append(flags, &cli.StringFlag{Name: "tree", Usage: "name of the tree", Destination: &i.tree},
				command.CountFlag(&i.level, "level", 0, 0, 15, "level of the node: 0 is the leaf"))
		}
		return &cli.Command{Name: name, Usage: usage, ArgsUsage: args, Flags: flags, Action: func(c *cli.Context) error {
			return i.look(c, func(l *looking) error { return do(i, l, c.Args().First()) })
		}}
	}
	return command.Complete(&cli.Command{
		Name: "inspect", Usage: "look into the memory of a cluster: locks, object stores, trees", Category: "look", Description: inspectDescription,
		Subcommands: []*cli.Command{
			sub("superblock", "", "how the memory nodes are formatted", (*inspector).superblock),
			sub("roots", "", "the root directories: names of locks, stores and trees, and their memory", (*inspector).roots),
			sub("header", "ADDR", "a lock: its header and queue entries", (*inspector).header),
			sub("bucket", "INDEX", "a bucket of an object store", (*inspector).bucket),
			sub("key", "KEY", "where a key of an object store lives, and its object", (*inspector).key),
			sub("node", "KEY", "the node of a tree to which a key belongs", (*inspector).treeNode),
		},
	})
}

// looking is a membership for the time of a look.
type looking struct {
	ctx     context.Context
	cluster *declock.Cluster
	session *declock.Session
}

// look joins the cluster for the time of do.
func (i *inspector) look(c *cli.Context, do func(*looking) error) (err error) {
	if i.at, err = i.net.Parse(c); err != nil {
		return err
	}
	cluster, err := daemon.Open(c.Context, i.at)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := cluster.Close(); err == nil {
			err = cerr
		}
	}()
	s, err := cluster.Session()
	if err != nil {
		return err
	}
	return do(&looking{ctx: c.Context, cluster: cluster, session: s})
}

// emit prints rows as JSON, or calls text.
func (i *inspector) emit(what string, rows []any, text func(w io.Writer)) error {
	r := report.Report{Experiment: "inspect " + what, Fabric: i.at.Scheme(), Config: map[string]any{"cluster": i.at.Address()}, Rows: rows}
	return i.env.Print(i.json, r, text)
}

func (i *inspector) superblock(l *looking, _ string) error {
	list := daemon.DescribeMemory(l.cluster)
	for k := range list {
		list[k].Entries = nil
	}
	return i.emit("superblock", report.Rows(list), func(w io.Writer) {
		t := &report.Table{Head: []string{"memory node", "uuid", "epoch", "size", "used", "lock queue", "layout"}}
		for _, m := range list {
			t.Add(m.Node, m.UUID, fmt.Sprint(m.Epoch), units.Bytes(m.Size), units.Bytes(m.Used), fmt.Sprintf("%d entries", m.LockCapacity), fmt.Sprint(m.Layout))
		}
		t.Write(w)
	})
}

func (i *inspector) roots(l *looking, _ string) error {
	list := daemon.DescribeMemory(l.cluster)
	var rows []any
	for _, m := range list {
		rows = append(rows, report.Rows(m.Entries)...)
	}
	return i.emit("roots", rows, func(w io.Writer) {
		if len(rows) == 0 {
			fmt.Fprintln(w, "the root directories are empty")
		}
		writeRoots(w, list)
	})
}

// parseAddr reads an address as fabric.Addr writes it: mn0+0x14000, or mn0.1+0x14000 in the memory after the first.
func parseAddr(s string) (fabric.Addr, error) {
	mem, offset, ok := strings.Cut(strings.TrimPrefix(s, "mn"), "+")
	mem, gen, later := strings.Cut(mem, ".")
	if !later {
		gen = "0"
	}
	id, err1 := strconv.ParseUint(mem, 10, 8)
	which, err2 := strconv.ParseUint(gen, 10, 8)
	off, err3 := strconv.ParseUint(offset, 0, 64)
	if !ok || !strings.HasPrefix(s, "mn") || errors.Join(err1, err2, err3) != nil || off > fabric.MaxOffset {
		return 0, exit.Errorf(exit.Usage, "%q is no address in memory: want mn0+0x14000, with memory nodes from 0 to %d", s, fabric.MaxMem)
	}
	return fabric.At(fabric.MemID(id), off).In(fabric.Generation(which)), nil
}

// A lockRow is a lock in the output of inspect header.
type lockRow struct {
	Lock    string     `json:"lock"`
	Header  string     `json:"header"` // hexadecimal
	Head    uint64     `json:"qhead"`
	Size    uint64     `json:"qsize"`
	Writers uint64     `json:"wcnt"`
	ResetID uint8      `json:"reset_id"`
	State   string     `json:"state"`
	Queue   []queueRow `json:"queue"`
}

type queueRow struct {
	Slot    uint64 `json:"slot"`
	Entry   string `json:"entry"` // hexadecimal
	Text    string `json:"text"`
	Meaning string `json:"meaning"`
}

func (i *inspector) header(l *looking, arg string) error {
	a, err := parseAddr(arg)
	if err != nil {
		return err
	}
	y := l.cluster.Node().Layout()
	p := l.session.Port()
	buf := p.Alloc(int(y.Lock().Size))
	defer p.Free(buf)
	ops := [1]fabric.Op{fabric.Read(a, buf)}
	if !slices.ContainsFunc(l.cluster.Node().Fabric().Memory(), func(m fabric.Memory) bool { return m.ID == a.MN() }) {
		return exit.Errorf(exit.NotFound, "%s has no memory node %v", i.at.Address(), a.MN())
	}
	if uint64(a)%8 != 0 {
		return exit.Errorf(exit.Usage, "%v is no lock: a lock lies on a multiple of 8 bytes", a)
	}
	if err := p.Do(ops[:]); err != nil {
		return err
	}
	row := decodeLock(y, a, buf)
	return i.emit("header", []any{row}, func(w io.Writer) {
		fmt.Fprintf(w, "lock %s: %s\n  header %s: qhead %d, qsize %d, wcnt %d, reset %d\n", row.Lock, row.State, row.Header, row.Head, row.Size, row.Writers, row.ResetID)
		t := &report.Table{Head: []string{"slot", "entry", "decoded", "meaning"}}
		for _, q := range row.Queue {
			t.Add(fmt.Sprint(q.Slot), q.Entry, q.Text, q.Meaning)
		}
		t.Write(w)
	})
}

// decodeLock decodes a lock's bytes.
func decodeLock(y cql.Layout, a fabric.Addr, b []byte) *lockRow {
	h := cql.Header(binary.LittleEndian.Uint64(b))
	row := &lockRow{
		Lock: a.String(), Header: fmt.Sprintf("%016x", uint64(h)), Head: y.Head(h), Size: y.Size(h), Writers: y.Writers(h), ResetID: uint8(h.ResetID()),
	}
	switch {
	case row.ResetID != 0:
		row.State = fmt.Sprintf("being reset by cn%d", row.ResetID)
	case row.Size == 0:
		row.State = "free"
	case row.Size > y.Capacity() || row.Writers > row.Size:
		row.State = "CORRUPT, or no lock: more participants than the queue has entries"
	default:
		row.State = fmt.Sprintf("%d hold it or wait, %d of them exclusively", row.Size, row.Writers)
	}
	for slot := range y.Capacity() {
		e := cql.Entry(binary.LittleEndian.Uint64(b[8+8*slot:]))
		q := queueRow{Slot: slot, Entry: fmt.Sprintf("%016x", uint64(e)), Text: "never written"}
		if e != 0 {
			q.Text = e.String()
		}
		// The index of this slot within the queue's present range, if it is in it.
		if d := y.Slot(slot - row.Head); d < row.Size && row.Size <= y.Capacity() {
			index := row.Head + d
			switch {
			case d == 0:
				q.Meaning = fmt.Sprintf("index %d, the head: holds the lock (its entry need not be written)", index)
			case e.Version() == y.Version(index):
				q.Meaning = fmt.Sprintf("index %d, %d behind the head", index, d)
			default:
				q.Meaning = fmt.Sprintf("index %d, %d behind the head: not written, got the lock at once or is about to write", index, d)
			}
		}
		row.Queue = append(row.Queue, q)
	}
	return row
}

// openStore opens a store that is there; it makes none.
func (l *looking) openStore(name string) (*objstore.Client, error) {
	st, err := l.store(name)
	if err != nil {
		return nil, err
	}
	return st.Client(l.session)
}

// store opens an object store that is there.
func (l *looking) store(name string) (*declock.Store, error) {
	st, err := l.cluster.Store(l.ctx, name, declock.StoreConfig{Existing: true, CacheEntries: -1})
	if err != nil {
		return nil, fmt.Errorf("object store %q: %w", name, err)
	}
	return st, nil
}

func (i *inspector) bucket(l *looking, arg string) error {
	index, err := strconv.ParseUint(arg, 0, 64)
	if err != nil {
		return exit.Errorf(exit.Usage, "%q is no number of a bucket", arg)
	}
	c, err := l.openStore(i.store)
	if err != nil {
		return err
	}
	if n, _ := c.Store().Buckets(); index >= n {
		return exit.Errorf(exit.NotFound, "store %q has buckets 0 to %d on each memory node", i.store, n-1)
	}
	return i.dump(c, i.mem, index, nil)
}

func (i *inspector) key(l *looking, arg string) error {
	if len(arg) == 0 || len(arg) > objstore.MaxKey {
		return fmt.Errorf("%w: %d bytes, want 1 to %d", objstore.ErrKeySize, len(arg), objstore.MaxKey)
	}
	c, err := l.openStore(i.store)
	if err != nil {
		return err
	}
	mem, index := c.Store().Locate([]byte(arg))
	return i.dump(c, mem, index, &arg)
}

// dump prints a bucket; with a key, of its objects that one's only.
func (i *inspector) dump(c *objstore.Client, mem fabric.MemID, index uint64, key *string) error {
	d, err := c.Inspect(mem, index)
	if err != nil {
		return err
	}
	if key != nil {
		d.Slots = slices.DeleteFunc(d.Slots, func(s objstore.SlotDump) bool { return s.Err != nil || s.Key != *key })
		if len(d.Slots) == 0 {
			return exit.Errorf(exit.NotFound, "store %q has no object with key %q; its bucket is %d of %v", i.store, *key, index, mem)
		}
	}
	return i.emit("bucket", []any{d}, func(w io.Writer) { fmt.Fprint(w, d) })
}

// openTree opens a tree that is there; it makes none.
func (l *looking) openTree(name string) (*btree.Client, error) {
	t, err := l.tree(name)
	if err != nil {
		return nil, err
	}
	return t.Client(l.session)
}

// tree opens a tree that is there.
func (l *looking) tree(name string) (*declock.Tree, error) {
	if _, err := l.cluster.Node().Regions()[0].Lookup(l.session.Port(), name, memory.KindTree); err != nil {
		return nil, fmt.Errorf("tree %q: %w", name, err)
	}
	return l.cluster.Tree(l.ctx, name, declock.TreeConfig{CacheBytes: -1})
}

// treeNode prints the node that a key belongs to.
func (i *inspector) treeNode(l *looking, key string) error {
	if i.tree == "" {
		return exit.Errorf(exit.Usage, "node: --tree NAME is missing: which tree?")
	}
	c, err := l.openTree(i.tree)
	if err != nil {
		return err
	}
	defer c.Close()
	d, err := c.Inspect([]byte(key), i.level)
	if err != nil {
		return err
	}
	return i.emit("node", []any{d}, func(w io.Writer) { fmt.Fprint(w, d) })
}
