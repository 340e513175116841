package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// bankOptions are what a process of the bank's clients is started with.
type bankOptions struct {
	cluster, etcd, redis string
	lock                 string // a name of bankLocks
	first, clients       int    // its clients, of all
	customers            int
	think                time.Duration // at most, between what a transaction reads and what it writes
}

// A bankTally is what clients have done.
type bankTally struct {
	Took    []int64 `json:"took_us"` // by transaction, with its locks
	Lost    int     `json:"lost"`    // locks that were no more the client's when it released them
	Refused int     `json:"refused"` // transactions that began again, for their tokens were old
}

func (t *bankTally) add(more bankTally) {
	t.Took = append(t.Took, more.Took...)
	t.Lost += more.Lost
	t.Refused += more.Refused
}

// bankClients are the clients of one process: they say "ready", begin at a line on standard input, and print their bankTally when that has ended.
func bankClients(ctx context.Context, o *bankOptions) error {
	at := slices.IndexFunc(bankLocks, func(l bankLock) bool { return l.name == o.lock })
	if at < 0 {
		return fmt.Errorf("no lock %q", o.lock)
	}
	l := &bankLocks[at]
	open, end, err := l.open(ctx, o, l.lease)
	if err != nil {
		return err
	}
	defer end()
	data := redis.NewClient(&redis.Options{Addr: o.redis, PoolSize: o.clients, MinIdleConns: o.clients, MaxRetries: -1})
	defer data.Close()
	b := &bank{data: data, customers: o.customers, fenced: l.fenced, halves: l.halves}
	desks := make([]*desk, o.clients)
	for i := range desks {
		d := &desk{teller: &teller{bank: b, client: o.first + i, think: o.pause}}
		if d.keeper, err = open(ctx); err == nil {
			defer d.keeper.close()
			_, d.done, err = d.read(ctx, []int{0}, false) // the connection, and what an incarnation before this one has done
		}
		if err != nil {
			return err
		}
		desks[i] = d
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = in.ReadString('\n') // until the supervisor ends
		stop()
	}()
	var all sync.WaitGroup
	errs := make([]error, len(desks))
	for i, d := range desks {
		all.Go(func() {
			if errs[i] = d.work(ctx); errs[i] != nil {
				stop()
			}
		})
	}
	all.Wait()
	var total bankTally
	for _, d := range desks {
		total.add(d.bankTally)
	}
	return errors.Join(errors.Join(errs...), json.NewEncoder(os.Stdout).Encode(total))
}

func (o *bankOptions) pause() {
	if o.think > 0 {
		time.Sleep(rand.N(o.think))
	}
}

// A desk is a client with its locks.
type desk struct {
	*teller
	keeper
	bankTally
	done uint64
}

// work does transactions until the context ends.
func (d *desk) work(ctx context.Context) error {
	for n := d.done + 1; ctx.Err() == nil; n++ {
		x := d.draw(d.client, n)
		began := time.Now()
		for {
			err := d.try(ctx, n, &x)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil
			}
			if !errors.Is(err, errRefused) {
				return fmt.Errorf("client %d: %w", d.client, err)
			}
			d.Refused++
		}
		d.Took = append(d.Took, time.Since(began).Microseconds())
	}
	return nil
}

// try takes the locks of a transaction, executes it and releases them. What has begun under the locks goes on when the context ends.
func (d *desk) try(ctx context.Context, n uint64, x *transaction) (err error) {
	var held []custody
	defer func() {
		for _, c := range held {
			if c.unlock(context.WithoutCancel(ctx)) != nil {
				d.Lost++
			}
		}
	}()
	d.tokens = d.tokens[:0]
	for _, customer := range x.customers() {
		c, err := d.lock(ctx, customer, x.kind == balance)
		if err != nil {
			return err
		}
		held = append(held, c)
		d.tokens = append(d.tokens, fmt.Sprintf("%020d", c.token)) // as text, tokens compare as numbers
	}
	return d.execute(context.WithoutCancel(ctx), n, x)
}

// lockNames are the names of bankLocks.
func lockNames() string {
	names := make([]string, len(bankLocks))
	for i, l := range bankLocks {
		names[i] = l.name
	}
	return strings.Join(names, "; ")
}
