package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/declock/declock/fabric"
)

// A killed node's clients stop at once; what they have posted does as Late says.
func TestKillStopsClients(t *testing.T) {
	for _, late := range []LateOps{LateDrop, LateKeep, LateDraw} {
		c := New(Config{Late: late})
		c.AddMN(4096)
		n, other := c.AddCN(), c.AddCN()
		steps, unwound := 0, false
		c.Go(n, "victim", func(p fabric.Port) {
			defer func() { unwound = true }()
			p.Pause(1000)
			steps++
			p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), 1)})
			steps++
		})
		c.Go(other, "killer", func(p fabric.Port) {
			p.Pause(1500) // the FAA is on the wire
			c.Kill(n)
			p.Pause(fabric.Second)
			if v := p.(*Port).node.View(); v.Live.Has(n.id) {
				t.Errorf("%v is in the view", n)
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		got := c.PeekWord(fabric.At(0, 64))
		if steps != 1 || !unwound || late == LateDrop && got != 0 || late == LateKeep && got != 1 {
			t.Errorf("late %v: %d steps, unwound %v, word %d", late, steps, unwound, got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestKillOneself(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	n := c.AddCN()
	after := false
	c.Go(n, "suicide", func(p fabric.Port) {
		c.Kill(n)
		p.Pause(10)
		after = true
	})
	c.Go(n, "beside", func(p fabric.Port) {
		p.Pause(10)
		after = true
	})
	if err := c.Run(); err != nil || after {
		t.Errorf("Run: %v, went on: %v", err, after)
	}
}

// A paused node's operations go on, its code does not. Fenced meanwhile, it
// gets ErrFenced from its next operation, and that has no effect.
func TestZombieIsFenced(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	c.AddMN(4096)
	a := fabric.At(0, 64)
	zombie, other := c.AddCN(), c.AddCN()
	var err1, err2, err3 error
	var woke fabric.Time
	c.Go(zombie, "zombie", func(p fabric.Port) {
		err1 = p.Do([]fabric.Op{fabric.FAA(a, 1)})
		woke = p.Now()
		err2 = p.Do([]fabric.Op{fabric.FAA(a, 1)})
		err3 = p.Send(fabric.AgentOf(other.id), &fabric.Message{})
	})
	c.At(500, func() { c.Pause(zombie) })
	c.At(50_000, func() { c.Fence(zombie) })
	c.At(80_000, func() { c.Resume(zombie) })
	heard := false
	c.Go(other, "other", func(p fabric.Port) {
		p.Pause(60_000)
		if _, err := p.(*Port).node.agent.Recv(0); err == nil {
			heard = true
		}
		if err := p.Send(fabric.AgentOf(zombie.id), &fabric.Message{}); !errors.Is(err, fabric.ErrNodeDown) {
			t.Errorf("Send to a fenced node: %v", err)
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	if err1 != nil || woke != 80_000 || !errors.Is(err2, fabric.ErrFenced) || !errors.Is(err3, fabric.ErrFenced) {
		t.Errorf("before the fence: %v, woke at %d; after: %v, %v", err1, woke, err2, err3)
	}
	if got := c.PeekWord(a); got != 1 || !heard {
		t.Errorf("the word is %d, the other's agent has heard: %v", got, heard)
	}
}

// Operations of a segment behind a fence, and WRITEs in the middle, end with their node.
func TestCrashInTheMiddle(t *testing.T) {
	const size = 64 * 32
	seen := map[string]int{}
	for seed := range uint64(40) {
		c := New(Config{Seed: seed, Late: LateDrop, Tear: Tear{Prob: 1, Window: 2000}})
		c.AddMN(1 << 16)
		n := c.AddCN()
		c.Go(n, "writer", func(p fabric.Port) {
			buf := p.Alloc(size)
			for i := range buf {
				buf[i] = 1
			}
			p.Do([]fabric.Op{fabric.Write(fabric.At(0, 4096), buf), fabric.FAA(fabric.At(0, 64), 1), fabric.Store(fabric.At(0, 128), 1)})
		})
		c.At(fabric.Time(800+100*seed), func() { c.Kill(n) })
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, size)
		c.Peek(fabric.At(0, 4096), buf)
		ones := 0
		for i, b := range buf {
			ones += int(b)
			if b != buf[i&^63] {
				t.Fatalf("seed %d: torn within 64 bytes at %d", seed, i)
			}
		}
		counter, tail := c.PeekWord(fabric.At(0, 64)), c.PeekWord(fabric.At(0, 128))
		switch {
		case ones == 0 && counter == 0 && tail == 0:
			seen["nothing"]++
		case ones < size && counter == 0 && tail == 0:
			seen["torn"]++
		case ones == size && counter == 0 && tail == 0:
			seen["whole"]++
		case ones == size && counter == 1 && tail == 0:
			seen["counted"]++
		case ones == size && counter == 1 && tail == 1:
			seen["all"]++
		default:
			t.Fatalf("seed %d: %d bytes written, counter %d, tail %d: out of order", seed, ones, counter, tail)
		}
		c.Close()
	}
	for _, what := range []string{"nothing", "torn", "counted", "all"} {
		if seen[what] == 0 {
			t.Errorf("no crash left %s: %v", what, seen)
		}
	}
}

// With Grain 64 a READ sees 64-byte pieces whole, in any mixture; with 8, words.
func TestTearGrain(t *testing.T) {
	for _, grain := range []int{64, 8} {
		c := New(Config{Seed: 5, Tear: Tear{Prob: 1, Grain: grain}})
		c.AddMN(1 << 16)
		a := fabric.At(0, 4096)
		const size = 512
		done := false
		c.Go(c.AddCN(), "writer", func(p fabric.Port) {
			buf := p.Alloc(size)
			for k := range uint64(300) {
				for i := 0; i < size; i += 8 {
					binary.LittleEndian.PutUint64(buf[i:], k)
				}
				p.Do([]fabric.Op{fabric.Write(a, buf)})
			}
			done = true
		})
		var torn, within, back int
		c.Go(c.AddCN(), "reader", func(p fabric.Port) {
			buf := p.Alloc(size)
			for !done {
				p.Do([]fabric.Op{fabric.Read(a, buf)})
				first := binary.LittleEndian.Uint64(buf)
				for i := 8; i < size; i += 8 {
					w := binary.LittleEndian.Uint64(buf[i:])
					if w != first {
						torn++
					}
					if w > first {
						back++ // a later piece is newer
					}
					if i&63 != 0 && w != binary.LittleEndian.Uint64(buf[i&^63:]) {
						within++
					}
				}
			}
		})
		if err := c.Run(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if torn == 0 || back == 0 || grain == 64 && within != 0 || grain == 8 && within == 0 {
			t.Errorf("grain %d: %d words torn, %d newer than the first, %d within 64 bytes", grain, torn, back, within)
		}
	}
}

// An agent that joins or leaves a running cluster is news to the others.
func TestJoinIsNews(t *testing.T) {
	c := New(Config{})
	defer c.Close()
	a := c.AddCN()
	b := c.AddCN()
	v := a.View()
	if v != b.View() || v.Live.Len() != 2 {
		t.Errorf("views %+v, %+v", a.View(), b.View())
	}
	c.At(1000, func() { c.AddCN() })
	c.GoOn(a.Agent(), "agent", func(p fabric.Port) {
		m, err := p.Recv(fabric.Forever)
		v := a.View()
		if err != nil || m.Kind != fabric.MsgView || m.From != 0 || m.Body[0] != v.Epoch || v.Live.Len() != 3 {
			t.Errorf("%+v, %v, view %+v", m, err, a.View())
		}
	})
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
}

type recorder struct {
	steps [numSteps]int
	last  fabric.Time
	sum   uint64
	bad   string
}

func (r *recorder) Observe(e *Event) {
	r.steps[e.Step]++
	if e.Time < r.last {
		r.bad = fmt.Sprintf("%v after %d", e, r.last)
	}
	r.last = e.Time
	if e.Step == StepEffect && e.Op.Kind == fabric.OpFAA {
		if e.Old != r.sum || e.New != r.sum+e.Op.Arg {
			r.bad = fmt.Sprintf("%v, the sum is %d", e, r.sum)
		}
		r.sum += e.Op.Arg
	}
	_ = e.String()
}

// The history: each operation is posted, takes effect and completes; old and new values follow each other.
func TestObserverSeesTheHistory(t *testing.T) {
	r := &recorder{}
	c := New(Config{Observer: r})
	defer c.Close()
	c.AddMN(4096)
	for i := range 4 {
		c.Go(c.AddCN(), fmt.Sprint(i), func(p fabric.Port) {
			for range 50 {
				p.Do([]fabric.Op{fabric.FAA(fabric.At(0, 64), p.Rand()), fabric.Load(fabric.At(0, 64))})
			}
			p.Send(fabric.AgentOf(1), &fabric.Message{})
			p.Send(fabric.Client(1, 99), &fabric.Message{})
			p.Pause(p.Now() + 10_000)
		})
	}
	if err := c.Run(); err != nil {
		t.Fatal(err)
	}
	want := [numSteps]int{StepPost: 400, StepEffect: 400, StepComplete: 200, StepSend: 8, StepDeliver: 4, StepDrop: 4}
	if r.steps != want || r.bad != "" {
		t.Errorf("steps %v, want %v; %s", r.steps, want, r.bad)
	}
}
