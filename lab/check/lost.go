package check

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/sim"
	"github.com/declock/declock/hier"
	"github.com/declock/declock/lab/oracle"
	"github.com/declock/declock/lock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// losses has memory nodes come back without their memory, and some with it.
func (s *Scenario) losses(d *drawer) {
	kept := pick(d, 0, 30)
	s.impatient()
	for i := range d.between(1, 3) {
		t := s.at(d)
		kind := sim.FaultRestart
		if i > 0 && d.percent(kept) {
			kind = sim.FaultReboot
		}
		s.Plan = append(s.Plan, sim.Fault{At: t, Kind: kind, Node: sim.OfMN(fabric.MemID(d.Uint64n(uint64(s.MNs)))),
			Until: t + 1 + d.time(2*fabric.Millisecond)})
	}
}

// formatNs is how long a memory node may take to format its memory when it is back.
const formatNs = 50 * fabric.Microsecond

// generationAt is where a memory that holds nothing but locks says which of its memory node's it is: its number plus 1.
const generationAt = 128

// words is a memory node's own access to its memory.
type words struct {
	c  *sim.Cluster
	mn fabric.MemID
}

// Load implements memory.Words.
func (o words) Load(offset uint64) uint64 { return o.c.PeekWord(fabric.At(o.mn, offset)) }

// Store implements memory.Words.
func (o words) Store(offset, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	o.c.Poke(fabric.At(o.mn, offset), b[:])
}

// format formats a memory node's memory, as the memory node itself does.
func (w *world) format(i int) {
	generation := w.generations[i]
	if w.s.Keys == 0 {
		words{w.c, w.mns[i]}.Store(generationAt, uint64(generation)+1)
		return
	}
	prm := memory.Params{Size: storeSize, CapacityLog2: w.s.Capacity, VersionBits: min(w.s.Version, 32), Generation: generation}
	if err := memory.FormatOwn(w.mns[i], words{w.c, w.mns[i]}, prm, memory.UUID{uint64(i), uint64(generation)}); err != nil {
		panic(fmt.Sprintf("check: format: %v", err)) // of memory that is zero
	}
}

// startLosses has memory that comes back empty formatted, a while later.
func (w *world) startLosses() {
	w.playing = true
	d := drawer{newRand(w.s.Seed, streamFormat)}
	for _, f := range w.s.Plan {
		if f.Kind != sim.FaultRestart {
			continue
		}
		i, late := int(f.Node.MN), pick(&d, 0, d.time(formatNs))
		w.c.At(w.began+f.Until, func() {
			w.generations[i]++
			w.event(oracle.Event{Kind: oracle.Lost, Lock: fabric.At(w.mns[i], 0)})
			for k := range w.s.Keys {
				key := fmt.Sprintf("key%d", k)
				if mn, _ := w.nodes[0].store.Locate([]byte(key)); mn == w.mns[i] {
					w.store.Lose(key)
				}
			}
			generation := w.generations[i]
			w.c.At(w.began+f.Until+late, func() {
				if w.generations[i] == generation { // else it is gone already
					w.format(i)
				}
			})
		})
	}
}

// configOf returns the configuration of a node's lock clients.
func (w *world) configOf(n *node) hier.Config {
	cfg := w.cfg
	if w.s.loses() {
		cfg.Verify = func(mn fabric.MemID) (uint32, error) { return w.verify(n, mn) }
	}
	return cfg
}

// verify looks which memory a memory node has now, for a node.
func (w *world) verify(n *node, mn fabric.MemID) (generation uint32, err error) {
	if !w.playing {
		return w.generations[mn], nil // while the scene is set nothing may run
	}
	p, err := n.sim.Open()
	if err != nil {
		return 0, err
	}
	defer p.Close()
	if w.s.Keys == 0 {
		ops := [1]fabric.Op{fabric.Load(fabric.At(mn, generationAt))}
		if err := p.Do(ops[:]); err != nil {
			return 0, err
		}
		if ops[0].Old == 0 {
			return 0, fmt.Errorf("%w: %v is just starting", fabric.ErrNodeDown, mn)
		}
		generation = uint32(ops[0].Old - 1)
	} else {
		r, err := memory.Open(p, mn)
		switch {
		case errors.Is(err, memory.ErrNotFormatted), errors.Is(err, memory.ErrHalfFormatted):
			return 0, fmt.Errorf("%w: %v is just starting: %w", fabric.ErrNodeDown, mn, err)
		case err != nil:
			return 0, err
		}
		generation = r.Generation()
	}
	if generation > n.generations[mn] {
		n.generations[mn] = generation
		if n.store != nil {
			n.store.MemoryLost(mn)
		}
	}
	return generation, nil
}

// A meeting is what a client has had to do with a memory node that may lose its memory.
type meeting struct {
	generation uint32 // of the memory in which it was granted a lock last
	known      bool   // there is such a one
	told       bool   // it has heard ErrMemoryLost since
}

// genOf draws by which address a client asks for a lock: as its node knows it, or by one of a memory before.
func (c *client) genOf(which int) fabric.Generation {
	c.oldAddress = false
	if len(c.n.generations) == 0 {
		return 0
	}
	generation := c.n.generations[c.w.locks[which].MN()]
	if generation > 0 && c.w.s.Old > 0 && c.name != "last" && c.d.percent(c.w.s.Old) {
		generation, c.oldAddress = uint32(c.d.Uint64n(uint64(generation))), true
	}
	return fabric.Generation(generation)
}

// hears notes that a client has heard that memory is lost: for an old address always, else once for each loss.
func (c *client) hears(which int, err error) error {
	if len(c.met) > 0 && errors.Is(err, lock.ErrMemoryLost) {
		c.met[c.w.locks[which].MN()].told = true
		if !c.oldAddress {
			c.heard++
		}
		if c.heard > c.losses() {
			c.w.object("lost memory", fmt.Sprintf("%v hears for the %dth time that memory is lost: %v", c.port.ID(), c.heard, err))
		}
	}
	return err
}

// losses returns how many memories have been lost.
func (c *client) losses() (n int) {
	for _, generation := range c.w.generations {
		n += int(generation)
	}
	return n
}

// hearings is how often a client of a store may hear of one loss: as a session, as a client, and while others make the store again.
const hearings = 20

// mayHear reports whether a client may hear now that memory is lost.
func (c *client) mayHear() bool {
	if c.oldAddress || c.w.s.Keys == 0 {
		return true // see hears
	}
	c.heard++
	return c.heard <= hearings*c.losses()
}

// knows judges a grant by an address: it is in the memory that there is, and the client has heard of what was lost since the last.
func (c *client) knows(which int, gen fabric.Generation) {
	mn := c.w.locks[which].MN()
	if len(c.met) == 0 || c.lost(c.w.locks[which]) {
		return
	}
	m, generation := &c.met[mn], c.w.generations[mn]
	switch {
	case gen != fabric.Generation(generation):
		c.w.object("lost memory", fmt.Sprintf("%v is granted %v in memory %d: there is memory %d", c.port.ID(), c.w.locks[which].In(gen), gen, generation))
	case m.known && m.generation != generation && !m.told:
		c.w.object("lost memory", fmt.Sprintf("%v is granted %v in memory %d, and was in memory %d before: nobody has said that what was there is gone",
			c.port.ID(), c.w.locks[which], generation, m.generation))
	}
	*m = meeting{generation: generation, known: true}
}

// acquireLast acquires a lock when all faults are over. A node may not know of a loss yet that no client of it has met.
func (c *client) acquireLast(which int) bool {
	for range 50 { // until the memory is formatted
		held, goesOn := c.acquire(which, &lock.Request{Mode: lock.Exclusive}, -1)
		if held || !goesOn || !c.w.s.loses() {
			return held
		}
	}
	c.w.object("errors", fmt.Sprintf("%v: the lock in the new memory is not granted", c.port.ID()))
	return false
}

// closeLost has the reclaimers of the nodes go on, since only they free claims that their nodes have left in the root directory, checks the store, and reads every key once more. Whose memory the lost one was is not known: it may be missing.
func (w *world) closeLost(p fabric.Port) {
	w.reclaimOn()
	defer func() { w.looking = false }()
	own := w.nodes[w.s.CNs]
	var st *objstore.Client
	err := lock.ErrMemoryLost
	for try := 0; try < 2*w.s.MNs+2 && errors.Is(err, lock.ErrMemoryLost); try++ {
		if st == nil {
			if st, err = own.store.Client(w.storeLocker(own, p)); err != nil {
				continue
			}
		}
		var r *objstore.Report
		if r, err = st.Check(objstore.CheckOptions{}); err == nil && !r.Sound() {
			w.object("store check", r.String())
		}
	}
	if err != nil {
		w.object("store check", err.Error())
		return
	}
	w.readAll(st, p)
}
