package sim

import (
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// A memNode is a memory node.
type memNode struct {
	id      fabric.MemID
	member  *membership
	region            // of its own number
	backups []*backup // of others
	nic     nic
	split   []*Chain // whose atomics have read and not written yet
	dead    bool
	revoked bool // its key is refused
	// replicas is how many copies its number has; 0: it is not replicated.
	replicas int
	room     uint64 // for copies of others
	c        *Cluster
}

// AddMN adds a memory node with size bytes of zeroed memory.
func (c *Cluster) AddMN(size uint64) fabric.MemID { return c.addMN(size, 0) }

func (c *Cluster) addMN(size uint64, replicas int) fabric.MemID {
	if len(c.mns) > int(fabric.MaxMem) || size > fabric.MaxOffset+1 {
		panic(fmt.Sprintf("sim: AddMN(%d) as number %d", size, len(c.mns)))
	}
	mn := &memNode{id: fabric.MemID(len(c.mns)), region: region{mem: newMemory(size)}, nic: newNIC(c.nic), replicas: replicas, c: c}
	c.mns = append(c.mns, mn)
	c.beginEpoch(mn, 0)
	return mn.id
}

func (c *Cluster) mn(id fabric.MemID) *memNode {
	if int(id) >= len(c.mns) {
		panic(fmt.Sprintf("sim: no %v among %d memory nodes", id, len(c.mns)))
	}
	return c.mns[id]
}

// Peek reads memory at the present instant, past all NICs: for oracles and tests.
func (c *Cluster) Peek(a fabric.Addr, buf []byte) {
	c.meddled()
	mn := c.primary(a.MN())
	if !mn.mem.inBounds(a.Offset(), len(buf)) {
		panic(fmt.Sprintf("sim: Peek of %d bytes at %v", len(buf), a))
	}
	mn.mem.read(a.Offset(), buf)
}

// PeekWord is Peek of the aligned word at a.
func (c *Cluster) PeekWord(a fabric.Addr) uint64 {
	c.meddled()
	mn := c.primary(a.MN())
	if a%8 != 0 || !mn.mem.inBounds(a.Offset(), 8) {
		panic(fmt.Sprintf("sim: PeekWord at %v", a))
	}
	return mn.mem.word(a.Offset())
}

// Poke writes memory at the present instant, past all NICs: to corrupt it, or to set a scene.
func (c *Cluster) Poke(a fabric.Addr, data []byte) {
	mn := c.primary(a.MN())
	if !mn.mem.inBounds(a.Offset(), len(data)) {
		panic(fmt.Sprintf("sim: Poke of %d bytes at %v", len(data), a))
	}
	if c.untimed != nil {
		c.meddled()
		before := mn.mem.hash(a.Offset(), len(data))
		defer func() { mn.sum += mn.mem.hash(a.Offset(), len(data)) - before }()
	}
	mn.mem.write(a.Offset(), data)
}

// NICStats returns the counters of a memory node's NIC.
func (c *Cluster) NICStats(id fabric.MemID) NICStats { return c.mn(id).nic.stats }

// clientState is what an index of a compute node is used for.
type clientState uint8

const (
	clientAbsent    clientState = iota
	clientOpen                  // messages go to its Port
	clientAbandoned             // messages go to the agent
)

type client struct {
	state clientState
	port  *Port
}

// A core is what clients share: a CPU, and a queue pair to each memory node.
type core struct {
	free fabric.Time // when the CPU has done what was asked of it
	qps  []*queuePair
}

// A Node is a compute node. It implements fabric.Node; unlike there, its
// methods are for the clients' coroutines and the goroutine that runs the cluster.
type Node struct {
	c      *Cluster
	id     fabric.CNID
	member *membership
	nic    nic // only its links
	clock  Clock
	cores  []core // the last is the agent's
	agent  *Port
	view   fabric.View
	// incarnations are those of the nodes that are live in the view.
	incarnations []member.CN
	paused       bool
	waits        bool    // the ledger does not admit it yet
	held         []*Task // their start was held up by that, or by the pause
	deaf         bool    // news came while it was paused
	dead         bool    // killed: no code runs
	fenced       bool    // knows that the cluster has given it up, or that it has left
	closed       bool

	// OnFenced is called when the node learns that the cluster has given it up. It must not wait, and may be nil.
	OnFenced func()

	clients []client // by index
	freed   []int    // indexes given back, the oldest first

	lastMsg [int(fabric.MaxCN) + 1]fabric.Time // arrival of the last message to each node
	downMN  []bool                             // memory nodes known to be down
	linger  []lingering                        // by memory node
	lapsed  bool                               // its lease has run out: nothing that a replicated number answers counts
	unheard bool                               // ... while it was paused
	acts    *member.State                      // that the node acts on; nil: no number is replicated

	place int // in Cluster.nodes

	device *device // nil: it is no switch

	host *memNode // on whose machine it is; nil: on one of its own
}

var _ fabric.Node = (*Node)(nil)

// AddCN adds a compute node, with the lowest free number that no switch has had. If the cluster has already run, the others' agents
// get a MsgView, and its code begins when all have acknowledged that it is there. It panics if all numbers are taken.
func (c *Cluster) AddCN() *Node {
	e := c.reserveCN()
	for ; c.switches.Has(e.CN.ID); e = c.reserveCN() {
		c.away = append(c.away, e)
	}
	return c.addCN(e)
}

// reserveCN reserves the lowest free number.
func (c *Cluster) reserveCN() *member.Entry {
	e, err := c.ledger.ReserveCN("")
	if err != nil {
		panic(fmt.Sprintf("sim: AddCN: %v", err))
	}
	return e
}

// addCN adds a node with a number that was reserved.
func (c *Cluster) addCN(e *member.Entry) *Node {
	n := &Node{c: c, id: e.CN.ID, cores: make([]core, c.cfg.Cores+1)}
	if i := len(c.nodes); i < len(c.cfg.Clocks) {
		n.clock = c.cfg.Clocks[i]
	}
	c.cns[n.id] = n
	n.clients = make([]client, 1, 64)
	n.takes()
	n.agent = n.newPort(0)
	n.member = &membership{entry: e, node: n}
	c.enter(n.member)
	n.takeView(c.ledger.View())
	n.waits = !c.ledger.Admits(n.member.since)
	n.place = len(c.nodes)
	c.nodes = append(c.nodes, n)
	return n
}

// inject puts a message of the fabric itself into the agent's inbox.
func (c *Cluster) inject(n *Node, m fabric.Message) {
	c.meddled()
	i := c.newFlight(m, nil, n, fabric.AgentOf(n.id))
	c.post(c.now, evDeliver, i, 0)
}

// ID returns the number of the compute node.
func (n *Node) ID() fabric.CNID { return n.id }

// Caps returns what the fabric can do.
func (n *Node) Caps() fabric.Caps { return n.c.caps() }

func (c *Cluster) caps() fabric.Caps {
	return fabric.Caps{Fabric: "sim", Masked: c.nic.Masked, Atomic16: c.nic.Atomic16,
		Inline: 0, MaxAtomics: c.nic.MaxAtomics, ReadsInOrder: c.cfg.ExchangeReads == 0, GlobalAtomics: !c.cfg.SplitAtomics, CutsEpochs: true}
}

// Memory lists the memory nodes.
func (n *Node) Memory() []fabric.Memory {
	list := make([]fabric.Memory, len(n.c.mns))
	for i, mn := range n.c.mns {
		list[i] = fabric.Memory{ID: mn.id, Size: mn.mem.size, Epoch: n.epochOf(mn.id)}
		if g := n.groupOf(mn.id); g != nil {
			list[i].Term = g.Term
		}
		n.c.tell(uint64(list[i].Epoch))
	}
	return list
}

// MemoryEpoch is fabric.Node.MemoryEpoch.
func (n *Node) MemoryEpoch(id fabric.MemID) uint32 {
	if int(id) >= len(n.c.mns) {
		return 0
	}
	epoch := n.epochOf(id)
	n.c.tell(uint64(epoch))
	return epoch
}

// Leased is fabric.Node.Leased.
func (n *Node) Leased() bool {
	leased := uint64(1)
	if n.lapsed {
		leased = 0
	}
	n.c.tell(leased)
	return leased != 0
}

// View returns the compute nodes that are live in the state that this node acts on.
func (n *Node) View() fabric.View {
	n.c.tell(n.view.Epoch)
	return n.view
}

// Agent returns the Port of the node's agent.
func (n *Node) Agent() fabric.Port { return n.agent }

// Open returns a Port for a new client.
func (n *Node) Open() (fabric.Port, error) {
	if n.closed || n.c.closed {
		return nil, fmt.Errorf("sim: open on %v: %w", n.id, fabric.ErrClosed)
	}
	if n.fenced {
		return nil, fmt.Errorf("sim: open on %v: %w", n.id, fabric.ErrFenced)
	}
	i, err := n.takeIndex()
	if err != nil {
		return nil, err
	}
	n.c.meddled()
	return n.newPort(i), nil
}

// takeIndex returns an index without a client: a new one while there are some,
// then the one that has been free for the longest time, so that messages to its
// former client have all gone.
func (n *Node) takeIndex() (int, error) {
	if len(n.clients) <= fabric.MaxClientIndex {
		n.clients = append(n.clients, client{})
		return len(n.clients) - 1, nil
	}
	if len(n.freed) == 0 {
		return 0, fmt.Errorf("%w: %v", fabric.ErrTooManyClients, n.id)
	}
	i := n.freed[0]
	n.freed = n.freed[1:]
	return i, nil
}

func (n *Node) release(i int) {
	n.clients[i] = client{}
	if i != 0 {
		n.freed = append(n.freed, i)
	}
}

// Retire makes an abandoned ID free.
func (n *Node) Retire(id fabric.ClientID) {
	i := id.Index()
	if id.CN() != n.id || i >= len(n.clients) || n.clients[i].state != clientAbandoned {
		panic(fmt.Sprintf("sim: Retire(%v) on %v: not abandoned", id, n.id))
	}
	n.agent.shuts() // it got what is sent to the ID
	n.release(i)
}

// Abandoned returns how many of the node's client IDs have been abandoned and not been retired yet.
func (n *Node) Abandoned() (count int) {
	for i := range n.clients {
		if n.clients[i].state == clientAbandoned {
			count++
		}
	}
	return count
}

// coreOf returns the core that runs the client of an index.
func (n *Node) coreOf(index int) *core {
	if index == 0 {
		return &n.cores[len(n.cores)-1]
	}
	return &n.cores[(index-1)/n.c.cfg.ClientsPerCore%(len(n.cores)-1)]
}

// Close leaves the cluster: all Ports are closed and the others get a new view.
func (n *Node) Close() error { return n.end(member.Left) }

// Fail is fabric.Node.Fail.
func (n *Node) Fail() error { return n.end(member.Died) }

func (n *Node) end(how member.Phase) error {
	if n.closed {
		return nil
	}
	n.closed = true
	n.c.meddled()
	for i := range n.clients {
		if p := n.clients[i].port; p != nil {
			p.shut()
		}
	}
	if !n.c.closed {
		n.c.leave(n.member, how)
	}
	return nil
}

func (n *Node) String() string { return n.id.String() }
