package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wrongInputs are command lines with what they must give. DIR is a directory for clusters; BAD, CUT and FULL are traces: with
// a malformed line, cut, and on a full disk.
var wrongInputs = []struct {
	code int
	says string
	args []string
}{
	{2, "unknown command \"nosuch\": one of", []string{"nosuch"}},
	{2, "unknown command", []string{"inspect", "nosuch"}},
	{2, "unknown command \"bogus\": one of bucket", []string{"inspect", "bogus", "--cluster", "shm:x"}},
	{2, "unknown command", []string{"trace", "nosuch"}},
	{2, "not defined: -nosuch", []string{"replay", "--nosuch"}},
	{2, "not a count", []string{"replay", "--keys", "abc"}},
	{2, "it must be 1 to", []string{"replay", "--keys", "0"}},
	{2, "it must be 1 to", []string{"replay", "--cns", "300"}},
	{2, "it must be 1 to", []string{"replay", "--clients", "0"}},
	{2, "not a size", []string{"replay", "--size", "1zb"}},
	{2, "more than nothing", []string{"replay", "--size", "0"}},
	{2, "want max, or a factor", []string{"replay", "--speed", "fast"}},
	{2, "want max, or a factor", []string{"replay", "--speed", "-1"}},
	{2, "want one of trace, none", []string{"replay", "--ttl", "x"}},
	{2, "want one of fail, skip", []string{"replay", "BAD", "--on-bad-line", "x"}},
	{2, "want one of by-key", []string{"replay", "BAD", "--deal", "x"}},
	{2, "too many arguments", []string{"replay", "a", "b"}},
	{2, "cannot be given here", []string{"replay", "--cluster", "shm:x", "--lock", "cql"}},
	{2, "cannot be given here", []string{"replay", "--device", "x"}},
	{2, "--device means nothing for shm:x: it is for verbs", []string{"declock-cn", "--cluster", "shm:x", "--device", "x"}},
	{2, "--keep means nothing for verbs://", []string{"declock-mn", "--cluster", "verbs://localhost:1/x", "--keep"}},
	{2, "cannot be given here", []string{"replay", "BAD", "--keys", "3"}},
	{2, "there can be 256 at most", []string{"replay", "--lock", "cql", "--cns", "100"}},
	{2, "more than --max-cn", []string{"up", "--cns", "20", "--dir", "DIR"}},
	{2, "which cluster", []string{"inspect", "roots"}},
	{2, "which cluster", []string{"check"}},
	{2, "needs ADDR", []string{"inspect", "header"}},
	{2, "where to", []string{"trace", "gen"}},
	{2, "cannot list", []string{"status", "--dir", "/nonexistent"}},
	{2, "which cluster", []string{"declock-mn"}},
	{2, "it must be 0 to 63", []string{"declock-mn", "--cluster", "shm:x", "--mem", "64"}},
	{2, "want one of off, try, require", []string{"declock-mn", "--cluster", "shm:x", "--huge", "x"}},
	{2, "must be absolute", []string{"declock-mn", "--cluster", "shm:x", "--path", "x", "--dir", "DIR", "--size", "1MiB"}},
	{2, "give at least as many", []string{"declock-mn", "--cluster", "shm:x", "--lock-queue", "2", "--dir", "DIR", "--size", "1MiB"}},
	{2, "CONFIG:2: no setting \"siez\"; there are", []string{"declock-mn", "--config", "CONFIG"}},
	{2, "CONFIG:2: no setting \"siez\"", []string{"status", "--config", "CONFIG"}},
	{2, "CONFIG2:3: size: \"12 elephants\"", []string{"declock-mn", "--config", "CONFIG2"}},
	{2, "no such file", []string{"declock-cn", "--config", "/nonexistent.yaml"}},
	{2, "--pprof needs --http", []string{"declock-cn", "--cluster", "shm:x", "--pprof"}},
	{2, "no TLS: give tls-ca, tls-cert and tls-key", []string{"declock-cn", "--cluster", "tcp://127.0.0.1:1/x"}},
	{2, "must be absolute", []string{"declock-mn", "--cluster", "tcp://127.0.0.1:1/x", "--insecure", "--path", "rel"}},
	{2, "--huge means nothing with --fabric tcp", []string{"up", "--fabric", "tcp", "--huge", "require"}},
	{2, "--replicas 2 needs --fabric tcp", []string{"up", "--replicas", "2", "--mns", "2", "--dir", "DIR"}},
	{2, "--local needs --fabric tcp", []string{"up", "--local=false", "--dir", "DIR"}},
	{2, "--local needs --fabric tcp", []string{"replay", "--local", "--ops", "10", "--dir", "DIR"}},
	{2, "--replicas 3 is more than --mns 2", []string{"up", "--fabric", "tcp", "--replicas", "3", "--mns", "2"}},
	{2, "--min-in-sync 3 is more than --replicas 2", []string{"up", "--fabric", "tcp", "--mns", "3", "--replicas", "2", "--min-in-sync", "3"}},
	{2, "--min-in-sync 2 is more than --replicas 1", []string{"declock-mn", "--cluster", "tcp://127.0.0.1:1/x", "--insecure", "--min-in-sync", "2"}},
	{2, "--replicas means nothing for shm", []string{"declock-mn", "--cluster", "shm:x", "--replicas", "2", "--dir", "DIR"}},
	{2, "--dir means nothing with --fabric tcp", []string{"up", "--fabric", "tcp", "--dir", "DIR"}},
	{2, "\"-1\": it cannot be negative", []string{"replay", "--cns", "-1"}},
	{2, "mutual TLS needs all of", []string{"declock-cn", "--cluster", "tcp://127.0.0.1:1/x", "--tls-ca", "x"}},
	{3, "no such cluster", []string{"replay", "--cluster", "shm:nosuch", "--dir", "DIR"}},
	{3, "no such cluster", []string{"status", "--cluster", "shm:nosuch", "--dir", "DIR"}},
	{3, "no such cluster", []string{"inspect", "roots", "--cluster", "shm:nosuch", "--dir", "DIR"}},
	{3, "no such cluster", []string{"clean", "nosuch", "--dir", "DIR"}},
	{3, "no such cluster", []string{"declock-cn", "--cluster", "shm:nosuch", "--dir", "DIR"}},
	{5, "not enough memory", []string{"up", "--size", "100TiB", "--dir", "DIR"}},
	{5, "no space left", []string{"replay", "--size", "1MiB", "--dir", "DIR", "--cns", "1"}},
	{5, "no space left on device", []string{"trace", "gen", "--ops", "100k", "-o", "FULL"}},
	{6, "no such file", []string{"replay", "/nonexistent"}},
	{6, "is a directory", []string{"replay", "/tmp"}},
	{6, "no such file", []string{"trace", "stat", "/nonexistent"}},
	{6, "no such file", []string{"trace", "gen", "-o", "/nonexistent/x"}},
	{7, "is empty", []string{"replay", "-"}},
	{7, "line 2, column 3", []string{"trace", "stat", "BAD"}},
	{7, "line 2, column 3", []string{"replay", "BAD", "--dir", "DIR", "--cns", "1", "--size", "64MiB"}},
	{7, "cut", []string{"trace", "stat", "CUT"}},
	{7, "no records", []string{"trace", "stat", "/dev/null"}},
	{7, "EMPTY has no records", []string{"replay", "EMPTY"}},
	{9, "values have 536870912 bytes at most", []string{"replay", "--max-value", "513MiB"}},
	{9, "values have 1073741824 bytes at most", []string{"replay", "--target", "memcached://127.0.0.1:1", "--max-value", "2GiB"}},
	{2, "No help topic", []string{"help", "nosuch"}},
	{2, "--wait -1s is negative", []string{"declock-mn", "--cluster", "shm:x", "--wait", "-1s"}},
	{2, "--http \"127.0.0.1:99999\": want host:port", []string{"declock-cn", "--cluster", "shm:x", "--http", "127.0.0.1:99999"}},
	{2, "more than 18,446,744,073,709,551,615", []string{"replay", "--keys", "1e30"}},
	{7, "NOPIPE is empty", []string{"replay", "NOPIPE", "--dir", "DIR"}},
	{11, "bad cluster address", []string{"replay", "--cluster", "demo"}},
	{11, "no fabric \"carrier-pigeon\"", []string{"replay", "--cluster", "carrier-pigeon:x"}},
	{11, "want verbs://ETCD", []string{"status", "--cluster", "verbs:x"}},
	{11, "is no HOST:PORT of etcd", []string{"declock-cn", "--cluster", "verbs://x/y"}},
	{11, "bad cluster name", []string{"replay", "--cluster", "shm:a/b"}},
	{11, "bad cluster name", []string{"up", "--name", "a/b"}},
	{11, "bad cluster address", []string{"declock-cn", "--cluster", "x"}},
	{11, "declock: bad cluster address: \"tcp://1.2.3.4\": want tcp://ETCD[,ETCD..]/NAME\n", []string{"status", "--cluster", "tcp://1.2.3.4"}},
	{11, "bad target", []string{"replay", "--target", "http://x"}},
	{12, "there are cluster1 to cluster54", []string{"replay", "--preset", "cluster99"}},
	{12, "declock: unknown lock policy \"foo\": one of cql,", []string{"replay", "--lock", "foo"}},
	{12, "with N from 1", []string{"replay", "--lock", "local-bound:0"}},
	{12, "no program has \"zzzz\"", []string{"declock-lab", "sim", "explore", "--match", "zzzz"}},
	{12, "one of cql,", []string{"declock-cn", "--cluster", "shm:x", "--lock", "foo"}},
	{12, "no such preset", []string{"trace", "gen", "--preset", "x", "-o", "-"}},
	{18, "cannot connect", []string{"replay", "--target", "memcached:///nonexistent", "--ops", "10"}},
}

// Every wrong input has its exit code, and a message that says what is wrong.
func TestWrongInput(t *testing.T) {
	w := newWorld(t)
	file := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	bad := file("bad.csv", "0,key,3,5,1,get,0\n0,key,bad,5,1,get,0\n")
	cut := file("cut.zst", "\x28\xb5\x2f\xfd\x04")
	empty := file("EMPTY", "\n")
	config, config2 := file("one.yaml", "cluster: shm:x\nsiez: 1GiB\n"), file("two.yaml", "# sizes\ncluster: shm:x\nsize: 12 elephants\n")
	full := t.TempDir() + "/full"
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	stand := strings.NewReplacer("BAD", bad, "CUT", cut, "FULL", full, "EMPTY has", "has", "EMPTY", empty, "NOPIPE is", "is", "NOPIPE", "/dev/null", "CONFIG2", config2, "CONFIG", config)
	for _, c := range wrongInputs {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			own := &world{t: t, dir: w.dir}
			args := append([]string(nil), c.args...)
			for i := range args {
				args[i] = stand.Replace(args[i])
			}
			_, stderr := own.run(c.code, args...)
			if !strings.Contains(stderr, stand.Replace(c.says)) {
				t.Errorf("it does not say %q but\n%s", c.says, stderr)
			}
			if !strings.HasPrefix(stderr, "declock") {
				t.Errorf("it does not say who speaks: %q", stderr)
			}
		})
	}
	if st, err := os.Stat("/dev/full"); err != nil || st.Mode().IsRegular() {
		t.Errorf("/dev/full: %v, %v", st, err)
	}
}

func TestBadLinesCanBeSkipped(t *testing.T) {
	w := newWorld(t)
	bad := filepath.Join(t.TempDir(), "bad.csv")
	if err := os.WriteFile(bad, []byte("0,key,3,5,1,set,0\nrubbish\n0,key,3,5,1,get,0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, stderr := w.run(0, "replay", bad, "--on-bad-line", "skip", "--dir", "DIR", "--cns", "2", "--size", "64MiB", "--json")
	if all := decode(t, out).Rows[0]; all["count"] != 2.0 || all["skipped_lines"] != 1.0 {
		t.Errorf("%v\n%s", all, stderr)
	}
	w.run(0, "trace", "stat", bad, "--on-bad-line", "skip")
}

func TestTraceRoundTrip(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"t.csv", "t.zst", "t.gz"} {
		path := filepath.Join(t.TempDir(), name)
		w.run(0, "trace", "gen", "--preset", "cluster14", "--keys", "5000", "--ops", "100k", "--seed", "3", "-o", path)
		out, _ := w.run(0, "trace", "stat", path, "--json")
		m := decode(t, out).Rows[0]
		if m["requests"] != 100000.0 || math.Abs(m["mean_key"].(float64)-96) > 5 || math.Abs(m["mean_value"].(float64)-414) > 21 {
			t.Errorf("%s: %v", name, m)
		}
		for _, op := range list(m["ops"]) {
			want := map[string]float64{"get": .65, "delete": .22, "set": .13}[op["op"].(string)]
			if math.Abs(op["share"].(float64)-want) > .01 {
				t.Errorf("%s: %v, want a share of %v", name, op, want)
			}
		}
	}
	a, _ := w.run(0, "trace", "gen", "--ops", "100", "--seed", "9", "-o", "-")
	b, _ := w.run(0, "trace", "gen", "--ops", "100", "--seed", "9", "-o", "-")
	if a != b || strings.Count(a, "\n") != 100 {
		t.Error("the same seed makes another trace")
	}
	if out, _ := w.run(0, "trace", "presets"); !strings.Contains(out, "cluster54") {
		t.Errorf("presets:\n%s", out)
	}
}

func TestHelp(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{{"up"}, {"replay"}, {"status"}, {"inspect"}, {"check"}, {"clean"}, {"trace"}, {"declock-mn"}, {"declock-cn"}} {
		out, _ := w.run(0, append(args, "--help")...)
		if !strings.Contains(out, "Examples:") || !strings.Contains(out, "declock") {
			t.Errorf("%v --help has no examples:\n%s", args, out)
		}
	}
	out, _ := w.run(0, "exit-codes")
	again, _ := w.run(0, "help", "exit-codes")
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !strings.Contains(again, strings.TrimSpace(line)) {
			t.Errorf("help exit-codes has no line %q", line)
		}
	}
	if out, _ := w.run(0); !strings.Contains(out, "replay") {
		t.Errorf("declock without arguments:\n%s", out)
	}
	if out, _ := w.run(0, "version"); !strings.HasPrefix(out, "declock ") {
		t.Errorf("version: %q", out)
	}
}
