// Command peers measures acquire and release of a lock, side by side: DecLock over TCP, redsync on a Redis server, and the mutex of
// etcd's client. "declock-lab peers" starts what it needs, runs it and shows the result, which is JSON on standard output here.
//
// All are driven by the same loop, in one process, in turns: each of the rounds measures each of them for a short time, and
// what counts is the median of the rounds. Where clients share a lock it is checked that one holds it at a time.
//
// With --bank it measures a bank with its data in Redis under each lock, in processes of clients, which it also kills or stops.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// options are what to measure.
type options struct {
	cluster, etcd, redis string
	single               string // with it, stores are compared
	local                bool   // with single: the memory of both clusters is lent, and measured so, too
	unix                 string // path of the Redis server's socket; empty: it is not known
	clients, rounds      int
	window               time.Duration
}

func run(ctx context.Context) error {
	var o options
	flag.StringVar(&o.cluster, "cluster", "", "address of a cluster with a memory node, as declock.Open takes it")
	flag.StringVar(&o.single, "single", "", "address of a cluster without replicas: compare stores, and not locks; --cluster has two copies then, and --etcd is NAME=ENDPOINT,..;..")
	flag.BoolVar(&o.local, "local", false, "with --single: measure stores by local access, too, which the memory nodes of both clusters must allow")
	flag.StringVar(&o.etcd, "etcd", "", "endpoint of an etcd")
	flag.StringVar(&o.redis, "redis", "", "host:port of a Redis server; none: redis-server is started for the time")
	flag.IntVar(&o.clients, "clients", 32, "clients, where there are many")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each point is measured")
	flag.DurationVar(&o.window, "window", time.Second, "how long each time")
	var bank bankFlags
	var client bankOptions
	flag.StringVar(&bank.locks, "bank", "", "measure a bank under these locks, with semicolons between: "+lockNames())
	flag.IntVar(&bank.runs, "runs", 0, "with --bank: runs in which processes are killed, in place of rates")
	flag.BoolVar(&bank.stops, "stops", false, "with --runs: processes stand still for longer than a lease, and are not killed")
	flag.StringVar(&client.lock, "bank-client", "", "be a process of a bank's clients, under a lock")
	flag.IntVar(&client.first, "bank-first", 0, "with --bank-client: the first of its clients, of all")
	flag.IntVar(&client.customers, "customers", 2, "with --bank-client: customers")
	flag.DurationVar(&client.think, "think", 0, "with --bank-client: the longest pause between what a transaction reads and writes")
	flag.Parse()
	client.cluster, client.etcd, client.redis, client.clients = o.cluster, o.etcd, o.redis, o.clients
	if client.lock != "" {
		return bankClients(ctx, &client)
	}
	if o.cluster == "" || o.etcd == "" || o.clients < 2 || o.rounds < 1 || o.window <= 0 {
		return errors.New("want --cluster and --etcd, two clients, one round and a window at least")
	}
	if o.redis == "" {
		server, err := startRedis(ctx)
		if err != nil {
			return err
		}
		defer server.stop()
		o.redis, o.unix = server.addr, server.unix
	}
	config := map[string]any{"clients": o.clients, "rounds": o.rounds, "window": o.window.String(), "redis": redisVersion(ctx, o.redis)}
	if bank.locks != "" {
		client.redis, bank.rounds, bank.window = o.redis, o.rounds, o.window
		rows, err := measureBank(ctx, &bank, client)
		if err != nil && (ctx.Err() == nil || len(rows) == 0) {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]any{"rows": rows, "config": config})
	}
	connect, loads := connect, loads
	if o.single != "" {
		connect, loads = stores, []load{loads[0], {"many clients", true, false}}
	}
	peers, err := connect(ctx, &o)
	defer func() {
		for _, p := range peers {
			p.close()
		}
	}()
	if err != nil {
		return err
	}
	rows, err := measure(ctx, &o, peers, loads)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"rows": rows, "config": config})
}
