package tcp

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/declock/declock/fabric"
)

// executeShared is execute on a connection for frames of several lanes, all to replicated numbers. A frame is executed if its lane is let in, and has executed all frames before it: what a
// lane has sent before it was cut, or was connected anew, comes to nothing, and its node is notified. So it is if frames of the lane are missing: it is cut. exec is held.
func (c *laneConn) executeShared(n *workerStats) (full bool, err error) {
	if err := c.s.peer.Lapsed(); err != nil {
		return false, err
	}
	var h header
	var to *laneConn // of the last frame: its exec is held, too
	defer func() { to.executed() }()
	at, frames := 0, uint64(0)
	for !c.isCut() {
		ok, err := h.parse(c.in[at:c.have])
		if err != nil {
			return false, err
		}
		if !ok {
			break
		}
		if full = len(c.out) >= fullAnswers; full {
			break
		}
		if h.kind != frameChain || h.count > fabric.MaxChain {
			return false, fmt.Errorf("%w: frame %d, of kind %d, with %d operations", ErrProtocol, uint32(h.number), h.kind, h.count)
		}
		if tag := uint32(h.number >> 32); to == nil || to.tag != tag {
			to.executed()
			if to = c.riderOf(tag); to != nil {
				to.exec.Lock()
			}
		}
		if err := c.executeOf(to, &h, c.in[at+headerSize:at+h.length], n); err != nil {
			return false, err
		}
		at += h.length
		frames++
	}
	if c.isCut() {
		return false, fmt.Errorf("%w: cut", fabric.ErrFenced)
	}
	c.have = copy(c.in[:], c.in[at:c.have])
	n.publish(frames)
	return full, nil
}

// executed gives exec of a lane back.
func (c *laneConn) executed() {
	if c != nil {
		c.exec.Unlock()
	}
}

// executeOf executes a frame of a lane, of which exec is held; nil: none is let in with its tag. The answer has the tag, too.
func (c *laneConn) executeOf(to *laneConn, h *header, body []byte, n *workerStats) (err error) {
	behind := int32(0)
	if to != nil {
		behind = int32(uint32(h.number) - to.expect)
	}
	start := len(c.out)
	if behind > 0 && !to.isCut() { // the other lanes go on
		to.ends.Store(true)
		c.missed = append(c.missed, fmt.Errorf("connection from %v: %w: frame %d of a lane to %v, where %d is due", c.stream.Load().remote, ErrProtocol, uint32(h.number), to.region.id, to.expect))
	}
	if to == nil || to.isCut() || behind < 0 {
		c.out = append(c.out, make([]byte, headerSize)...)
		answer := header{length: headerSize, kind: frameAnswer, status: statusCut, number: h.number}
		answer.put(c.out[start:])
		return nil
	}
	tagged := h.number
	h.number = laneNumber(uint32(h.number), to.key)
	if c.out, err = to.region.nic.execute(h, body, c.out, &n.pending); err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(c.out[start+8:], tagged)
	to.expect++
	to.lane.executed = to.expect
	if to.region.mem.isLost() { // no answer is sent: clients hear that the outcome is unknown
		return to.region.mem.damage()
	}
	return nil
}

// riderOf returns the lane with a tag, of the node that the connection is of and of the same index; nil: none is let in.
func (c *laneConn) riderOf(tag uint32) *laneConn {
	for _, x := range c.riders {
		if x.tag == tag && !x.isCut() {
			return x
		}
	}
	c.riders = slices.DeleteFunc(c.riders, func(x *laneConn) bool { return x.isCut() })
	x, ok := c.s.riders.Load(riderKey{c.lane.incarnation, c.lane.index, tag})
	if !ok {
		return nil
	}
	c.riders = append(c.riders, x.(*laneConn))
	return x.(*laneConn)
}
