package fleet

import (
	"maps"
	"os/exec"
	"testing"

	"github.com/declock/declock/cmd/internal/exit"
)

func TestParseReady(t *testing.T) {
	got, ok := parseReady("ready node=mn0 size=\"1 GiB\" huge=\"none (a = b)\" pid=7\n")
	want := map[string]string{"node": "mn0", "size": "1 GiB", "huge": "none (a = b)", "pid": "7"}
	if !ok || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, ok, want)
	}
	for _, line := range []string{"", "ready", "ready x", "error: y", "not ready a=b"} {
		if got, ok := parseReady(line); ok {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func TestTailKeepsTheEndAndPassesWholeLines(t *testing.T) {
	var out, early sink
	c := &tail{}
	_, _ = c.Write([]byte("declock: it did not work\n"))
	if got := c.last(); got != "it did not work" {
		t.Errorf("last: %q", got)
	}
	c.pass("cn1", &out)
	_, _ = c.Write([]byte("one\ntw"))
	_, _ = c.Write([]byte("o\nthree"))
	if out.text != "cn1: one\ncn1: two\n" || early.text != "" {
		t.Errorf("passed on %q", out.text)
	}
	for range 2 * keptStderr {
		_, _ = c.Write([]byte("x"))
	}
	if len(c.kept) > keptStderr {
		t.Errorf("%d bytes are kept", len(c.kept))
	}
}

type sink struct{ text string }

func (s *sink) Write(p []byte) (int, error) {
	s.text += string(p)
	return len(p), nil
}

func TestAChildThatCtrlCEndsBeforeItListensWasInterrupted(t *testing.T) {
	c := &Child{Name: "memory node", said: &tail{name: "mn"}}
	c.err = exec.Command("sh", "-c", "kill -INT $$").Run()
	if code := exit.Of(c.failure("did not start")); code != exit.Interrupted {
		t.Errorf("exit code %v, want %v", code, exit.Interrupted)
	}
}
