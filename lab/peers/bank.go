package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A bank is SmallBank's customers in Redis, each with a checking and a savings account. A transaction reads the accounts of its customers, and writes them and the log of
// its client: under the locks of the customers, and in one step of Redis. So a client that is killed has done a transaction or has not, and its log says which.
type bank struct {
	data      *redis.Client
	customers int
	// fenced: accounts keep the fencing token of their last reader, and refuse the writes of holders before it.
	fenced bool
	// halves: a transaction writes one customer after the other, each in a step of its own. No lock makes that safe: it shows that the check finds what is lost.
	halves bool
}

// opening is what is in each account in the beginning.
const opening = 10_000

func (b *bank) key(customer int) string { return "customer:" + strconv.Itoa(customer) }

func logKey(client int) string { return "log:" + strconv.Itoa(client) }

// Kinds of transactions. A balance changes nothing.
const (
	balance = iota
	deposit
	transfer
	amalgamate // all money of a customer goes to another
)

// A transaction is between customers, of which a balance and a deposit have one.
type transaction struct {
	kind, from, to int
	amount         int64
}

// draw returns the n-th transaction of a client, which is always the same: the log says how many of them are done, and so which.
// Some 15 in 100 read only, as in ShiftLock's paper.
func (b *bank) draw(client int, n uint64) transaction {
	r := rand.New(rand.NewPCG(uint64(client), n))
	t := transaction{kind: transfer, from: r.IntN(b.customers), to: r.IntN(b.customers - 1), amount: 1 + r.Int64N(100)}
	if t.to >= t.from {
		t.to++
	}
	switch d := r.IntN(100); {
	case d < 15:
		t.kind = balance
	case d < 30:
		t.kind = deposit
	case d < 40:
		t.kind = amalgamate
	}
	return t
}

// customers returns whose locks the transaction takes, in their order.
func (t *transaction) customers() []int {
	if t.kind == balance || t.kind == deposit {
		return []int{t.from}
	}
	return []int{min(t.from, t.to), max(t.from, t.to)}
}

// accounts are those of a customer.
type accounts struct{ checking, savings int64 }

// apply executes the transaction on the accounts of its customers. It reports whether they have changed.
func (t *transaction) apply(of map[int]*accounts) bool {
	from, to := of[t.from], of[t.to]
	switch t.kind {
	case deposit:
		from.checking += t.amount
	case transfer:
		if from.checking < t.amount {
			return false
		}
		from.checking, to.checking = from.checking-t.amount, to.checking+t.amount
	case amalgamate:
		to.checking += from.checking + from.savings
		*from = accounts{}
	default:
		return false
	}
	return true
}

// create fills an empty Redis.
func (b *bank) create(ctx context.Context) error {
	if err := b.data.FlushAll(ctx).Err(); err != nil {
		return err
	}
	_, err := b.data.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range b.customers {
			p.HSet(ctx, b.key(i), "checking", opening, "savings", opening)
		}
		return nil
	})
	return err
}

// missing returns how much money is less than what there was in the beginning and has been paid in since.
func (b *bank) missing(ctx context.Context, clients int) (int64, error) {
	rows := make([]*redis.SliceCmd, b.customers)
	logs := make([]*redis.StringCmd, clients)
	_, err := b.data.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for i := range rows {
			rows[i] = p.HMGet(ctx, b.key(i), "checking", "savings")
		}
		for i := range logs {
			logs[i] = p.Get(ctx, logKey(i))
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	missing := int64(b.customers) * 2 * opening
	for i, log := range logs {
		done, err := log.Uint64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, err
		}
		for n := range done {
			if t := b.draw(i, n+1); t.kind == deposit {
				missing += t.amount
			}
		}
	}
	for _, row := range rows {
		var a accounts
		if err := a.parse(row.Val()); err != nil {
			return 0, err
		}
		missing -= a.checking + a.savings
	}
	return missing, nil
}

func (a *accounts) parse(fields []any) (err error) {
	for i, to := range []*int64{&a.checking, &a.savings} {
		s, ok := "", len(fields) == 2
		if ok {
			s, ok = fields[i].(string)
		}
		if !ok {
			return fmt.Errorf("no account: %v", fields)
		}
		if *to, err = strconv.ParseInt(s, 10, 64); err != nil {
			return err
		}
	}
	return nil
}

// errRefused is what a holder gets whose lock another has had since.
var errRefused = errors.New("refused: another client has had the lock since")

// Accounts of customers are given as KEYS, and the log of the client behind them; ARGV begins with the tokens, all of one length. A read raises the tokens of the accounts: a holder
// before this one writes no more, also if this one has not written yet.
var (
	fencedRead = redis.NewScript(`
local n = #KEYS - 1
for i = 1, n do
  local seen = redis.call('HGET', KEYS[i], 'token')
  if seen and seen > ARGV[i] then return redis.error_reply('STALE') end
end
local out = {redis.call('GET', KEYS[n + 1]) or '0'}
for i = 1, n do
  redis.call('HSET', KEYS[i], 'token', ARGV[i])
  local a = redis.call('HMGET', KEYS[i], 'checking', 'savings')
  out[2 * i], out[2 * i + 1] = a[1], a[2]
end
return out`)
	fencedWrite = redis.NewScript(`
local n = #KEYS - 1
for i = 1, n do
  if redis.call('HGET', KEYS[i], 'token') ~= ARGV[i] then return redis.error_reply('STALE') end
end
for i = 1, n do
  redis.call('HSET', KEYS[i], 'checking', ARGV[n + 2 * i - 1], 'savings', ARGV[n + 2 * i])
end
return redis.call('SET', KEYS[n + 1], ARGV[3 * n + 1])`)
)

// A teller executes the transactions of a client.
type teller struct {
	*bank
	client int
	tokens []any // of the locks that it holds
	think  func()
}

// execute executes the n-th transaction of the client, whose locks it holds, unless that is done already.
func (t *teller) execute(ctx context.Context, n uint64, x *transaction) error {
	list := x.customers()
	of, done, err := t.read(ctx, list, x.kind != balance)
	if err != nil || done >= n {
		return err
	}
	t.think()
	if !x.apply(of) {
		return nil
	}
	return t.write(ctx, list, of, n)
}

func (t *teller) keys(list []int) (keys []string) {
	for _, c := range list {
		keys = append(keys, t.key(c))
	}
	return append(keys, logKey(t.client))
}

// read returns the accounts of customers, and the last transaction in the client's log.
func (t *teller) read(ctx context.Context, list []int, exclusive bool) (of map[int]*accounts, done uint64, err error) {
	var log string
	var fields []any
	if t.fenced && exclusive {
		out, err := fencedRead.Run(ctx, t.data, t.keys(list), t.tokens...).Slice()
		if err != nil {
			return nil, 0, stale(err)
		}
		log, _ = out[0].(string)
		fields = out[1:]
	} else {
		rows := make([]*redis.SliceCmd, len(list))
		var last *redis.StringCmd
		_, err := t.data.TxPipelined(ctx, func(p redis.Pipeliner) error {
			for i, c := range list {
				rows[i] = p.HMGet(ctx, t.key(c), "checking", "savings")
			}
			last = p.Get(ctx, logKey(t.client))
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, 0, err
		}
		for _, row := range rows {
			fields = append(fields, row.Val()...)
		}
		log = last.Val()
	}
	if log != "" {
		if done, err = strconv.ParseUint(log, 10, 64); err != nil {
			return nil, 0, err
		}
	}
	of = map[int]*accounts{}
	for part := range slices.Chunk(fields, 2) {
		c := list[len(of)]
		of[c] = new(accounts)
		if err := of[c].parse(part); err != nil {
			return nil, 0, err
		}
	}
	return of, done, nil
}

// write writes the accounts of customers, and the client's log.
func (t *teller) write(ctx context.Context, list []int, of map[int]*accounts, n uint64) error {
	if t.fenced {
		args := slices.Clone(t.tokens)
		for _, c := range list {
			args = append(args, of[c].checking, of[c].savings)
		}
		return stale(fencedWrite.Run(ctx, t.data, t.keys(list), append(args, n)...).Err())
	}
	set := func(p redis.Pipeliner, c int) {
		p.HSet(ctx, t.key(c), "checking", of[c].checking, "savings", of[c].savings)
	}
	if t.halves {
		for _, c := range list[1:] {
			if _, err := t.data.Pipelined(ctx, func(p redis.Pipeliner) error { set(p, c); return nil }); err != nil {
				return err
			}
			t.think()
		}
		list = list[:1]
	}
	_, err := t.data.TxPipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range list {
			set(p, c)
		}
		p.Set(ctx, logKey(t.client), n, 0)
		return nil
	})
	return err
}

// stale returns an error of a script as errRefused where it is that.
func stale(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "STALE") {
		return errRefused
	}
	return err
}
