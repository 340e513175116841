package btree

import (
	"bytes"
	"fmt"
	"math"
	"math/bits"
)

// An Estimate is about how many keys a tree has.
type Estimate struct {
	Count uint64
	// Error is the standard error of Count, as far as the sample shows: Count is within twice of it in some 19 of 20 cases. 0: the
	// whole tree was read, and Count is what was there meanwhile.
	Error uint64
}

const (
	defaultSample = 256
	minSample     = 16
)

// Estimate estimates how many keys there are, level by level from the root: nodes of a level are read, all if they are no more than
// the sample, else as many as that, drawn at random from the children of those read above. Their mean number of children (of leaves: of
// keys) times the number of nodes is the number on the next level. sample 0 is 256, the least is 16.
func (c *Client) Estimate(sample int) (Estimate, error) {
	if sample == 0 {
		sample = defaultSample
	}
	sample = max(sample, minSample)
	if err := c.start(nil, nil); err != nil {
		return Estimate{}, err
	}
	defer c.session.End()
	for range maxTries {
		e, err := c.estimate(sample)
		if err != errGone {
			return e, err
		}
	}
	return Estimate{}, fmt.Errorf("%w: the root is always another", ErrCorrupt)
}

// A child is what a separator leads to.
type child struct {
	node ptr
	low  []byte // the separator
}

// estimate is Estimate. errGone: the root was another node.
func (c *Client) estimate(sample int) (Estimate, error) {
	root, err := c.loadRoot()
	if err != nil {
		return Estimate{}, err
	}
	level, nodes := []child{{node: root}}, 1.0 // those to be read, and how many there are
	variance := 0.0                            // of nodes, relative
	for depth := 0; ; depth++ {
		sum, squares := 0.0, 0.0
		var next []child
		leaf := false
		for _, x := range level {
			err := c.read(&c.n, c.leaf, x.node)
			if depth > 0 && isGone(err) {
				continue // it was empty, or is: its keys are its left neighbour's
			}
			if err != nil {
				return Estimate{}, err
			}
			items, err := c.sorted(&c.n)
			if err != nil {
				return Estimate{}, err
			}
			leaf = c.n.level == 0
			if c.n.dead || !bytes.Equal(c.n.low, x.low) {
				continue // a node that begins further left has taken the keys over: another separator leads to it, too
			}
			n := float64(len(items))
			sum, squares = sum+n, squares+n*n
			for i := range items {
				if !leaf {
					next = append(next, child{items[i].child(), bytes.Clone(items[i].key)})
				}
			}
		}
		k := float64(len(level))
		mean := sum / k
		if nodes > k && mean > 0 {
			variance += max(0, squares/k-mean*mean) / (mean * mean) / (k - 1)
		}
		nodes *= mean
		if leaf || len(next) == 0 {
			return Estimate{Count: uint64(nodes + 0.5), Error: uint64(math.Ceil(nodes * math.Sqrt(variance)))}, nil
		}
		// Children of one node may be alike: each of the sample is drawn from all that were found.
		for i := 0; len(next) > sample && i < sample; i++ {
			j, _ := bits.Mul64(c.port.Rand(), uint64(len(next)-i))
			next[i], next[i+int(j)] = next[i+int(j)], next[i]
		}
		level = next[:min(len(next), sample)]
	}
}
