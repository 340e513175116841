package node

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/urfave/cli/v2"
)

// A tool with a daemon's file joins at that daemon's address, and not at its port; what flags say goes before.
func TestToolsTakeAnyPort(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cn.yaml")
	text := "cluster: tcp://10.0.0.1:2379/x\ninsecure: true\nlisten: 10.0.0.1:7493\nadvertise: \"[fd00::1]:7493\"\nhttp: 10.0.0.1:7492\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags             []string
		listen, advertise string
	}{
		{nil, "10.0.0.1:0", "fd00::1"},
		{[]string{"--listen", "10.0.0.1:99"}, "10.0.0.1:99", "fd00::1"},
	} {
		var n Network
		a := &cli.App{Flags: n.Flags(""), Writer: io.Discard, Action: func(c *cli.Context) error {
			_, err := n.Parse(c)
			return err
		}}
		if err := a.Run(append([]string{"tool", "--config", file}, c.flags...)); err != nil {
			t.Fatal(err)
		}
		if n.Options.Listen != c.listen || n.Options.Advertise != c.advertise {
			t.Errorf("%q: listens on %q as %q, want %q and %q", c.flags, n.Options.Listen, n.Options.Advertise, c.listen, c.advertise)
		}
	}
}
