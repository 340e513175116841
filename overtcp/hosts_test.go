package overtcp_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// hosts are network namespaces, each with an address, on a bridge of this process's namespace: links between them can be cut, each way by itself.
type hosts struct {
	t      *testing.T
	prefix string
	addrs  []string
	cuts   map[[2]int]bool
}

// madeHosts counts them: tests run beside each other.
var madeHosts atomic.Int32

// newHosts makes n hosts, or returns nil and says why not.
func newHosts(t *testing.T, n int) *hosts {
	id := os.Getpid() + 1<<22*int(madeHosts.Add(1)) // process numbers are below that
	h := &hosts{t: t, prefix: fmt.Sprintf("dk%x", id), cuts: map[[2]int]bool{}}
	net := fmt.Sprintf("10.%d.%d.", 100+id%100, id/100%256)
	t.Cleanup(func() {
		for i := range n {
			_ = ip("netns", "del", h.name(i)) // its links go with it
		}
		_ = ip("link", "del", h.prefix)
	})
	steps := [][]string{{"link", "add", h.prefix, "type", "bridge"}, {"addr", "add", net + "254/24", "dev", h.prefix}, {"link", "set", h.prefix, "up"}}
	for i := range n {
		name, port := h.name(i), fmt.Sprintf("%sp%d", h.prefix, i)
		h.addrs = append(h.addrs, fmt.Sprint(net, i+1))
		steps = append(steps, []string{"netns", "add", name},
			[]string{"link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name},
			[]string{"link", "set", port, "master", h.prefix, "up"},
			[]string{"-n", name, "addr", "add", h.addrs[i] + "/24", "dev", "eth0"},
			[]string{"-n", name, "link", "set", "eth0", "up"},
			[]string{"-n", name, "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if err := ip(s...); err != nil {
			t.Logf("no network namespaces here (they need root and the kernel's leave), so no link is cut: %v", err)
			return nil
		}
	}
	return h
}

func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (h *hosts) name(i int) string { return fmt.Sprintf("%sh%d", h.prefix, i) }

// behind returns what starts a program on a host.
func (h *hosts) behind(i int) []string {
	if h == nil {
		return nil
	}
	return []string{"ip", "netns", "exec", h.name(i)}
}

// own returns the address on which this process listens.
func (h *hosts) own() string {
	if h == nil {
		return "127.0.0.1:0"
	}
	return h.addrs[0][:strings.LastIndexByte(h.addrs[0], '.')] + ".254:0"
}

// listen returns the address on which a program on a host listens.
func (h *hosts) listen(i int) string {
	if h == nil {
		return "127.0.0.1:0"
	}
	return h.addrs[i] + ":0"
}

// cut drops what one host sends to another, until heal.
func (h *hosts) cut(from, to int) {
	h.t.Helper()
	if err := ip("-n", h.name(from), "route", "add", "blackhole", h.addrs[to]+"/32"); err != nil {
		h.t.Fatal(err)
	}
	h.cuts[[2]int{from, to}] = true
}

func (h *hosts) heal() {
	h.t.Helper()
	for c := range h.cuts {
		if err := ip("-n", h.name(c[0]), "route", "del", "blackhole", h.addrs[c[1]]+"/32"); err != nil {
			h.t.Fatal(err)
		}
	}
	clear(h.cuts)
}
