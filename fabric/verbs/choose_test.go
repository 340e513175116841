package verbs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/declock/declock/coordinator"
)

// listings are what the kernel says on machines of several kinds.
var listings = map[string]string{
	// Two ports of InfiniBand, one of them down.
	"mlx5_0/node_type":          "1: CA\n",
	"mlx5_0/ports/1/state":      "4: ACTIVE\n",
	"mlx5_0/ports/1/link_layer": "InfiniBand\n",
	"mlx5_0/ports/1/lid":        "0x1f\n",
	"mlx5_0/ports/1/gids/0":     "fe80:0000:0000:0000:0c42:a103:0065:8e2a\n",
	"mlx5_0/ports/1/gids/1":     "0000:0000:0000:0000:0000:0000:0000:0000\n",
	"mlx5_0/ports/2/state":      "1: DOWN\n",
	"mlx5_0/ports/2/link_layer": "InfiniBand\n",
	"mlx5_0/ports/2/gids/0":     "fe80:0000:0000:0000:0c42:a103:0065:8e2b\n",

	// RoCE: versions 1 and 2 of a link-local, an IPv4 and an IPv6 address.
	"mlx5_1/node_type":                     "1: CA\n",
	"mlx5_1/ports/1/state":                 "4: ACTIVE\n",
	"mlx5_1/ports/1/link_layer":            "Ethernet\n",
	"mlx5_1/ports/1/lid":                   "0x0\n",
	"mlx5_1/ports/1/gids/0":                "fe80:0000:0000:0000:0e42:a1ff:fe65:8e2a\n",
	"mlx5_1/ports/1/gid_attrs/types/0":     "IB/RoCE v1\n",
	"mlx5_1/ports/1/gids/1":                "fe80:0000:0000:0000:0e42:a1ff:fe65:8e2a\n",
	"mlx5_1/ports/1/gid_attrs/types/1":     "RoCE v2\n",
	"mlx5_1/ports/1/gids/2":                "2001:0db8:0000:0000:0000:0000:0000:0007\n",
	"mlx5_1/ports/1/gid_attrs/types/2":     "RoCE v2\n",
	"mlx5_1/ports/1/gids/3":                "0000:0000:0000:0000:0000:ffff:c000:0207\n",
	"mlx5_1/ports/1/gid_attrs/types/3":     "RoCE v2\n",
	"mlx5_1/ports/1/gid_attrs/ndevs/3":     "eth2\n",
	"mlx5_1/ports/1/gids/4":                "0000:0000:0000:0000:0000:ffff:c000:0207\n",
	"mlx5_1/ports/1/gid_attrs/types/4":     "IB/RoCE v1\n",
	"rxe0/node_type":                       "1: CA\n",
	"rxe0/ports/1/state":                   "4: ACTIVE\n",
	"rxe0/ports/1/link_layer":              "Ethernet\n",
	"rxe0/ports/1/gids/0":                  "fe80:0000:0000:0000:0200:00ff:fe00:0000\n",
	"rxe0/ports/1/gid_attrs/types/0":       "RoCE v2\n",
	"rxe0/ports/1/gids/1":                  "0000:0000:0000:0000:0000:ffff:7f00:0001\n",
	"rxe0/ports/1/gid_attrs/types/1":       "RoCE v2\n",
	"siw0/node_type":                       "4: RNIC\n",
	"efa_0/node_type":                      "6: unspecified\n",
	"mlx5_2/node_type":                     "1: CA\n",
	"mlx5_2/ports/1/state":                 "4: ACTIVE\n",
	"mlx5_2/ports/1/link_layer":            "Ethernet\n",
	"mlx5_2/ports/1/gids/0":                "0000:0000:0000:0000:0000:0000:0000:0000\n",
	"mlx5_2/ports/1/gid_attrs/types/.keep": "",
}

// machine has some of the devices.
func machine(names ...string) fstest.MapFS {
	fs := fstest.MapFS{}
	for path, text := range listings {
		for _, n := range names {
			if strings.HasPrefix(path, n+"/") {
				fs[path] = &fstest.MapFile{Data: []byte(text)}
			}
		}
	}
	return fs
}

func TestTheBestEndIsChosen(t *testing.T) {
	for _, x := range []struct {
		devices string
		o       Options
		want    string
	}{
		{"rxe0", Options{}, "rxe0 port 1 GID 1 127.0.0.1 RoCE v2"},
		{"mlx5_1", Options{}, "mlx5_1 port 1 GID 3 192.0.2.7 RoCE v2 on eth2"},
		{"mlx5_1 mlx5_0 rxe0", Options{}, "mlx5_0 port 1 GID 0 fe80::c42:a103:65:8e2a InfiniBand"},
		{"mlx5_1 mlx5_0 rxe0", Options{Device: "rxe0"}, "rxe0 port 1 GID 1 127.0.0.1 RoCE v2"},
		{"mlx5_1", Options{GID: "2001:db8::7"}, "mlx5_1 port 1 GID 2 2001:db8::7 RoCE v2"},
		{"mlx5_1", Options{GID: "192.0.2.7"}, "mlx5_1 port 1 GID 3 192.0.2.7 RoCE v2 on eth2"},
		{"mlx5_1", Options{GID: "4"}, "mlx5_1 port 1 GID 4 192.0.2.7 RoCE v1"},
		{"mlx5_1", Options{GID: "1"}, "mlx5_1 port 1 GID 1 fe80::e42:a1ff:fe65:8e2a RoCE v2"},
		{"mlx5_1 siw0 efa_0 mlx5_2", Options{Port: 1}, "mlx5_1 port 1 GID 3 192.0.2.7 RoCE v2 on eth2"},
	} {
		all, err := listDevices(machine(strings.Fields(x.devices)...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := choose(all, &x.o)
		if err != nil || got.String() != x.want {
			t.Errorf("%s with %q %d %q: %v, %v; want %s", x.devices, x.o.Device, x.o.Port, x.o.GID, got, err, x.want)
		}
	}
}

func TestWhatWasConsideredIsSaid(t *testing.T) {
	all, err := listDevices(machine("mlx5_0", "siw0", "efa_0", "mlx5_2", "rxe0"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = choose(all, &Options{Device: "mlx5_0", Port: 2})
	if !errors.Is(err, ErrNoDevice) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"mlx5_0 port 1 GID 0 fe80::c42:a103:65:8e2a InfiniBand: port 2 is wanted",
		"mlx5_0 port 2 GID 0 fe80::c42:a103:65:8e2b InfiniBand: the port is not active (1: DOWN)",
		"siw0 iWARP: iWARP is not supported",
		"efa_0 6: unspecified: has no reliable connections (EFA, usNIC)",
		"mlx5_2 port 1: has no GID: give its network interface an address",
		"rxe0 port 1 GID 1 127.0.0.1 RoCE v2: device mlx5_0 is wanted",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestNoDeviceSaysWhatToDo(t *testing.T) {
	all, err := listDevices(fstest.MapFS{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = choose(all, &Options{}); !errors.Is(err, ErrNoDevice) || !strings.Contains(err.Error(), "modprobe rdma_rxe") {
		t.Error(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	secret := []byte("0123456789abcdef")
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{Size: 1}, "no Secret and no TLS"},
		{Options{Size: 1, Secret: secret[:15]}, "Secret has 15 bytes"},
		{Options{Secret: secret}, "Size is 0"},
		{Options{Size: 1, Secret: secret, Mem: MaxMN}, "must be less than"},
		{Options{Size: 1, Secret: secret, QueuePairs: 100}, "QueuePairs"},
		{Options{Size: 1, Secret: secret, Heartbeat: 2, DeadAfter: 3}, "DeadAfter"},
		{Options{Size: 1, Secret: secret, ServiceLevel: 16}, "ServiceLevel"},
		{Options{Size: 1, Secret: secret, TLS: &tls.Config{}}, "mutual"},
		{Options{Size: 1, Secret: secret, TLS: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}}, "ClientCAs"},
		{Options{Size: 1, Secret: secret, TLS: &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), RootCAs: x509.NewCertPool(), InsecureSkipVerify: true}}, "InsecureSkipVerify"},
	} {
		x.o.Members = coordinator.NewMemory(1)
		_, err := Serve(context.Background(), x.o)
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("Serve: %v, want %q", err, x.want)
		}
	}
	if _, err := Join(context.Background(), Options{Secret: secret}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "Members") {
		t.Errorf("Join without a coordinator: %v", err)
	}
}
