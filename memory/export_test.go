package memory

import "github.com/declock/declock/fabric"

// Entries returns how many root entries there can be.
func (r *Region) Entries() int { return r.plan.entries }

// TableOffset is where the page table begins.
func (r *Region) TableOffset() uint64 { return r.plan.table }

// A Claim is a root entry that was begun and is not published.
type Claim struct {
	Slot    int
	Creator fabric.CNID
}

// Claims returns the entries that are being created, or were left half
// created by compute nodes that died.
func (r *Region) Claims(port fabric.Port) ([]Claim, error) {
	d := r.directory(port)
	defer d.free()
	if err := d.read(); err != nil {
		return nil, err
	}
	var list []Claim
	for i := range d.r.plan.entries {
		if st := d.state(i); st.state() == claimClaimed {
			list = append(list, Claim{Slot: i, Creator: st.owner()})
		}
	}
	return list, nil
}

// LevelEntry makes the state of a root entry at the backups what it is at the primary.
func (r *Region) LevelEntry(port fabric.Port, slot int) error {
	d := r.directory(port)
	defer d.free()
	return d.level(slot)
}
