package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/config"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/metrics"
	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v2"
)

const deploy = "../../../deploy"

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func flagsOf(build func(*command.Env) *cli.App) []cli.Flag {
	return build(&command.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}).Flags
}

// The annotated examples have every setting, and are good.
func TestExampleConfigurations(t *testing.T) {
	for name, build := range map[string]func(*command.Env) *cli.App{"declock-mn": node.MN, "declock-cn": node.CN} {
		path := filepath.Join(deploy, "config", name+".yaml")
		text := readFile(t, path)
		known := node.Names(flagsOf(build))
		for _, uncommented := range []string{text, regexp.MustCompile(`(?m)^# ([a-z-]+: )`).ReplaceAllString(text, "$1")} {
			list, err := config.Parse(path, []byte(uncommented))
			if err != nil {
				t.Error(err)
			}
			for _, s := range list {
				if !slices.Contains(known, s.Name) {
					t.Errorf("%s:%d: %s has no setting %q", path, s.Line, name, s.Name)
				}
			}
		}
		for _, n := range known {
			if n == "dir" && name == "declock-mn" {
				continue // of shm, where it is seldom another
			}
			if !regexp.MustCompile(`(?m)^(# )?` + n + `: `).MatchString(text) {
				t.Errorf("%s does not show %q", path, n)
			}
		}
		var out strings.Builder
		a := build(&command.Env{Stdin: os.Stdin, Stdout: &out, Stderr: os.Stderr})
		// Certificates are not there, which is said; nothing else is wrong.
		if err := a.Run([]string{name, "--config", path, "--print-config"}); !errors.Is(err, secure.ErrFiles) || !strings.Contains(err.Error(), "/etc/declock/ca.pem") {
			t.Errorf("%s: %v", path, err)
		}
		if list, err := config.Parse("printed", []byte(out.String())); err != nil || len(list) < 8 {
			t.Errorf("what --print-config prints is no configuration file: %v\n%s", err, out.String())
		}
	}
}

// --print-config finds what would keep the daemon from starting: what is no address, no time, or without certificates.
func TestPrintConfigChecks(t *testing.T) {
	good := []string{"declock-cn", "--print-config", "--cluster", "tcp://127.0.0.1:1/x", "--listen", ":0"}
	for what, args := range map[string][]string{
		"":                           {"--insecure", "--http", "127.0.0.1:7492"},
		"no TLS":                     {},
		"CA: open /nonexistent/ca":   {"--tls-ca", "/nonexistent/ca", "--tls-cert", "x", "--tls-key", "x"},
		"must be at least twice":     {"--insecure", "--dead-after", "1ms"},
		"TTL is -5s":                 {"--insecure", "--dead-after", "-5s"},
		"--http \"nonsense\": want":  {"--insecure", "--http", "nonsense"},
		"Listen is \"nonsense\"":     {"--insecure", "--listen", "nonsense"},
		"/nonexistent/etcd-password": {"--insecure", "--etcd-user", "x", "--etcd-password-file", "/nonexistent/etcd-password"},
	} {
		a := node.CN(&command.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard})
		err := a.Run(slices.Concat(good, args))
		if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
			t.Errorf("%v: %v", args, err)
		}
		if code := exit.Of(err); err != nil && code != exit.Usage && code != exit.Denied {
			t.Errorf("%v: code %d, %v", args, code, err)
		}
	}
}

// What it finds for verbs: there a secret or TLS is needed.
func TestPrintConfigChecksVerbs(t *testing.T) {
	good := []string{"declock-cn", "--print-config", "--cluster", "verbs://127.0.0.1:1/x", "--listen", ":0"}
	for what, args := range map[string][]string{
		"":                     {"--insecure"},
		"no Secret and no TLS": {},
		"/nonexistent/secret":  {"--secret-file", "/nonexistent/secret"},
		"open /nonexistent/ca": {"--tls-ca", "/nonexistent/ca", "--tls-cert", "x", "--tls-key", "x"},
		"TTL is -5s":           {"--insecure", "--dead-after", "-5s"},
	} {
		a := node.CN(&command.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard})
		err := a.Run(slices.Concat(good, args))
		if what == "" && err != nil || what != "" && (err == nil || !strings.Contains(err.Error(), what)) {
			t.Errorf("%v: %v", args, err)
		}
		if code := exit.Of(err); err != nil && code != exit.Usage && code != exit.Denied {
			t.Errorf("%v: code %d, %v", args, code, err)
		}
	}
}

// Flags and configuration files in units, manifests and the container file exist.
func TestDeploymentsUseWhatThereIs(t *testing.T) {
	all := slices.Concat(flagsOf(node.MN), flagsOf(node.CN))
	var known []string
	for _, f := range all {
		known = append(known, f.Names()...)
	}
	ours := regexp.MustCompile(`declock-[mc]n\b.*`)
	flag := regexp.MustCompile(`--([a-z][a-z-]*)`)
	for _, pattern := range []string{"systemd/*", "kubernetes/declock.yaml"} {
		files, _ := filepath.Glob(filepath.Join(deploy, pattern))
		if len(files) == 0 {
			t.Errorf("no %s", pattern)
		}
		for _, path := range files {
			for _, line := range strings.Split(readFile(t, path), "\n") {
				if strings.HasPrefix(strings.TrimSpace(line), "#") || !ours.MatchString(line) && !strings.Contains(line, "args:") {
					continue
				}
				for _, m := range flag.FindAllStringSubmatch(line, -1) {
					if !slices.Contains(known, m[1]) {
						t.Errorf("%s: no flag --%s: %s", path, m[1], line)
					}
				}
			}
		}
	}
}

// Units wait until the daemon says that it serves, and reload it; compute nodes of one host have ports of their own.
func TestUnitsNotifyAndReload(t *testing.T) {
	for _, name := range []string{"declock-mn.service", "declock-cn@.service"} {
		unit := readFile(t, filepath.Join(deploy, "systemd", name))
		for _, line := range []string{"Type=notify", "ExecReload=/bin/kill -HUP $MAINPID", "TimeoutStartSec=infinity"} {
			if !strings.Contains(unit, "\n"+line+"\n") {
				t.Errorf("%s has no %s", name, line)
			}
		}
		if strings.Contains(name, "@") && !strings.Contains(unit, " --instance %i\n") {
			t.Errorf("%s: instances have the same ports", name)
		}
	}
}

func TestSystemdUnitsAreWellFormed(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(deploy, "systemd", "*.service"))
	for _, path := range files {
		section := ""
		for i, line := range strings.Split(readFile(t, path), "\n") {
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case regexp.MustCompile(`^\[(Unit|Service|Install)\]$`).MatchString(line):
				section = line
			case section == "" || !regexp.MustCompile(`^[A-Z][A-Za-z]+=.+$`).MatchString(line):
				t.Errorf("%s:%d: %q", path, i+1, line)
			}
		}
	}
}

// Tools find the daemons that the units run: the examples and the manual's configuration put control sockets where the units let them be. What
// a memory node keeps in a file it may write.
func TestUnitsAndConfigurationsAgree(t *testing.T) {
	for _, name := range []string{"declock-mn.service", "declock-cn@.service"} {
		unit := readFile(t, filepath.Join(deploy, "systemd", name))
		if !strings.Contains(unit, "\nRuntimeDirectory=declock\n") || strings.Contains(unit, "XDG_RUNTIME_DIR") {
			t.Errorf("%s: control sockets are not where run-dir says", name)
		}
	}
	for _, path := range []string{filepath.Join(deploy, "config", "declock-mn.yaml"), filepath.Join(deploy, "config", "declock-cn.yaml"), "../../../docs/operations.md"} {
		if !strings.Contains(readFile(t, path), "\nrun-dir: /run/declock\n") {
			t.Errorf("%s has no run-dir", path)
		}
	}
	dir := regexp.MustCompile(`\nStateDirectory=(.+)\n`).FindStringSubmatch(readFile(t, filepath.Join(deploy, "systemd", "declock-mn.service")))
	path := regexp.MustCompile(`\n# path: (.+)\n`).FindStringSubmatch(readFile(t, filepath.Join(deploy, "config", "declock-mn.yaml")))
	if dir == nil || path == nil || filepath.Dir(path[1]) != "/var/lib/"+dir[1] {
		t.Errorf("the unit may write to %q, the example of path is %q", dir, path)
	}
}

// A drain of a machine moves one memory node at a time, but it does move it.
func TestDisruptionBudgetLetsMemoryNodesMove(t *testing.T) {
	for _, text := range strings.Split(readFile(t, filepath.Join(deploy, "kubernetes", "declock.yaml")), "\n---\n") {
		var o struct {
			Kind string
			Spec struct {
				MaxUnavailable any `yaml:"maxUnavailable"`
			}
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "PodDisruptionBudget" && fmt.Sprint(o.Spec.MaxUnavailable) != "1" {
			t.Errorf("maxUnavailable is %v", o.Spec.MaxUnavailable)
		}
	}
}

// Manifests are YAML objects with a kind, and the configurations in them are good.
func TestManifests(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(deploy, "kubernetes", "*.yaml"))
	kinds := map[string]int{}
	for _, path := range files {
		for i, text := range strings.Split(readFile(t, path), "\n---\n") {
			var o struct {
				APIVersion string `yaml:"apiVersion"`
				Kind       string
				Metadata   struct{ Name string }
				Data       map[string]string
			}
			if err := yaml.Unmarshal([]byte(text), &o); err != nil || o.APIVersion == "" || o.Kind == "" || o.Metadata.Name == "" {
				t.Errorf("%s, document %d: %v, %+v", path, i+1, err, o)
			}
			kinds[o.Kind]++
			for file, settings := range o.Data {
				list, err := config.Parse(file, []byte(settings))
				known := node.Names(flagsOf(map[string]func(*command.Env) *cli.App{"mn.yaml": node.MN, "cn.yaml": node.CN}[file]))
				if err != nil {
					t.Error(err)
				}
				for _, s := range list {
					if !slices.Contains(known, s.Name) {
						t.Errorf("%s: %s:%d: no setting %q", path, file, s.Line, s.Name)
					}
				}
			}
		}
	}
	for _, kind := range []string{"StatefulSet", "Deployment", "ConfigMap", "Certificate", "NetworkPolicy"} {
		if kinds[kind] == 0 {
			t.Errorf("no %s", kind)
		}
	}
}

// The etcd of the manifests keeps its data over a restart of its pod.
func TestEtcdHasADisk(t *testing.T) {
	for _, text := range strings.Split(readFile(t, filepath.Join(deploy, "kubernetes", "etcd.yaml")), "\n---\n") {
		var o struct {
			Kind string
			Spec struct {
				VolumeClaimTemplates []struct {
					Metadata struct{ Name string }
				} `yaml:"volumeClaimTemplates"`
				Template struct {
					Spec struct {
						Containers []struct {
							Command      []string
							VolumeMounts []struct {
								Name      string
								MountPath string `yaml:"mountPath"`
							} `yaml:"volumeMounts"`
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind != "StatefulSet" {
			continue
		}
		c := o.Spec.Template.Spec.Containers[0]
		if len(o.Spec.VolumeClaimTemplates) != 1 || len(c.VolumeMounts) != 1 || c.VolumeMounts[0].Name != o.Spec.VolumeClaimTemplates[0].Metadata.Name {
			t.Fatalf("no disk: %+v", o.Spec)
		}
		if !slices.ContainsFunc(c.Command, func(s string) bool { return strings.HasPrefix(s, "--data-dir="+c.VolumeMounts[0].MountPath+"/") }) {
			t.Errorf("its data are not on its disk: %q", c.Command)
		}
	}
}

// exported are the names of all metrics.
func exported() map[string]bool {
	list := map[string]bool{}
	ch := make(chan *prometheus.Desc)
	go func() {
		for _, c := range metrics.Collectors() {
			c.Describe(ch)
		}
		close(ch)
	}()
	for d := range ch {
		list[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	return list
}

var metricName = regexp.MustCompile(`\bdeclock_[a-z_]+`)

// The dashboard and the alerts ask for metrics that there are, and the manual explains all of them.
func TestDashboardAndAlertsAndManual(t *testing.T) {
	there := exported()
	dashboard := readFile(t, filepath.Join(deploy, "grafana", "declock.json"))
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(dashboard), &d); err != nil || len(d.Panels) < 10 {
		t.Fatalf("the dashboard: %v, %d panels", err, len(d.Panels))
	}
	var expressions []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			expressions = append(expressions, target.Expr)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, filepath.Join(deploy, "prometheus", "rules.yaml"))), &rules); err != nil || len(rules.Groups) == 0 {
		t.Fatalf("the alerts: %v", err)
	}
	manual := readFile(t, "../../../docs/monitoring.md")
	for _, r := range rules.Groups[0].Rules {
		expressions = append(expressions, r.Expr)
		if !strings.Contains(manual, r.Alert) {
			t.Errorf("the manual does not say what to do about %s", r.Alert)
		}
	}
	for _, e := range expressions {
		if strings.Count(e, "(") != strings.Count(e, ")") {
			t.Errorf("%s: parentheses", e)
		}
		for _, name := range metricName.FindAllString(e, -1) {
			if !there[name] && !there[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%q asks for %s, which nobody exports", e, name)
			}
		}
	}
	for name := range there {
		if !strings.Contains(manual, fmt.Sprintf("`%s`", name)) {
			t.Errorf("the manual does not explain %s", name)
		}
	}
	for _, name := range metricName.FindAllString(manual, -1) {
		if !there[name] {
			t.Errorf("the manual explains %s, which nobody exports", name)
		}
	}
}
