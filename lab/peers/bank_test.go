package main

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
)

// testBank starts a Redis with a bank of four customers, and returns tellers of two clients.
func testBank(t *testing.T, fenced bool) (*bank, [2]*teller) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server (Debian: apt-get install redis-server)")
	}
	s, err := startRedis(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	b := &bank{data: redis.NewClient(&redis.Options{Addr: s.addr}), customers: 4, fenced: fenced}
	t.Cleanup(func() { b.data.Close() })
	if err := b.create(t.Context()); err != nil {
		t.Fatal(err)
	}
	var tellers [2]*teller
	for i := range tellers {
		tellers[i] = &teller{bank: b, client: i, think: func() {}}
	}
	return b, tellers
}

// until executes the transactions of a client up to the first of a kind, and returns that with its number.
func (tr *teller) until(t *testing.T, kind int) (uint64, transaction) {
	t.Helper()
	for n := uint64(1); ; n++ {
		x := tr.draw(tr.client, n)
		if x.kind == kind {
			return n, x
		}
		tr.tokens = []any{"0", "0"}[:len(x.customers())]
		if err := tr.execute(t.Context(), n, &x); err != nil {
			t.Fatal(err)
		}
	}
}

func wantMissing(t *testing.T, b *bank, want bool) {
	t.Helper()
	n, err := b.missing(t.Context(), 2)
	if err != nil || (n != 0) != want {
		t.Errorf("missing: %d, %v; want any: %v", n, err, want)
	}
}

// A transaction that is executed again, by a client that does not know whether it is done, changes nothing.
func TestBankRepeats(t *testing.T) {
	for _, fenced := range []bool{false, true} {
		b, tellers := testBank(t, fenced)
		for n := uint64(1); n <= 40; n++ {
			x := b.draw(0, n)
			for range 2 {
				tellers[0].tokens = []any{"1", "1"}[:len(x.customers())]
				if err := tellers[0].execute(t.Context(), n, &x); err != nil {
					t.Fatal(err)
				}
			}
		}
		wantMissing(t, b, false)
	}
}

// A holder whose lock another has had since does not write, whether the other has written or has only read. Without tokens it does, and the check finds that.
func TestBankFences(t *testing.T) {
	for _, fenced := range []bool{true, false} {
		b, tellers := testBank(t, fenced)
		one, two := tellers[0], tellers[1]
		n, x := one.until(t, transfer)
		m, y := two.until(t, deposit)
		one.tokens, two.tokens = []any{"1", "1"}, []any{"2"}
		y.from = x.to
		of, _, err := one.read(t.Context(), x.customers(), true)
		if err != nil {
			t.Fatal(err)
		}
		x.apply(of)
		late, _, err := two.read(t.Context(), y.customers(), true)
		if err != nil {
			t.Fatal(err)
		}
		y.apply(late)
		if err := one.write(t.Context(), x.customers(), of, n); fenced != errors.Is(err, errRefused) {
			t.Errorf("fenced %v: a write of the holder before: %v", fenced, err)
		}
		if err := two.write(t.Context(), y.customers(), late, m); err != nil {
			t.Error(err)
		}
		wantMissing(t, b, !fenced)
	}
}
