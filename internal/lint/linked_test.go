package lint

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// etcdClient is what the client of etcd brings with it, and TLS and gRPC below it.
const etcdClient = "go.etcd.io/etcd/api go.etcd.io/etcd/client github.com/coreos github.com/golang/protobuf github.com/grpc-ecosystem/grpc-gateway " +
	"go.uber.org google.golang.org golang.org/x/net golang.org/x/text "

// linked are what a program or library consists of, besides Go's own library and golang.org/x/sys.
var linked = []struct {
	pkg  string
	of   string // prefixes of packages of others
	not  string // packages of ours that it does without, besides lab
	tags string // that it is built with
}{
	{pkg: ".", of: "github.com/google/btree", not: "cmd coordinator fabric/sim fabric/tcp fabric/verbs fabric/member front traces"},
	{pkg: "./overtcp", of: "github.com/google/btree " + etcdClient, not: "cmd coordinator/embedded fabric/sim fabric/verbs front traces"},
	{pkg: "./oververbs", of: "github.com/google/btree " + etcdClient, not: "cmd coordinator/embedded fabric/sim fabric/tcp front traces"},
	{pkg: "./cmd/declock-mn", of: daemon, not: "cmd/internal/app cmd/internal/fleet coordinator/embedded fabric/sim"},
	{pkg: "./cmd/declock-cn", of: daemon, not: "cmd/internal/app cmd/internal/fleet coordinator/embedded fabric/sim"},
	{pkg: "./cmd/declock", of: "*", not: "fabric/sim"},
	{pkg: "./cmd/declock", of: daemonWithoutEtcd + "google.golang.org/protobuf github.com/coreos/go-systemd", not: "fabric/sim", tags: "shmonly"}, // the README's first command: it compiles less
}

// daemon is what a daemon needs of others: the client of etcd, flags and their help, configuration, metrics, and what replays traces.
const daemon = daemonWithoutEtcd + etcdClient

const daemonWithoutEtcd = "github.com/google/btree github.com/urfave/cli github.com/cpuguy83 github.com/russross github.com/xrash github.com/goccy/go-yaml " +
	"github.com/prometheus github.com/beorn7 github.com/cespare github.com/munnerz github.com/klauspost/compress github.com/HdrHistogram golang.org/x/term "

// TestLinked: what users link is the product, without the laboratory.
func TestLinked(t *testing.T) {
	for _, l := range linked {
		cmd := exec.Command("go", "list", "-deps", "-tags", l.tags, "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", l.pkg)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", l.pkg, err)
		}
		for _, pkg := range strings.Fields(string(out)) {
			ours, own := strings.CutPrefix(pkg, module)
			switch {
			case pkg+"/" == module, within(pkg, "golang.org/x/sys"):
			case own && (within(ours, "lab") || within(ours, l.not)):
				t.Errorf("%s %s links %s", l.pkg, l.tags, ours)
			case !own && l.of != "*" && !within(pkg, l.of):
				t.Errorf("%s %s links %s", l.pkg, l.tags, pkg)
			}
		}
	}
}

// within reports whether a package is one of a list, or in a folder of one.
func within(pkg, list string) bool {
	for p := range strings.FieldsSeq(list) {
		if pkg == p || strings.HasPrefix(pkg, p+"/") {
			return true
		}
	}
	return false
}

// A program over shared memory alone stays below 5 MB, without symbols.
func TestSizeAlone(t *testing.T) {
	const most = 5_000_000
	program := filepath.Join(t.TempDir(), "alone")
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "./testdata/alone")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	if info, err := os.Stat(program); err != nil || info.Size() > most {
		t.Errorf("it has more than %d bytes: %v, %v", most, info, err)
	} else {
		t.Logf("%d bytes", info.Size())
	}
}
