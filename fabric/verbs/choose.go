package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sysfsRoot is where the kernel lists RDMA devices.
const sysfsRoot = "/sys/class/infiniband"

// A Candidate is one end of an RDMA network that this machine has.
type Candidate struct {
	Device   string
	Port     int
	GIDIndex int
	GID      netip.Addr
	Type     string // "InfiniBand", "RoCE v2", "RoCE v1"
	Netdev   string // of RoCE
	LID      uint16 // of InfiniBand
	// Why is the reason why it cannot be used; empty if it can.
	Why  string
	rank int
}

func (c Candidate) String() string {
	s := c.Device
	if c.Port != 0 {
		s += fmt.Sprintf(" port %d", c.Port)
	}
	if c.GID.IsValid() {
		s += fmt.Sprintf(" GID %d %v", c.GIDIndex, c.GID.Unmap())
	}
	if c.Type != "" {
		s += " " + c.Type
	}
	if c.Netdev != "" {
		s += " on " + c.Netdev
	}
	if c.Why != "" {
		s += ": " + c.Why
	}
	return s
}

// Devices lists the ends of RDMA networks of this machine, the best first.
func Devices() ([]Candidate, error) { return listDevices(os.DirFS(sysfsRoot)) }

// devices is Devices. Tests list once: Soft-RoCE has 1024 places for GIDs, which takes the guest a second.
var devices = Devices

// listDevices reads what the kernel says in a tree like /sys/class/infiniband.
func listDevices(tree fs.FS) ([]Candidate, error) {
	names, err := fs.ReadDir(tree, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Candidate
	for _, d := range names {
		all = append(all, devicePorts(tree, d.Name())...)
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return b.rank - a.rank })
	return all, nil
}

func devicePorts(tree fs.FS, device string) []Candidate {
	if kind := readLine(tree, device+"/node_type"); strings.Contains(kind, "RNIC") {
		return []Candidate{{Device: device, Type: "iWARP", Why: "iWARP is not supported"}}
	} else if kind != "" && !strings.Contains(kind, "CA") {
		return []Candidate{{Device: device, Type: kind, Why: "has no reliable connections (EFA, usNIC)"}}
	}
	ports, err := fs.ReadDir(tree, device+"/ports")
	if err != nil || len(ports) == 0 {
		return []Candidate{{Device: device, Why: "has no ports"}}
	}
	var all []Candidate
	for _, p := range ports {
		if n, err := strconv.Atoi(p.Name()); err == nil {
			all = append(all, portEnds(tree, device, n)...)
		}
	}
	return all
}

func portEnds(tree fs.FS, device string, port int) []Candidate {
	dir := fmt.Sprintf("%s/ports/%d", device, port)
	base := Candidate{Device: device, Port: port}
	state := readLine(tree, dir+"/state")
	if !strings.Contains(state, "ACTIVE") || strings.Contains(state, "DEFER") {
		base.Why = fmt.Sprintf("the port is not active (%s)", state)
	}
	gids, err := fs.ReadDir(tree, dir+"/gids")
	if err != nil {
		base.Why = "has no GIDs"
		return []Candidate{base}
	}
	infiniband := readLine(tree, dir+"/link_layer") == "InfiniBand"
	lid, _ := strconv.ParseUint(readLine(tree, dir+"/lid"), 0, 16)
	var all []Candidate
	for _, g := range gids {
		c := base
		c.GIDIndex, err = strconv.Atoi(g.Name())
		if err != nil {
			continue
		}
		// Most places of the table are empty; reading one fails or gives zero.
		c.GID, err = netip.ParseAddr(readLine(tree, dir+"/gids/"+g.Name()))
		if err != nil || c.GID.IsUnspecified() {
			continue
		}
		if infiniband {
			c.Type, c.LID = "InfiniBand", uint16(lid)
		} else {
			c.Netdev = readLine(tree, dir+"/gid_attrs/ndevs/"+g.Name())
			c.Type = "RoCE v1"
			if t := readLine(tree, dir+"/gid_attrs/types/"+g.Name()); strings.Contains(t, "v2") {
				c.Type = "RoCE v2"
			}
		}
		c.rank = rankOf(&c)
		all = append(all, c)
	}
	if len(all) == 0 {
		if base.Why == "" {
			base.Why = "has no GID: give its network interface an address"
		}
		all = append(all, base)
	}
	slices.SortStableFunc(all, func(a, b Candidate) int { return a.GIDIndex - b.GIDIndex })
	return all
}

// rankOf orders ends: what can be routed before what cannot.
func rankOf(c *Candidate) int {
	if c.Why != "" {
		return 0
	}
	ip := c.GID.Unmap()
	switch {
	case c.Type == "InfiniBand":
		return 7
	case c.Type == "RoCE v1":
		return 1
	case ip.IsLinkLocalUnicast():
		return 2
	case ip.IsLoopback():
		return 3
	case ip.Is4():
		return 6
	}
	return 5
}

// choose picks the best end that the options allow, or says what there was.
func choose(all []Candidate, o *Options) (Candidate, error) {
	for i := range all {
		c := &all[i]
		if c.Why == "" {
			c.Why = refuse(c, o)
		}
		if c.Why == "" {
			return *c, nil
		}
	}
	return Candidate{}, noDevice(all, o)
}

// refuse says why the options do not allow an end.
func refuse(c *Candidate, o *Options) string {
	ip, err := netip.ParseAddr(o.GID)
	switch {
	case o.Device != "" && o.Device != c.Device:
		return "device " + o.Device + " is wanted"
	case o.Port != 0 && o.Port != c.Port:
		return fmt.Sprintf("port %d is wanted", o.Port)
	case o.GID != "" && err == nil && ip.Unmap() != c.GID.Unmap(),
		o.GID != "" && err != nil && o.GID != strconv.Itoa(c.GIDIndex):
		return "GID " + o.GID + " is wanted"
	}
	return ""
}

func noDevice(all []Candidate, o *Options) error {
	if len(all) == 0 {
		return fmt.Errorf("%w: this machine has none (%s is empty); load the driver of the NIC, or try Soft-RoCE: "+
			"modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0", ErrNoDevice, sysfsRoot)
	}
	var b strings.Builder
	for _, c := range all {
		b.WriteString("\n\t" + c.String())
	}
	return fmt.Errorf("%w; considered:%s", ErrNoDevice, b.String())
}

func readLine(tree fs.FS, path string) string {
	b, err := fs.ReadFile(tree, path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
