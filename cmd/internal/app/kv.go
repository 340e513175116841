package app

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/btree"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
	"github.com/urfave/cli/v2"
)

const kvDescription = `Values go out, and come in on standard input, byte for byte. set makes the store if it is not there. The exit code is 1 if the key is not there (for set --add: if it is),
or else as "declock exit-codes" says. Each call joins the cluster for a moment: programs that do much use the library, memcached's protocol or Redis's.

Examples:
   declock kv set --cluster shm:demo user:17 'Ann' --ttl 1h
   tar -c dir | declock kv set --cluster shm:demo archive
   declock kv get --cluster shm:demo user:17
   n=$(declock kv incr --cluster shm:demo visits --initial 1)
   declock kv scan --cluster shm:demo --prefix user: --null | xargs -0 -n 1 echo`

const treeDescription = `Values go out, and come in on standard input, byte for byte. put makes the tree if it is not there. The exit code is 1 if the key is not there,
or else as "declock exit-codes" says.

Examples:
   declock tree put --cluster shm:demo bob 'an address'
   declock tree get --cluster shm:demo bob
   declock tree scan --cluster shm:demo --from b --to c --values --limit 10`

// A shell is what the commands of kv and tree have in common.
type shell struct {
	inspector
	name    string // of the store or tree
	ttl     time.Duration
	add     bool
	by      int64
	initial uint64

	prefix, from, to string
	limit            int
	values, null     bool
	reverse          bool
}

// errMissing: a key is not there; or is, where it must not be.
func errMissing(format string, args ...any) error { return exit.Errorf(exit.Other, format, args...) }

// failedKeys gives an error that has no code one that is not a missing key's.
func failedKeys(err error) error {
	var coded *exit.Error
	if !errors.As(err, &coded) && exit.Of(err) == exit.Other {
		return exit.With(exit.Failed, err)
	}
	return err
}

// sub returns a command of kv or tree.
func (s *shell) sub(kind string, cmd *cli.Command, do func(l *looking, c *cli.Context) error, flags ...cli.Flag) *cli.Command {
	def := map[string]string{"store": "kv", "tree": "tree"}[kind]
	cmd.Flags = append(s.net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), &cli.StringFlag{Name: kind, Usage: "`NAME` of the " + kind, Value: def, Destination: &s.name})
	cmd.Flags = append(cmd.Flags, flags...)
	cmd.Action = func(c *cli.Context) error {
		if kind == "store" && c.NArg() > 0 && c.Args().First() == "" {
			return command.Usage(c, "a key of a store has 1 to %d bytes", objstore.MaxKey)
		}
		return failedKeys(s.look(c, func(l *looking) error {
			err := do(l, c)
			if errors.Is(err, memory.ErrNotFound) || errors.Is(err, objstore.ErrNotFound) || errors.Is(err, btree.ErrNotFound) {
				if key := c.Args().First(); key != "" {
					return errMissing("no key %q in %s %q", key, kind, s.name)
				}
				return exit.With(exit.Other, err)
			}
			return err
		}))
	}
	return cmd
}

// value returns what is to be stored: the second argument, or standard input.
func (s *shell) value(c *cli.Context) ([]byte, error) {
	if c.NArg() > 1 {
		return []byte(c.Args().Get(1)), nil
	}
	return io.ReadAll(s.env.Stdin)
}

// scanFlags are those of both scans.
func (s *shell) scanFlags(more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{&cli.StringFlag{Name: "prefix", Usage: "only keys that begin with `TEXT`", Destination: &s.prefix},
		&cli.BoolFlag{Name: "values", Usage: "print KEY, a tab, VALUE", Destination: &s.values},
		&cli.BoolFlag{Name: "null", Aliases: []string{"0"}, Usage: "end keys and values with a zero byte, in place of tab and newline", Destination: &s.null},
		command.CountFlag(&s.limit, "limit", math.MaxInt, 1, math.MaxInt, "print at most so many keys")}, more...)
}

// print prints an entry, and reports whether more are wanted.
func (s *shell) print(key, value []byte) (more bool, err error) {
	middle, end := "\t", "\n"
	if s.null {
		middle, end = "\x00", "\x00"
	}
	out := append([]byte(nil), key...)
	if s.values {
		out = append(append(out, middle...), value...)
	}
	_, err = s.env.Stdout.Write(append(out, end...))
	s.limit--
	return s.limit > 0, err
}

func kvCommand(env *command.Env) *cli.Command {
	sub := func(cmd *cli.Command, do func(s *shell, l *looking, c *cli.Context) error, flags func(s *shell) []cli.Flag) *cli.Command {
		s := &shell{inspector: inspector{env: env}}
		return s.sub("store", cmd, func(l *looking, c *cli.Context) error { return do(s, l, c) }, flags(s)...)
	}
	none := func(*shell) []cli.Flag { return nil }
	ttl := func(s *shell) cli.Flag {
		return &cli.DurationFlag{Name: "ttl", Usage: "how long the key lives, to the millisecond", DefaultText: "for ever", Destination: &s.ttl}
	}
	return command.Complete(&cli.Command{
		Name: "kv", Usage: "get and set keys of an object store", Category: "use", Description: kvDescription,
		Subcommands: []*cli.Command{
			sub(&cli.Command{Name: "get", ArgsUsage: "KEY", Usage: "print the value of a key"}, (*shell).kvGet, none),
			sub(&cli.Command{Name: "set", ArgsUsage: "KEY [VALUE]", Usage: "store a value, or standard input"}, (*shell).kvSet, func(s *shell) []cli.Flag {
				return []cli.Flag{ttl(s), &cli.BoolFlag{Name: "add", Usage: "only if the key is not there", Destination: &s.add}}
			}),
			sub(&cli.Command{Name: "del", ArgsUsage: "KEY", Usage: "remove a key"}, (*shell).kvDel, none),
			sub(&cli.Command{Name: "incr", ArgsUsage: "KEY", Usage: "add to a decimal value, and print the sum"}, (*shell).kvIncr, func(s *shell) []cli.Flag {
				return []cli.Flag{ttl(s), &cli.Int64Flag{Name: "by", Usage: "what is added, --by=-1 subtracts, not below 0", Value: 1, Destination: &s.by},
					&cli.Uint64Flag{Name: "initial", Usage: "what is stored if the key is not there, for --ttl", DefaultText: "none", Destination: &s.initial}}
			}),
			sub(&cli.Command{Name: "scan", Usage: "print keys, in no order"}, (*shell).kvScan, func(s *shell) []cli.Flag { return s.scanFlags() }),
			watchStatsCommand(env),
		},
	})
}

func (s *shell) kvGet(l *looking, c *cli.Context) error {
	st, err := l.store(s.name)
	if err != nil {
		return err
	}
	v, err := st.Get(l.ctx, []byte(c.Args().First()), nil)
	if err == nil {
		_, err = s.env.Stdout.Write(v)
	}
	return err
}

// made opens the store, and makes it if it is not there.
func (s *shell) made(l *looking) (*declock.Store, error) {
	st, err := l.store(s.name)
	if errors.Is(err, memory.ErrNotFound) {
		return l.cluster.Store(l.ctx, s.name, declock.StoreConfig{CacheEntries: -1})
	}
	return st, err
}

func (s *shell) kvSet(l *looking, c *cli.Context) error {
	v, err := s.value(c)
	if err != nil {
		return err
	}
	st, err := s.made(l)
	if err != nil {
		return err
	}
	key, o := []byte(c.Args().First()), declock.SetOptions{TTL: s.ttl}
	if !s.add {
		return st.Set(l.ctx, key, v, o)
	}
	if err = st.Add(l.ctx, key, v, o); errors.Is(err, objstore.ErrExists) {
		return errMissing("key %q is there", key)
	}
	return err
}

func (s *shell) kvDel(l *looking, c *cli.Context) error {
	st, err := l.store(s.name)
	if err != nil {
		return err
	}
	return st.Delete(l.ctx, []byte(c.Args().First()))
}

func (s *shell) kvIncr(l *looking, c *cli.Context) error {
	key := []byte(c.Args().First())
	open := l.store
	if c.IsSet("initial") {
		open = func(string) (*declock.Store, error) { return s.made(l) }
	}
	st, err := open(s.name)
	if err != nil {
		return err
	}
	for {
		var n uint64
		if s.by < 0 {
			n, err = st.Decr(l.ctx, key, -uint64(s.by))
		} else {
			n, err = st.Incr(l.ctx, key, uint64(s.by))
		}
		if errors.Is(err, objstore.ErrNotFound) && c.IsSet("initial") {
			n = s.initial
			if err = st.Add(l.ctx, key, strconv.AppendUint(nil, n, 10), declock.SetOptions{TTL: s.ttl}); errors.Is(err, objstore.ErrExists) {
				continue // another was faster
			}
		}
		if err == nil {
			_, err = fmt.Fprintln(s.env.Stdout, n)
		}
		return err
	}
}

func (s *shell) kvScan(l *looking, _ *cli.Context) error {
	st, err := l.store(s.name)
	if err != nil {
		return err
	}
	for next := uint64(0); next < st.AllBuckets(); {
		var keys [][]byte
		err := st.Use(l.ctx, func(k *objstore.Client) (err error) {
			next, err = k.Skim(next, mostSkim, func(b *objstore.Brief) bool {
				if bytes.HasPrefix(b.Key, []byte(s.prefix)) {
					keys = append(keys, slices.Clone(b.Key))
				}
				return len(keys) < s.limit
			})
			return err
		})
		if more, err := s.keys(l, st, keys); err != nil || !more {
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// mostSkim bounds the bytes that are read before keys are printed.
const mostSkim = 1 << 20

// keys prints keys of a store, and reports whether more are wanted.
func (s *shell) keys(l *looking, st *declock.Store, keys [][]byte) (more bool, err error) {
	for _, key := range keys {
		var value []byte
		if s.values {
			if value, err = st.Get(l.ctx, key, nil); errors.Is(err, objstore.ErrNotFound) {
				continue // removed since
			} else if err != nil {
				return false, err
			}
		}
		if more, err := s.print(key, value); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

func treeCommand(env *command.Env) *cli.Command {
	sub := func(cmd *cli.Command, do func(s *shell, l *looking, c *cli.Context) error, flags func(s *shell) []cli.Flag) *cli.Command {
		s := &shell{inspector: inspector{env: env}}
		return s.sub("tree", cmd, func(l *looking, c *cli.Context) error { return do(s, l, c) }, flags(s)...)
	}
	none := func(*shell) []cli.Flag { return nil }
	return command.Complete(&cli.Command{
		Name: "tree", Usage: "get and put keys of a tree, in order", Category: "use", Description: treeDescription,
		Subcommands: []*cli.Command{
			sub(&cli.Command{Name: "get", ArgsUsage: "KEY", Usage: "print the value of a key"}, (*shell).treeGet, none),
			sub(&cli.Command{Name: "put", ArgsUsage: "KEY [VALUE]", Usage: "store a value, or standard input"}, (*shell).treePut, none),
			sub(&cli.Command{Name: "del", ArgsUsage: "KEY", Usage: "remove a key"}, (*shell).treeDel, none),
			sub(&cli.Command{Name: "scan", Usage: "print keys in order"}, (*shell).treeScan, func(s *shell) []cli.Flag {
				return s.scanFlags(&cli.StringFlag{Name: "from", Usage: "from this `KEY` on", Destination: &s.from}, &cli.StringFlag{Name: "to", Usage: "up to this `KEY`, inclusively", Destination: &s.to},
					&cli.BoolFlag{Name: "reverse", Usage: "in descending order", Destination: &s.reverse})
			}),
		},
	})
}

func (s *shell) treeGet(l *looking, c *cli.Context) error {
	t, err := l.tree(s.name)
	if err != nil {
		return err
	}
	v, err := t.Get(l.ctx, []byte(c.Args().First()), nil)
	if err == nil {
		_, err = s.env.Stdout.Write(v)
	}
	return err
}

func (s *shell) treePut(l *looking, c *cli.Context) error {
	v, err := s.value(c)
	if err != nil {
		return err
	}
	t, err := l.tree(s.name)
	if errors.Is(err, memory.ErrNotFound) {
		t, err = l.cluster.Tree(l.ctx, s.name, declock.TreeConfig{CacheBytes: -1})
	}
	if err != nil {
		return err
	}
	return t.Put(l.ctx, []byte(c.Args().First()), v)
}

func (s *shell) treeDel(l *looking, c *cli.Context) error {
	t, err := l.tree(s.name)
	if err != nil {
		return err
	}
	return t.Delete(l.ctx, []byte(c.Args().First()))
}

func (s *shell) treeScan(l *looking, c *cli.Context) error {
	if s.prefix != "" && (s.from != "" || s.to != "") {
		return command.Usage(c, "--prefix excludes --from and --to")
	}
	t, err := l.tree(s.name)
	if err != nil {
		return err
	}
	r := t.Prefix([]byte(s.prefix))
	if s.from != "" {
		r.From = []byte(s.from)
	}
	if s.to != "" {
		r.To = []byte(s.to)
	}
	if s.reverse {
		r.From, r.To, r.Descending = r.To, r.From, true
	}
	scan := t.Scan(l.ctx, r)
	for key, value := range scan.All() {
		if more, err := s.print(key, value); err != nil || !more {
			return err
		}
	}
	return scan.Err()
}
