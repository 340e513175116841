package sim

import (
	"errors"
	"testing"

	"github.com/declock/declock/fabric"
)

// An interrupted Port with Config.Grace: whatever the time at which it is interrupted, an operation that is reported as refused never takes
// effect, one of unknown outcome takes effect once at most, and not after what its node posts later, over whichever queue pair.
func TestInterruptedChains(t *testing.T) {
	refused, unknown := 0, 0
	for at := fabric.Time(0); at < 6*fabric.Microsecond; at += 50 {
		for _, grace := range []fabric.Time{1, 500} {
			c := New(Config{Seed: uint64(at), Grace: grace, ClientsPerCore: 1})
			mn := c.AddMN(4096)
			n := c.AddCN()
			word := fabric.At(mn, 64)
			var sure, maybe uint64
			c.Go(n, "client", func(p fabric.Port) {
				c.At(at, p.Interrupt)
				for range 2 { // the second one is fenced, and waits to be sent
					pend, err := p.Post([]fabric.Op{fabric.FAA(word, 1), fabric.FAA(word, 1)})
					if err == nil {
						err = p.Wait(pend)
					}
					var ce *fabric.ChainError
					switch {
					case err == nil:
						sure += 2
					case !errors.As(err, &ce) || !errors.Is(err, fabric.ErrInterrupted):
						t.Errorf("interrupted at %d: %v", at, err)
					case errors.Is(err, fabric.ErrUnknownOutcome):
						unknown++
						maybe += 2 - uint64(ce.Index)
						sure += uint64(ce.Index)
					case !fabric.Refused(err):
						t.Errorf("interrupted at %d: %v", at, err)
					default:
						refused++
						sure += uint64(ce.Index)
					}
				}
				p.ClearInterrupt()
				c.Go(n, "another", func(p fabric.Port) {
					op := []fabric.Op{fabric.Load(word)}
					if err := p.Do(op); err != nil {
						t.Error(err)
					}
					if was := op[0].Old; was < sure || was > sure+maybe {
						t.Errorf("interrupted at %d: %d FAAs of %d to %d", at, was, sure, sure+maybe)
					}
					_ = p.Pause(p.Now() + fabric.Millisecond)
					if now := c.PeekWord(word); now != op[0].Old {
						t.Errorf("interrupted at %d: the word was %d when its node had read it, and is %d", at, op[0].Old, now)
					}
				})
			})
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if f := c.FaultStats(); f[LeftBehind] > 2 || f[Unsent] > 2 {
				t.Errorf("interrupted at %d: %v", at, &f)
			}
			c.Close()
		}
	}
	if refused == 0 || unknown == 0 {
		t.Errorf("%d chains refused, %d of unknown outcome", refused, unknown)
	}
}

// A Port is closed by another client, at whatever time: what its owner waits for has its results or ends with fabric.ErrClosed, in time with
// Config.Grace. What is reported as refused never takes effect.
func TestClosedUnderAChain(t *testing.T) {
	refused, unknown := 0, 0
	for at := fabric.Time(0); at < 6*fabric.Microsecond; at += 50 {
		for _, grace := range []fabric.Time{0, 1, 500} {
			c := New(Config{Seed: uint64(at), Grace: grace, ClientsPerCore: 1})
			mn := c.AddMN(4096)
			n := c.AddCN()
			word := fabric.At(mn, 64)
			var sure, maybe uint64
			c.Go(n, "client", func(p fabric.Port) {
				c.At(at, func() { _ = p.Close() })
				for {
					ops := []fabric.Op{fabric.FAA(word, 1), fabric.FAA(word, 1)}
					err := p.Do(ops)
					if err == nil && ops[1].Old != sure+1 {
						t.Errorf("closed at %d: FAA %d returned %d", at, sure+1, ops[1].Old)
					}
					if err == nil {
						sure += 2
						continue
					}
					var ce *fabric.ChainError
					done := uint64(0)
					if errors.As(err, &ce) {
						done = uint64(ce.Index)
					}
					sure += done
					switch {
					case !errors.Is(err, fabric.ErrClosed) || grace == 0 && ce != nil:
						t.Errorf("closed at %d: %v", at, err)
					case errors.Is(err, fabric.ErrUnknownOutcome):
						unknown++
						maybe = 2 - done
					case ce != nil:
						refused++
					}
					return
				}
			})
			if err := c.Run(); err != nil {
				t.Fatal(err)
			}
			if now := c.PeekWord(word); now < sure || now > sure+maybe {
				t.Errorf("closed at %d: the word is %d, want %d to %d", at, now, sure, sure+maybe)
			}
			c.Close()
		}
	}
	if refused == 0 || unknown == 0 {
		t.Errorf("%d chains refused, %d of unknown outcome", refused, unknown)
	}
}
