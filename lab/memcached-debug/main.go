// Command memcached-debug is a server of front/memcached with the command line of memcached, and a cluster of its own: what memcached's own
// tests take for memcached (scripts/memcached-test).
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/front/memcached"
)

// exUsage is the exit code of memcached for wrong options.
const exUsage = 64

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "memcached-debug:", err)
		os.Exit(exUsage)
	}
}

const help = `memcached ` + memcached.Version + ` (front/memcached)
-p, --port=<num>          TCP port to listen on (default: 11211)
-U, --udp-port=<num>      UDP port to listen on (default: 0, off)
-s, --unix-socket=<file>  UNIX socket to listen on (disables network support)
-Z, --enable-ssl          enable TLS/SSL
-Y, --auth-file=<file>    ASCII authentication
`

// options are those of memcached's that count.
type options struct {
	port, udp             string
	socket, address       string
	memory                uint64 // MiB
	noEvict, daemon, help bool
	pidFile               string
	tls                   bool
	o                     map[string]string // of -o
	server                memcached.Options
}

// withValue are the letters of options that have a value.
const withValue = "pUsalmcPItRbBnfDouYei"

// parse reads a command line as getopt does.
func parse(args []string) (o options, err error) {
	o = options{memory: 64, o: map[string]string{}, server: memcached.Options{MaxItem: 1 << 20, MaxConns: 1024, Debug: true, Settings: defaults()}}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if len(arg) < 2 || arg[0] != '-' {
			return o, fmt.Errorf("unexpected %q", arg)
		}
		for i := 1; i < len(arg); i++ {
			letter, value := arg[i], ""
			if strings.IndexByte(withValue, letter) >= 0 {
				if value = arg[i+1:]; value == "" {
					if len(args) == 0 {
						return o, fmt.Errorf("-%c wants a value", letter)
					}
					value, args = args[0], args[1:]
				}
				i = len(arg)
			}
			if err := o.set(letter, value); err != nil {
				return o, err
			}
		}
	}
	return o, nil
}

// defaults are settings of memcached that this server has not, as memcached reports them.
func defaults() map[string]string {
	return map[string]string{"tcpport": "11211", "udpport": "0", "inter": "NULL", "domain_socket": "NULL", "tcp_backlog": "1024",
		"binding_protocol": "auto-negotiate", "lru_crawler": "yes", "slab_reassign": "yes", "shutdown_command": "no", "cas_enabled": "yes"}
}

func (o *options) set(letter byte, value string) (err error) {
	s := &o.server
	positive := func() (n int) {
		if n, err = strconv.Atoi(value); err == nil && n <= 0 {
			err = fmt.Errorf("-%c must be greater than 0", letter)
		}
		return n
	}
	switch letter {
	case 'p':
		o.port, s.Settings["tcpport"] = value, value
	case 'U':
		o.udp, s.Settings["udpport"] = value, value
	case 's':
		o.socket, s.Settings["domain_socket"] = value, value
	case 'l':
		o.address, s.Settings["inter"] = value, value
	case 'm':
		o.memory = uint64(positive())
	case 'M':
		o.noEvict = true
	case 'c':
		s.MaxConns = positive()
	case 't', 'R':
		positive()
	case 'b':
		s.Settings["tcp_backlog"] = value
	case 'B':
		names := map[string]string{"auto": "auto-negotiate", "ascii": "ascii", "binary": "binary"}
		if value != "auto" {
			s.Protocol = value
		}
		if s.Settings["binding_protocol"] = names[value]; names[value] == "" {
			err = fmt.Errorf("invalid value for binding protocol: %s", value)
		}
	case 'I':
		s.MaxItem, err = size(value, o.memory)
	case 'C':
		s.Settings["cas_enabled"] = "no"
	case 'd':
		o.daemon = true
	case 'P':
		o.pidFile = value
	case 'h':
		o.help = true
	case 'F':
		s.NoFlush = true
	case 'X':
		s.NoDump = true
	case 'A':
		s.Settings["shutdown_command"] = "yes"
		s.Shutdown = func() { _ = syscall.Kill(os.Getpid(), syscall.SIGINT) }
	case 'Y':
		s.AuthFile = value
	case 'Z':
		o.tls = true
	case 'o':
		err = o.extended(value)
	case 'v', 'k', 'W', 'r', 'L', 'a', 'u', 'n', 'f', 'D', 'i', 'e':
	default:
		err = fmt.Errorf("invalid option -%c", letter)
	}
	return err
}

// extended reads options of -o.
func (o *options) extended(list string) error {
	for part := range strings.SplitSeq(list, ",") {
		name, value, _ := strings.Cut(part, "=")
		o.o[name] = value
		switch name {
		case "idle_timeout":
			n, err := strconv.Atoi(value)
			if err != nil {
				return err
			}
			o.server.IdleTimeout = time.Duration(n) * time.Second
		case "no_modern":
			o.server.Settings["lru_crawler"] = "no"
		case "lru_crawler":
			o.server.Settings["lru_crawler"] = "yes"
		case "ext_path", "proxy_config", "drop_privileges":
			return fmt.Errorf("illegal suboption %q", part)
		}
	}
	return nil
}

// size reads an item size.
func size(text string, memory uint64) (int, error) {
	digits, unit := strings.TrimRight(text, "kKmM"), 1
	switch {
	case strings.HasSuffix(strings.ToLower(text), "k"):
		unit = 1 << 10
	case strings.HasSuffix(strings.ToLower(text), "m"):
		unit = 1 << 20
	}
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil:
		return 0, err
	case n*unit < 1024:
		return 0, errors.New("item max size cannot be less than 1024 bytes")
	case uint64(n*unit) > memory<<20/2:
		return 0, errors.New("cannot set item size limit higher than 1/2 of memory max")
	}
	return n * unit, nil
}

func run(args []string) error {
	o, err := parse(args)
	if err != nil || o.help {
		fmt.Print(help)
		return err
	}
	if o.daemon && os.Getenv("MEMCACHED_DEBUG_CHILD") == "" {
		return background(args)
	}
	if o.pidFile != "" {
		if err := os.WriteFile(o.pidFile, fmt.Appendln(nil, os.Getpid()), 0o644); err != nil {
			return err
		}
		defer os.Remove(o.pidFile)
	}
	if err := o.withTLS(); err != nil {
		return err
	}
	cluster, err := declock.Open(context.Background(), "shm:", declock.WithMemory(o.memory<<20+128<<20))
	if err != nil {
		return err
	}
	defer cluster.Close()
	s, err := memcached.New(o.server)
	if err != nil {
		return err
	}
	if err := s.Attach(cluster, declock.StoreConfig{Objects: 20_000, MemoryLimit: o.memory << 20, NoEvict: o.noEvict}); err != nil {
		return err
	}
	if err := o.listen(s); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM, syscall.SIGUSR1)
	<-stop
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.Shutdown(ctx)
	return nil
}

// background runs this program again, as a daemon.
func background(args []string) error {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), "MEMCACHED_DEBUG_CHILD=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd.Start()
}

// listen opens the sockets.
func (o *options) listen(s *memcached.Server) error {
	if o.socket != "" {
		_ = os.Remove(o.socket) // of a server that was killed
		l, err := net.Listen("unix", o.socket)
		if err == nil {
			go s.Serve(l)
		}
		return err
	}
	if o.udp == "" {
		o.udp = "0"
	}
	if o.port == "" {
		if o.port = "11211"; o.udp != "0" {
			o.port = o.udp
		}
	}
	var ports strings.Builder
	if o.port != "0" {
		for address := range strings.SplitSeq(o.address, ",") {
			address, plain := strings.CutPrefix(address, "notls:")
			if !strings.Contains(address, ":") {
				address += ":" + ephemeral(o.port)
			}
			l, err := net.Listen("tcp4", address)
			if err != nil {
				return err
			}
			fmt.Fprintf(&ports, "TCP INET: %d\n", l.Addr().(*net.TCPAddr).Port)
			if plain {
				go s.ServePlain(l)
			} else {
				go s.Serve(l)
			}
		}
	}
	if o.udp != "0" {
		address, _, _ := strings.Cut(strings.TrimPrefix(o.address, "notls:"), ":")
		l, err := net.ListenPacket("udp4", address+":"+ephemeral(o.udp))
		if err != nil {
			return err
		}
		fmt.Fprintf(&ports, "UDP INET: %d\n", l.LocalAddr().(*net.UDPAddr).Port)
		go s.ServePacket(l)
	}
	if name := os.Getenv("MEMCACHED_PORT_FILENAME"); name != "" {
		if err := os.WriteFile(name+".new", []byte(ports.String()), 0o644); err != nil {
			return err
		}
		return os.Rename(name+".new", name)
	}
	return nil
}

func ephemeral(port string) string {
	if port == "-1" {
		return "0"
	}
	return port
}
