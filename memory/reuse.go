package memory

// What has been retired may be used by clients that do not know yet. Memory of which the old users and the new ones may be at work beside each other can be published
// under another name, as it is: that of locks, which exclude all their users, under whatever name.
//
// The entry keeps its slot: its pages stay its own. Its generation grows by one, so no published word ever comes back, under whatever name: what compares or writes the word late
// finds another one. A client that publishes the entry claims it first, in a state of its own. If that compute node crashes, or fails, the entry is retired again by the next
// search, in the generation of before, of which its checksum is; if it has been written in part by then, it is never taken again.

// reusable returns the slot of a retired entry that serves, or none.
func (d *directory) reusable() (int, Entry, error) {
	s := d.spec
	for i := range d.r.plan.entries {
		if s.Reuse == nil || d.state(i).state() != claimKept {
			continue
		}
		e, ok := d.retired(i)
		if !ok || e.Kind != s.Kind || e.Length != s.Size || s.Align != 0 && e.Addr.Offset()%s.Align != 0 {
			continue
		}
		if ok, err := s.Reuse(&e); err != nil || ok {
			return i, e, err
		}
	}
	return none, Entry{}, nil
}

// withdrawn returns the word of slot i when what was claimed with w stays retired: in the generation of what the entry says, which may be the claim's by now.
func (d *directory) withdrawn(i int, w claimWord) claimWord {
	if _, err := decodeEntry(d.buf[i*entrySize:][:entrySize]); err == nil && d.state(i) == w {
		return w.kept()
	}
	return w.withdrawn()
}

// reuse tries to publish the retired entry of slot i under the name of the Spec. Like a client that claims a free slot (Create) it looks again when it has claimed, and
// withdraws if it sees another: then it returns false, as when another was faster.
func (d *directory) reuse(i int, e Entry) (Entry, bool, error) {
	s, st := d.spec, d.state(i)
	hash := nameHash(s.Name)
	s.Creating.begin(d.r.mn, hash)
	defer s.Creating.end(d.r.mn, hash)
	mine := makeClaim(claimReused, d.port.ID().CN(), st.gen()+1, hash)
	ok, err := d.cas(i, st, mine)
	if err != nil {
		return Entry{}, false, d.giveUp(i, mine, err)
	}
	if !ok {
		return Entry{}, false, nil
	}
	_, pub, claim, _, err := d.search(s.Name, i)
	if err != nil || pub != none || claim != none {
		return Entry{}, false, d.giveUp(i, mine, err)
	}
	e.Name, e.Info, e.Creator, e.gen = s.Name, s.Info, mine.owner(), mine.gen()
	if err := d.publish(i, mine, &e); err != nil {
		return Entry{}, false, err
	}
	return e, true, nil
}
