package lab

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/report"
	"github.com/declock/declock/traces/memcached"
	"github.com/urfave/cli/v2"
)

const benchMemcachedDescription = `Servers of memcached's protocol, side by side, with one load generator: gets of one key, gets of many keys, and sets, in the ASCII
protocol. The keys are stored first. Servers are measured in turns, and medians of the rounds are printed; keys are uniform.

Examples:
   memcached -p 11311 &
   declock up --cns 1 --memcached 127.0.0.1:11211 &
   declock-lab bench memcached --target memcached://127.0.0.1:11311 --target memcached://127.0.0.1:11211`

// mcOptions are the flags of bench memcached.
type mcOptions struct {
	targets                           cli.StringSlice
	conns, keys, size, rounds, perGet int
	window                            time.Duration
	json                              bool
}

func benchMemcachedCommand(env *command.Env) *cli.Command {
	o := new(mcOptions)
	return &cli.Command{
		Name: "memcached", Usage: "servers of memcached's protocol beside each other", Description: benchMemcachedDescription,
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "target", Usage: "a server, memcached://`HOST:PORT`; once for each", Destination: &o.targets},
			command.CountFlag(&o.conns, "conns", 32, 1, 10_000, "connections"),
			command.CountFlag(&o.keys, "keys", 10_000, 1, 1<<24, "distinct keys"),
			command.CountFlag(&o.perGet, "keys-per-get", 100, 2, 10_000, "keys of a get of many"),
			command.CountFlag(&o.size, "size", 100, 1, 1<<20, "bytes of a value"),
			command.CountFlag(&o.rounds, "rounds", 5, 1, 1000, "how often each is measured"),
			&cli.DurationFlag{Name: "window", Usage: "how long each time", Value: time.Second, Destination: &o.window},
			command.JSONFlag(&o.json),
		},
		Action: func(c *cli.Context) error { return o.run(c.Context, env) },
	}
}

// An mcRow is one kind of request to one server, as medians of its rounds.
type mcRow struct {
	Target  string  `json:"target"`
	Request string  `json:"request"`
	Rate    float64 `json:"requests_per_s"`
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

func (o *mcOptions) run(ctx context.Context, env *command.Env) error {
	targets := o.targets.Value()
	if len(targets) == 0 || o.window <= 0 {
		return exit.Errorf(exit.Usage, "want --target, once for each server, and a --window that is not 0")
	}
	kinds := []struct {
		name string
		keys int // of a get; 0: a set
	}{{"get", 1}, {fmt.Sprintf("get of %d keys", o.perGet), o.perGet}, {"set", 0}}
	for _, t := range targets {
		if err := o.fill(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	rounds := make([][]mcRow, len(targets)*len(kinds))
	line := command.NewLine(env.Stderr)
	defer line.Clear()
	for round := range o.rounds {
		for k, kind := range kinds { // the servers one after the other, request by request
			for t, target := range targets {
				line.Show(true, fmt.Sprintf("round %d of %d", round+1, o.rounds), target+" "+kind.name)
				r, err := o.measure(ctx, target, kind.keys)
				if ctx.Err() != nil {
					return interrupted(ctx.Err())
				}
				if err != nil {
					return fmt.Errorf("%s: %w", target, err)
				}
				r.Target, r.Request = target, kind.name
				of := &rounds[t*len(kinds)+k]
				*of = append(*of, r)
			}
		}
	}
	table := &report.Table{Head: []string{"server", "request", "requests/s", "p50 us", "p99 us"}}
	var rows []mcRow
	for _, list := range rounds {
		r := medians(list)
		rows = append(rows, r)
		table.Add(r.Target, r.Request, strconv.FormatFloat(r.Rate, 'f', 0, 64), strconv.FormatFloat(r.P50, 'f', 1, 64), strconv.FormatFloat(r.P99, 'f', 0, 64))
	}
	rep := report.Report{Experiment: "memcached", Fabric: "real", Config: map[string]any{"conns": o.conns, "keys": o.keys, "size": o.size, "rounds": o.rounds}, Rows: report.Rows(rows)}
	return env.Print(o.json, rep, table.Write)
}

func mcDial(ctx context.Context, target string) (net.Conn, error) {
	network, address, err := memcached.ParseTarget(target)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

func mcSet(b []byte, key int, value []byte) []byte {
	b = fmt.Appendf(b, "set bench%d 0 0 %d\r\n", key, len(value))
	return append(append(b, value...), "\r\n"...)
}

// fill stores all keys.
func (o *mcOptions) fill(ctx context.Context, target string) error {
	c, err := mcDial(ctx, target)
	if err != nil {
		return exit.With(exit.Unavailable, err)
	}
	defer c.Close()
	in, value := bufio.NewReader(c), bytes.Repeat([]byte("x"), o.size)
	for key := range o.keys {
		if _, err := c.Write(mcSet(nil, key, value)); err != nil {
			return err
		}
		answer, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if answer != "STORED\r\n" {
			return fmt.Errorf("a set is answered with %q", answer)
		}
	}
	return nil
}

// measure has all connections send requests, each when the one before is answered.
func (o *mcOptions) measure(ctx context.Context, target string, perGet int) (mcRow, error) {
	var mu sync.Mutex
	var first error
	all := hdrhistogram.New(1, int64(time.Minute), 3)
	begun := time.Now()
	var wg sync.WaitGroup
	for range o.conns {
		wg.Go(func() {
			h, err := o.connection(ctx, target, perGet, begun.Add(o.window))
			mu.Lock()
			defer mu.Unlock()
			if err != nil && first == nil {
				first = err
			} else if err == nil {
				all.Merge(h)
			}
		})
	}
	wg.Wait()
	us := func(q float64) float64 { return float64(all.ValueAtQuantile(q)) / 1e3 }
	return mcRow{Rate: float64(all.TotalCount()) / time.Since(begun).Seconds(), P50: us(50), P99: us(99)}, first
}

func (o *mcOptions) connection(ctx context.Context, target string, perGet int, until time.Time) (*hdrhistogram.Histogram, error) {
	c, err := mcDial(ctx, target)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h, in, value := hdrhistogram.New(1, int64(time.Minute), 3), bufio.NewReaderSize(c, 64<<10), bytes.Repeat([]byte("y"), o.size)
	answer := 2*perGet + 1 // lines: one of each key, one of each value, and END
	var request []byte
	for began := time.Now(); began.Before(until) && ctx.Err() == nil; began = time.Now() {
		if request = request[:0]; perGet == 0 {
			request = mcSet(request, rand.IntN(o.keys), value)
		} else {
			request = append(request, "get"...)
			for range perGet {
				request = strconv.AppendInt(append(request, " bench"...), int64(rand.IntN(o.keys)), 10)
			}
			request = append(request, "\r\n"...)
		}
		if _, err := c.Write(request); err != nil {
			return nil, err
		}
		lines := 0
		for last := false; !last; lines++ {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return nil, err
			}
			last = string(line) == "END\r\n" || string(line) == "STORED\r\n"
			if lines == 0 && !last && !bytes.HasPrefix(line, []byte("VALUE ")) {
				return nil, fmt.Errorf("a request is answered with %q", line)
			}
		}
		if lines != answer {
			return nil, fmt.Errorf("a get of %d keys is answered with %d lines: has the server room for all keys?", perGet, lines)
		}
		_ = h.RecordValue(int64(time.Since(began)))
	}
	return h, nil
}
