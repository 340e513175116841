package node

import (
	"fmt"
	"slices"
	"strings"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/scheme"
	"github.com/declock/declock/fabric/shm"
	"github.com/urfave/cli/v2"
)

// A Network is the flags by which a command finds a cluster and is let in.
type Network struct {
	Cluster string
	Options scheme.Options
	own     []cli.Flag
	http    *string // of a daemon: where it has its status
	// memcached is where a daemon serves clients of memcached, over TCP and UDP; nil: it does not.
	memcached, memcachedUDP *string
	redis                   *string // where it serves clients of Redis
	// instance is which of the daemons of this host with the same settings this one is: from 1.
	instance int

	Settings settings
}

// daemon makes the flags of a daemon its settings.
func (n *Network) daemon(flags []cli.Flag) []cli.Flag {
	flags = append(flags, &cli.BoolFlag{Name: "print-config", Usage: "check all settings, print them as a configuration file, read certificates, and end", Destination: &n.Settings.print})
	n.Settings.flags, n.Settings.others = flags, nil
	return flags
}

// Flags returns them; usage is that of --cluster.
func (n *Network) Flags(usage string) []cli.Flag {
	str := func(name, usage string, v *string) cli.Flag {
		return &cli.StringFlag{Name: name, Usage: usage, Destination: v}
	}
	n.own = []cli.Flag{
		&cli.StringFlag{Name: "dir", Usage: "shm: directory of clusters, on a memory file system", Value: shm.DefaultDir, Destination: &n.Options.Dir},
		str("run-dir", "directory of control sockets of clusters over a network (default: $XDG_RUNTIME_DIR/declock, or /run/declock)", &n.Options.RunDir),
		str("listen", "`HOST:PORT` that other nodes reach this one at (default: all addresses, with tcp and --insecure the loopback; port 7490 of memory nodes over tcp, 7480 over verbs, else any)", &n.Options.Listen),
		str("advertise", "`HOST:PORT` that other nodes use to reach this one, if it is not the one that it listens at", &n.Options.Advertise),
		str("tls-ca", "`FILE` with the certificates of the CA that signs those of nodes: mutual TLS", &n.Options.TLS.CA),
		str("tls-cert", "`FILE` with the own certificate", &n.Options.TLS.Cert),
		str("tls-key", "`FILE` with its key", &n.Options.TLS.Key),
		str("secret-file", "verbs: `FILE` with the secret that all nodes share, instead of TLS", &n.Options.SecretFile),
		&cli.BoolFlag{Name: "insecure", Usage: "let in any program that can reach this node; see --listen", Destination: &n.Options.Insecure},
		&cli.DurationFlag{Name: "dead-after", Usage: "a node that is silent for so long is declared dead; shm: declock-mn kills a process that does not run for so long", DefaultText: "5s; shm: never", Destination: &n.Options.DeadAfter},
		&cli.DurationFlag{Name: "silent-after", Usage: "tcp: of a compute node: a memory node with replicas that does not answer an operation for so long is replaced, unless it says that it lives", DefaultText: "dead-after", Destination: &n.Options.SilentAfter},
		&cli.BoolFlag{Name: "local", Usage: "tcp: of a memory node: lend the memory to compute nodes of this machine and user, whose CPUs then reach it without the network; of a compute node: take what is lent", Destination: &n.Options.Local},
		str("etcd-ca", "tcp, verbs: `FILE` with the certificates of the CA that signs that of etcd: https", &n.Options.EtcdTLS.CA),
		str("etcd-cert", "tcp, verbs: `FILE` with the certificate for etcd, if it asks for one", &n.Options.EtcdTLS.Cert),
		str("etcd-key", "tcp, verbs: `FILE` with its key", &n.Options.EtcdTLS.Key),
		str("etcd-user", "tcp, verbs: user of etcd, if it has authentication enabled", &n.Options.EtcdUser),
		str("etcd-password-file", "tcp, verbs: `FILE` with its password", &n.Options.EtcdPasswordFile),
		str("device", "verbs: RDMA device (default: the best)", &n.Options.Device),
		&cli.IntFlag{Name: "port", Usage: "verbs: port of the RDMA device", DefaultText: "the best", Destination: &n.Options.Port},
		str("gid", "verbs: index or IP address of the RDMA port's GID (default: the best)", &n.Options.GID),
		&cli.IntFlag{Name: "queue-pairs", Usage: "verbs: connections to each memory node", DefaultText: "4", Destination: &n.Options.QueuePairs},
	}
	all := append([]cli.Flag{str("cluster", usage, &n.Cluster), str("config", "`FILE` with settings, \"name: value\", named as the flags; flags go before it", &n.Settings.file)}, n.own...)
	n.Settings.flags, n.Settings.others = all, daemonSettings // a tool takes what it needs from a daemon's file
	return all
}

// Parse returns the cluster that was given. Flags that mean nothing for it are refused.
func (n *Network) Parse(c *cli.Context) (scheme.Cluster, error) {
	if err := n.Settings.Load(c); err != nil {
		return nil, err
	}
	if n.Cluster == "" {
		return nil, command.Usage(c, "which cluster? Give --cluster %s; \"declock status\" lists those of this machine", scheme.Forms())
	}
	if err := n.shiftPorts(); err != nil {
		return nil, command.Usage(c, "%v", err)
	}
	if n.http != nil {
		n.Options.HTTP = *n.http
	}
	cl, err := scheme.Parse(n.Cluster, n.Options)
	if err != nil {
		return nil, err
	}
	return cl, checkFlags(c, cl)
}

// shiftPorts gives a daemon the ports of its instance.
func (n *Network) shiftPorts() (err error) {
	if n.http == nil {
		return nil // a tool, which takes any port
	}
	type port struct {
		what string
		at   *string
	}
	ports := []port{{"listen", &n.Options.Listen}, {"advertise", &n.Options.Advertise}, {"http", n.http}}
	if n.memcached != nil && !strings.Contains(*n.memcached, "/") {
		ports = append(ports, port{"memcached", n.memcached})
	}
	if n.redis != nil && !strings.Contains(*n.redis, "/") {
		ports = append(ports, port{"redis", n.redis})
	}
	if n.memcachedUDP != nil {
		ports = append(ports, port{"memcached-udp", n.memcachedUDP})
	}
	for _, a := range ports {
		if *a.at, err = shiftPort(a.what, *a.at, n.instance); err != nil {
			return err
		}
	}
	return nil
}

// checkFlags refuses flags that mean nothing for a cluster.
func checkFlags(c *cli.Context, cl scheme.Cluster) error {
	names := c.FlagNames()
	slices.Sort(names)
	for _, name := range names {
		if !c.IsSet(name) {
			continue
		}
		if err := scheme.CheckFlag(cl, name); err != nil {
			return err
		}
	}
	return nil
}

// Args returns the flags that were given, for another process.
func (n *Network) Args(c *cli.Context) []string {
	var args []string
	for _, f := range n.own {
		name := f.Names()[0]
		switch _, isBool := f.(*cli.BoolFlag); {
		case !c.IsSet(name):
		case isBool:
			args = append(args, fmt.Sprintf("--%s=%v", name, c.Value(name)))
		default:
			args = append(args, "--"+name, fmt.Sprint(c.Value(name)))
		}
	}
	return args
}
