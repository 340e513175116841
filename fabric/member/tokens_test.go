package member_test

import (
	"math/rand/v2"
	"testing"

	"github.com/declock/declock/cql"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/lock"
)

// A number goes over from one copy to several and back, and is promoted, restarted and abandoned meanwhile, in any order: its tokens grow.
func TestTokensGrowFromOneCopyToSeveral(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := member.NewLedger(4)
		b := joinMN(t, l, member.MN{ID: 1})
		last, promoted := lock.Token(0), 0
		grow := func(token lock.Token) {
			t.Helper()
			if token <= last {
				t.Fatalf("seed %d: token %#x after %#x, %+v", seed, uint64(token), uint64(last), l.Groups[0])
			}
			last = token
		}
		for range 40 {
			replicas := 1 + r.IntN(2)
			e := joinMN(t, l, member.MN{ID: 0, Replicas: replicas})
			ackAll(l)
			if g := l.Groups[0]; replicas == 1 {
				grow(cql.Token(e.MN.Epoch-1, r.Uint64N(1<<40), 0)) // its memory is formatted anew
			} else {
				for range r.IntN(4) {
					grow(cql.TermToken(uint16(g.Term), r.Uint64N(1<<38), 0))
					host := b.Incarnation()
					if g.Primary() == host {
						host = e.Incarnation()
					}
					for _, kind := range []member.ChangeKind{member.AddBackup, member.Synced, member.Promote} {
						if err := change(l, kind, host); err != nil {
							t.Fatal(err)
						}
						ackAll(l)
					}
					promoted++
					g = l.Groups[0]
				}
				grow(cql.TermToken(uint16(g.Term), r.Uint64N(1<<38), 0))
			}
			for _, x := range []*member.Entry{e, b} {
				l.End(x, member.Left)
				ackAll(l)
			}
			if g := l.Groups[0]; g != nil && len(g.Replicas) > 0 {
				if err := change(l, member.Abandon, 0); err != nil {
					t.Fatal(err)
				}
			}
			b = joinMN(t, l, member.MN{ID: 1})
			ackAll(l)
		}
		if seed == 0 && promoted == 0 {
			t.Error("nothing was promoted")
		}
	}
}
