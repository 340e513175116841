package fabrictest

import (
	"bytes"
	"errors"

	"github.com/declock/declock/fabric"
)

var nodeTests = []test{
	{name: "nodes and clients have IDs of their own", cns: 3, run: nodeIDs},
	{name: "Memory lists the memory nodes", mem: []uint64{1 << 20, 1 << 16}, run: nodeMemory},
	{name: "View has all nodes, the own one among them", cns: 3, run: nodeView},
	{name: "Caps of Port and Node are the same", run: nodeCaps},
	{name: "Stats counts what was posted", cns: 2, run: stats},
	{name: "Rand differs from call to call and client to client", run: random},
	{name: "Close of a Port is idempotent, and then all is ErrClosed", cns: 2, run: closePort},
	{name: "a Port that another client closes ends operations with their results or ErrClosed", cns: 2, run: closeBeside},
	{name: "Close of a Node closes its Ports and is idempotent", cns: 2, run: closeNode},
	{name: "a node that leaves is out of the others' views, their agents get MsgView, and it is not lost", cns: 3, run: func(e *env) { leave(e, fabric.Node.Close, 0) }},
	{name: "a node that leaves by Fail is out of the others' views, their agents get MsgView, and it is lost", cns: 3, run: func(e *env) { leave(e, fabric.Node.Fail, 1) }},
}

func nodeIDs(e *env) {
	seen := map[fabric.ClientID]bool{}
	for i := range 3 {
		n := e.cl.Node(i)
		if n.ID() == 0 {
			e.t.Errorf("node %d has number 0", i)
		}
		if n.Agent() != n.Agent() || n.Agent().ID() != fabric.AgentOf(n.ID()) {
			e.t.Errorf("the agent of %v is %v", n.ID(), n.Agent().ID())
		}
		seen[n.Agent().ID()] = true
		for range 5 {
			c := e.client(i)
			if c.ID().CN() != n.ID() || c.ID().IsAgent() {
				e.t.Errorf("a client of %v has ID %v", n.ID(), c.ID())
			}
			seen[c.ID()] = true
		}
	}
	if len(seen) != 3*6 {
		e.t.Errorf("%d different IDs, want %d", len(seen), 3*6)
	}
}

func nodeMemory(e *env) {
	list := e.cl.Node(0).Memory()
	if len(list) != 2 {
		e.t.Fatalf("Memory lists %d nodes: %+v", len(list), list)
	}
	for i, size := range []uint64{1 << 20, 1 << 16} {
		if list[i].ID != fabric.MemID(i) || list[i].Size < size {
			e.t.Errorf("Memory()[%d] is %+v, want at least %d bytes", i, list[i], size)
		}
		if epoch := e.cl.Node(0).MemoryEpoch(list[i].ID); epoch != 0 && epoch != list[i].Epoch {
			e.t.Errorf("MemoryEpoch is %d, and Memory()[%d] is %+v", epoch, i, list[i])
		}
	}
}

func nodeView(e *env) {
	for i := range 3 {
		v := e.cl.Node(i).View()
		if v.Live.Len() != 3 {
			e.t.Errorf("node %d sees %d nodes", i, v.Live.Len())
		}
		for k := range 3 {
			if !v.Live.Has(e.cl.Node(k).ID()) {
				e.t.Errorf("node %d does not see node %d", i, k)
			}
		}
	}
}

func nodeCaps(e *env) {
	n := e.cl.Node(0)
	caps := n.Caps()
	if caps != n.Agent().Caps() || caps != e.client(0).Caps() {
		e.t.Errorf("Caps differ: %+v, %+v", caps, n.Agent().Caps())
	}
	if caps.Fabric == "" || caps.MaxAtomics < 1 {
		e.t.Errorf("Caps are %+v", caps)
	}
}

func stats(e *env) {
	r, local := e.client(1), e.client(0)
	e.run(e.client(0), func(c *client) {
		a := fabric.At(0, 64)
		buf := c.Alloc(100)
		c.do(fabric.FAA(a, 1))
		c.do(fabric.FAA(a, 1), fabric.CAS(a, 0, 1), fabric.Load(a))
		c.do(fabric.Read(a, buf), fabric.Read(a, buf[:50]), fabric.Write(a, buf[:60]), fabric.Store(a, 1))
		c.wait(c.post(fabric.FAA(a, 1)))
		c.send(r.ID(), 1)
		c.send(local.ID(), 1)
		c.send(c.ID(), 1)
		c.recv()
		s := *c.Stats()
		want := fabric.Stats{Chains: 4, ReadBytes: 158, WriteBytes: 68, Sent: 1, SentLocal: 2}
		want.Ops[fabric.OpFAA], want.Ops[fabric.OpCAS] = 3, 1
		want.Ops[fabric.OpRead], want.Ops[fabric.OpWrite] = 3, 2
		if s != want {
			c.fatal("Stats are %+v, want %+v", s, want)
		}
	})
	e.run(r, func(c *client) { c.recv() })
	e.run(local, func(c *client) { c.recv() })
}

func random(e *env) {
	seen := map[uint64]bool{}
	for range 4 {
		c := e.client(0)
		for range 100 {
			seen[c.Rand()] = true
		}
	}
	if len(seen) != 400 {
		e.t.Errorf("400 random numbers, %d different", len(seen))
	}
}

func closedPort(e *env, p fabric.Port, to fabric.ClientID) {
	e.t.Helper()
	ops := []fabric.Op{fabric.FAA(fabric.At(0, 64), 1)}
	_, post := p.Post(ops)
	_, recv := p.Recv(fabric.Forever)
	for what, err := range map[string]error{"Do": p.Do(ops), "Post": post, "Recv": recv,
		"Send": p.Send(to, &fabric.Message{Kind: fabric.MsgUser}), "Pause": p.Pause(fabric.Forever), "Abandon": p.Abandon(),
		"Reattach": p.Reattach(0, 1), "Reattach to a memory node that is not there": p.Reattach(fabric.MaxMem, 1)} {
		if !errors.Is(err, fabric.ErrClosed) {
			e.t.Errorf("%s on a closed Port: %v", what, err)
		}
	}
	for range 2 {
		if err := p.Close(); err != nil {
			e.t.Errorf("Close of a closed Port: %v", err)
		}
	}
}

func closePort(e *env) {
	p, other := e.client(0), e.client(1)
	if err := p.Close(); err != nil {
		e.t.Fatal(err)
	}
	closedPort(e, p, other.ID())
	e.run(other, func(c *client) { c.want(fabric.At(0, 64), 0) })
}

// closePattern is what a chain of closeBeside reads.
var closePattern = bytes.Repeat([]byte{0xa5, 1, 2, 3}, 128)

// closeBeside closes Ports while their clients add to words, alone and by Post, or wait for messages. In the last round their node is closed.
func closeBeside(e *env) {
	const clients, rounds = 6, 5
	word := func(r, k int) fabric.Addr { return fabric.At(0, uint64(4096+64*(r*clients+k))) }
	var sure, maybe [rounds][clients]uint64
	e.solo(func(c *client) { c.write(fabric.At(0, 0), closePattern) })
	for r := range rounds {
		last := r == rounds-1
		for k := range clients {
			on := k % 2
			if last {
				on = 0
			}
			p := e.client(on)
			e.run(p, func(c *client) { sure[r][k], maybe[r][k] = c.untilClosed(word(r, k), k/2) })
			if last {
				continue
			}
			e.run(e.client(1-on), func(c *client) {
				c.begun(word(r, k))
				c.pause(fabric.Time(r*k) * 10 * fabric.Microsecond)
				c.must(p.Close(), "Close")
			})
		}
		if last {
			e.run(e.client(1), func(c *client) {
				for k := range clients {
					c.begun(word(r, k))
				}
				c.must(e.cl.Node(0).Close(), "Close of the node")
			})
		}
		e.cl.Wait()
	}
	e.run(e.client(1), func(c *client) {
		for r := range rounds {
			for k := range clients {
				if got := c.load(word(r, k)); got < sure[r][k] || got > sure[r][k]+maybe[r][k] {
					c.fatal("round %d, client %d: the word is %d, want %d to %d", r, k, got, sure[r][k], sure[r][k]+maybe[r][k])
				}
			}
		}
	})
}

// indexOf returns which operation of a chain failed, by its error.
func indexOf(err error) int {
	if ce := (*fabric.ChainError)(nil); errors.As(err, &ce) {
		return ce.Index
	}
	return 0
}

// begun waits until a word has been added to.
func (c *client) begun(word fabric.Addr) {
	for limit := c.Now() + patience; c.load(word) == 0; c.pause(10 * fabric.Microsecond) {
		if c.Now() > limit {
			c.fatal("nothing is added to %v", word)
		}
	}
}

// untilClosed adds to a word until the Port is closed. It returns how often it has, and how often it may have besides.
func (c *client) untilClosed(word fabric.Addr, how int) (sure, maybe uint64) {
	buf := c.Alloc(len(closePattern))
	defer func() { // its memory is still good
		c.Free(buf)
		buf = c.Alloc(2 * len(closePattern))
		clear(buf)
		c.Free(buf)
	}()
	for {
		clear(buf)
		ops := []fabric.Op{fabric.FAA(word, 1), fabric.Load(word), fabric.Read(fabric.At(0, 0), buf)}
		ops[0].Old, ops[1].Old = 1<<60, 1<<60
		var p fabric.Pending
		var err error
		if how != 1 {
			err = c.Do(ops)
		} else if p, err = c.Post(ops); err == nil {
			err = c.Wait(p)
		}
		switch {
		case err == nil && (ops[0].Old != sure || ops[1].Old != sure+1 || !bytes.Equal(buf, closePattern)):
			c.fatal("FAA %d returned %#x, and the READs behind it %#x and %x", sure, ops[0].Old, ops[1].Old, buf)
		case err == nil:
			sure++
		case errors.Is(err, fabric.ErrUnknownOutcome), indexOf(err) > 0: // the FAA comes before what failed
			maybe++
		}
		if err == nil && how == 2 {
			_, err = c.Recv(fabric.Forever)
		}
		if err != nil {
			c.fails(err, fabric.ErrClosed, "an operation of a Port that was closed meanwhile")
			return sure, maybe
		}
	}
}

func closeNode(e *env) {
	p, q, other := e.client(0), e.client(0), e.client(1)
	n := e.cl.Node(0)
	for range 2 {
		if err := n.Close(); err != nil {
			e.t.Fatal(err)
		}
	}
	closedPort(e, p, other.ID())
	closedPort(e, q, other.ID())
	if _, err := n.Open(); !errors.Is(err, fabric.ErrClosed) {
		e.t.Errorf("Open on a closed Node: %v", err)
	}
	e.run(other, func(c *client) { c.want(fabric.At(0, 64), 0) })
}

// hears runs a body on a node's agent that waits for the view without gone.
func (e *env) hears(node int, gone fabric.CNID) {
	n := e.cl.Node(node)
	e.run(e.agent(node), func(c *client) {
		before := uint64(0)
		for {
			m, err := c.Recv(c.Now() + patience)
			c.must(err, "Recv of a view")
			if m.Kind != fabric.MsgView {
				continue
			}
			if m.From != 0 || m.Body[0] < before {
				c.fatal("view %+v after epoch %d", m, before)
			}
			before = m.Body[0]
			v := n.View()
			if v.Epoch < m.Body[0] {
				c.fatal("MsgView of epoch %d, and View is of %d", m.Body[0], v.Epoch)
			}
			if !v.Live.Has(gone) {
				if !v.Live.Has(n.ID()) {
					c.fatal("the view is %+v: I am not in it", v)
				}
				break
			}
		}
		c.fails(c.Send(fabric.Client(gone, 1), &fabric.Message{Kind: fabric.MsgUser}), fabric.ErrNodeDown, "Send to a node that is gone")
	})
}

func leave(e *env, end func(fabric.Node) error, lost uint64) {
	gone := e.cl.Node(1).ID()
	before := e.cl.Node(0).View()
	// A client has been at work before.
	e.complete(e.client(2), func(c *client) { c.do(fabric.FAA(fabric.At(0, 64), 1)) })
	if err := end(e.cl.Node(1)); err != nil {
		e.t.Fatal(err)
	}
	e.hears(0, gone)
	e.hears(2, gone)
	e.cl.Wait()
	if now := e.cl.Node(0).View(); now.Epoch <= before.Epoch || now.Lost != before.Lost+lost {
		e.t.Errorf("the view was %+v and is %+v", before, now)
	}
}
