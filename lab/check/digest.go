package check

// shares appends what the clients of a node share in exploration: the table, what others write into their Lockers, and the clock.
func (n *node) shares(dst []byte) []byte {
	dst = n.clock.AppendState(n.table.AppendState(dst))
	for _, k := range n.lockers {
		dst = k.AppendState(dst)
	}
	return dst
}
