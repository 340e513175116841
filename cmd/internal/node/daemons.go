package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/control"
	"github.com/declock/declock/cmd/internal/daemon"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/tcp"
	"github.com/declock/declock/hier"
	"github.com/urfave/cli/v2"
)

// Hidden returns the hidden commands with which package fleet runs the program that it is part of.
func Hidden(env *command.Env) []*cli.Command {
	return []*cli.Command{mnCommand(env), cnCommand(env)}
}

// MN returns the application declock-mn.
func MN(env *command.Env) *cli.App {
	a := command.New(env, "declock-mn", "a memory node: lends its memory to a cluster, and sleeps", mnDescription)
	return asApp(a, mnCommand(env))
}

// CN returns the application declock-cn.
func CN(env *command.Env) *cli.App {
	a := command.New(env, "declock-cn", "a compute node: clients of a cluster, and the agent of their locks", cnDescription)
	return asApp(a, cnCommand(env))
}

// asApp makes a command the whole application.
func asApp(a *cli.App, c *cli.Command) *cli.App {
	a.Flags, a.Action, a.HideHelpCommand = c.Flags, c.Action, true
	return a
}

const mnDescription = `It registers memory, formats it, prints one line when it can be used, and sleeps until
SIGINT or SIGTERM. Clients do all the work: a memory node over shared memory or RDMA that is stopped (SIGSTOP) serves as fast as before.

Examples:
   declock-mn --cluster shm:demo --size 1GiB
   declock-mn --cluster shm:demo --mem 1 --size 1GiB         a second memory node
   declock-mn --cluster shm:demo --keep --size 4GiB          memory that outlives the process
   declock-mn --cluster shm:demo --path /dev/dax0.0          a device
   declock-mn --cluster tcp://10.0.0.1:2379/demo --size 16GiB --tls-ca ca.pem --tls-cert mn0.pem --tls-key mn0.key
                                                             over any network; etcd at 10.0.0.1
   declock-mn --cluster tcp://10.0.0.1:2379/demo --mem 1 --replicas 2 --label rack-b --size 1GiB --insecure --listen 10.0.0.2:7490
                                                             locks that survive a memory node
   declock-mn --cluster verbs://10.0.0.1:2379/demo --secret-file /etc/declock/secret --size 64GiB
                                                             over RDMA; etcd at 10.0.0.1`

const cnDescription = `It joins a cluster, runs the agent of its locks, and serves replays and questions on a control
socket of this machine ("declock replay --cluster", "declock status"), until SIGINT or SIGTERM.

Examples:
   declock-cn --cluster shm:demo
   declock-cn --cluster shm:demo --lock declock-tf --procs 2
   declock-cn --cluster tcp://10.0.0.1:2379/demo --tls-ca ca.pem --tls-cert cn1.pem --tls-key cn1.key
   declock-cn --cluster verbs://10.0.0.1:2379/demo --secret-file /etc/declock/secret`

func mnCommand(env *command.Env) *cli.Command {
	var cfg daemon.MNConfig
	var net Network
	var how running
	m := &cfg.Memory
	return command.Complete(&cli.Command{
		Name: control.MNCommand, Hidden: true, Usage: "a memory node", Description: mnDescription,
		Flags: net.daemon(slices.Concat(net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), []cli.Flag{
			command.CountFlag(&m.ID, "mem", 0, 0, scheme.MaxMN-1, "number of the memory node in the cluster"),
			command.SizeFlag(&m.Size, "size", "1GiB", "memory to lend, as 64MiB, 1GiB, 1e9"),
			&cli.BoolFlag{Name: "overcommit", Usage: "take --size even if the machine, or the control group, does not have so much", Destination: &cfg.Overcommit},
			command.CountFlag(&m.MaxCN, "max-cn", 0, 0, int(fabric.MaxCN), fmt.Sprintf("compute nodes that the cluster may have; 0 is what it has, or %d", scheme.DefaultMaxCN)),
			command.CountFlag(&cfg.LockQueue, "lock-queue", 0, 0, command.MaxLockQueue, "entries of a lock's queue, 8 bytes each: with --lock cql as many as clients; 0 is what other memory nodes have, or twice --max-cn (24 more, if that is less), a power of two"),
			command.HugeFlag(&m.Huge),
			&cli.StringFlag{Name: "path", Usage: "shm, tcp: `FILE` or device that holds the memory, absolute; what is in it is served again, and it is never removed", Destination: &m.Path},
			command.CountFlag(&m.Replicas, "replicas", 1, 1, tcp.MaxReplicas, "tcp: copies of the memory, on other memory nodes: when this one fails, locks, object stores and trees go on there"),
			command.CountFlag(&m.MinInSync, "min-in-sync", 1, 1, tcp.MaxReplicas, "tcp: copies that must be in sync where data of this memory node's number is changed: with fewer, changes wait, and fail in the end"),
			&cli.StringFlag{Name: "label", Usage: "tcp: `NAME` of what fails with this memory node, such as its rack: copies are put on memory nodes with other labels, if there are any", Destination: &m.Label},
			command.SizeFlag(&m.Room, "backup-room", "", "tcp: memory for copies of other memory nodes, taken when it is touched; with --replicas it is 2 * (replicas - 1) * size by default, else none"),
			waitFlag(&cfg.Wait),
			&cli.BoolFlag{Name: "leave", Usage: "tcp, verbs: a stop (SIGINT, SIGTERM) takes it out of the cluster for good, which then does not expect it back; not for what is restarted", Destination: &cfg.Leave},
			&cli.BoolFlag{Name: "keep", Usage: "shm: memory outlives the process, and is served again by the next; --path implies it", Destination: &m.Keep},
		}, how.flags())),
		Action: func(c *cli.Context) error {
			prepare := func(cl scheme.Cluster) (scheme.Role, error) {
				cfg.Cluster = cl
				if m.Path != "" && !filepath.IsAbs(m.Path) {
					return nil, command.Usage(c, "--path %q must be absolute", m.Path)
				}
				if m.MinInSync > m.Replicas {
					return nil, command.Usage(c, "--min-in-sync %d is more than --replicas %d", m.MinInSync, m.Replicas)
				}
				if (m.Keep || m.Path != "") && !c.IsSet("size") {
					m.Size = 0 // what is there decides
				}
				return scheme.MemoryRole(m.ID), nil
			}
			return how.daemon(c, env, &net, prepare, func(ctx context.Context, o daemon.Options) error {
				cfg.Options = o
				return daemon.RunMN(ctx, cfg, env.Stdout)
			})
		},
	})
}

func cnCommand(env *command.Env) *cli.Command {
	var cfg daemon.CNConfig
	var net Network
	var how running
	return command.Complete(&cli.Command{
		Name: control.CNCommand, Hidden: true, Usage: "a compute node", Description: cnDescription,
		Flags: net.daemon(slices.Concat(net.Flags("`ADDRESS` of the cluster, as "+scheme.Forms()), memcachedFlags(&cfg.Memcached), redisFlags(&cfg.Redis), []cli.Flag{
			command.LockFlag(&cfg.Policy),
			command.SizeFlag(&cfg.CopyRate, "copy-rate", "0", "at most so much a second is copied to new backups of memory nodes with replicas, by the compute node that does so; 0: as fast as it goes"),
			command.CountFlag(&cfg.Procs, "procs", 0, 0, 1024, "threads that compute at a time (GOMAXPROCS); 0 is one for each processor, and two with memcached or redis"),
			command.CountFlag(&net.instance, "instance", 1, 1, 1000, fmt.Sprintf("number of this compute node among those of its host that have the same settings: ports of listen, advertise, http, memcached and redis are %d higher for each before it", portStep)),
			waitFlag(&cfg.Wait),
		}, how.flags())),
		Action: func(c *cli.Context) error {
			net.memcached, net.memcachedUDP, net.redis = &cfg.Memcached.Listen, &cfg.Memcached.UDP, &cfg.Redis.Listen
			prepare := func(cl scheme.Cluster) (scheme.Role, error) {
				cfg.Cluster = cl
				_, err := hier.ParsePolicy(cfg.Policy)
				return scheme.ComputeRole, errors.Join(err, cfg.Memcached.Check(), cfg.Redis.Check())
			}
			return how.daemon(c, env, &net, prepare, func(ctx context.Context, o daemon.Options) error {
				cfg.Options = o
				return daemon.RunCN(ctx, cfg, env.Stdout)
			})
		},
	})
}

// memcachedFlags are how clients of memcached are served.
func memcachedFlags(m *daemon.Memcached) []cli.Flag {
	str := func(name, usage string, v *string) cli.Flag {
		return &cli.StringFlag{Name: "memcached" + name, Usage: usage, Destination: v}
	}
	return []cli.Flag{
		str("", "`HOST:PORT`, or path of a unix socket, at which clients of memcached are served", &m.Listen),
		&cli.StringFlag{Name: "memcached-store", Usage: "`NAME` of the store that they share, with those of other compute nodes", Value: "memcached", Destination: &m.Store},
		str("-udp", "`HOST:PORT` at which they are served over UDP; whose sender nothing proves", &m.UDP),
		str("-auth", "`FILE` with lines of USER:PASSWORD: a client says first who it is, in the ASCII protocol", &m.Users),
		str("-tls-cert", "`FILE` with the certificate that they see: TLS", &m.TLS.Cert),
		str("-tls-key", "`FILE` with its key", &m.TLS.Key),
		str("-tls-ca", "`FILE` with the certificates of the CA that signs theirs: they must have one", &m.TLS.CA),
		command.CountFlag(&m.MaxConns, "memcached-max-conns", 1024, 1, 1<<20, "connections of theirs"),
		&cli.DurationFlag{Name: "memcached-idle-timeout", Usage: "close connections that have no request for so long", DefaultText: "never", Destination: &m.IdleTimeout},
	}
}

// redisFlags are how clients of Redis are served.
func redisFlags(r *daemon.Redis) []cli.Flag {
	str := func(name, usage string, v *string) cli.Flag {
		return &cli.StringFlag{Name: "redis" + name, Usage: usage, Destination: v}
	}
	return []cli.Flag{
		str("", "`HOST:PORT`, or path of a unix socket, at which clients of Redis are served", &r.Listen),
		&cli.StringFlag{Name: "redis-store", Usage: "`NAME` of the store that they share, with those of other compute nodes; that of memcached's clients may be shared, too", Value: "redis", Destination: &r.Store},
		str("-auth", "`FILE` with lines of USER:PASSWORD: a client says first who it is; AUTH PASSWORD is of the user default", &r.Users),
		str("-tls-cert", "`FILE` with the certificate that they see: TLS", &r.TLS.Cert),
		str("-tls-key", "`FILE` with its key", &r.TLS.Key),
		str("-tls-ca", "`FILE` with the certificates of the CA that signs theirs: they must have one", &r.TLS.CA),
		command.CountFlag(&r.MaxConns, "redis-max-conns", 10000, 1, 1<<20, "connections of theirs"),
		command.SizeFlag(&r.MaxValue, "redis-max-value", "1MiB", "their largest value, if the store is made by this compute node; at most 512MiB"),
		&cli.BoolFlag{Name: "redis-no-evict", Usage: "refuse to store when memory is full, and evict nothing: for locks; the same on all compute nodes", Destination: &r.NoEvict},
		&cli.DurationFlag{Name: "redis-idle-timeout", Usage: "close connections that have no request for so long", DefaultText: "never", Destination: &r.IdleTimeout},
	}
}

func waitFlag(to *time.Duration) cli.Flag {
	return &cli.DurationFlag{Name: "wait", Usage: "how long to wait for a cluster, or its etcd, that is not there yet", Destination: to}
}

// ParentContext ends when the parent has closed the pipe that is
// standard input: the kernel does that when the parent ends. Ctrl-C reaches all processes of a
// terminal, and SIGTERM all of a service: what to do about it is the parent's decision.
func ParentContext(stdin io.Reader) (context.Context, context.CancelFunc) {
	// When the parent has gone, writes fail: that must not end the cleaning up.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	return ctx, cancel
}
