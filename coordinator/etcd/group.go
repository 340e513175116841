package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A groupRecord is the value of a group key: member.Group. Its revision is that of its last change.
type groupRecord struct {
	Factor   int             `json:"factor"`
	Size     uint64          `json:"size"`
	Term     uint32          `json:"term"`
	Epoch    uint32          `json:"epoch"`
	Serving  bool            `json:"serving,omitempty"`
	Replicas []replicaRecord `json:"replicas"` // none: what it had was given up
	Made     uint32          `json:"made"`

	Origin member.Incarnation `json:"origin"`
	Began  uint32             `json:"began"`
}

type replicaRecord struct {
	Host   member.Incarnation  `json:"host"`
	ID     fabric.MemID        `json:"id"`
	Phase  member.ReplicaPhase `json:"phase"`
	Number uint32              `json:"number"`
}

func encodeGroup(g *member.Group) string {
	r := groupRecord{g.Factor, g.Size, g.Term, g.Epoch, g.Serving, []replicaRecord{}, g.Made, g.Origin, g.Began}
	for _, x := range g.Replicas {
		r.Replicas = append(r.Replicas, replicaRecord(x))
	}
	b, err := json.Marshal(&r)
	if err != nil {
		panic(err) // numbers only
	}
	return string(b)
}

// decodeGroup takes a group key into the view.
func (v *view) decodeGroup(number string, kv *mvccpb.KeyValue) error {
	n, err := parseNumber("mn/" + number)
	if err != nil {
		return err
	}
	g, err := decodeGroup(fabric.MemID(n.id), kv)
	if err == nil {
		v.groups[g.ID] = g
	}
	return err
}

func decodeGroup(id fabric.MemID, kv *mvccpb.KeyValue) (*member.Group, error) {
	var r groupRecord
	if len(kv.Value) > maxRecord {
		return nil, fmt.Errorf("%w: %d bytes", errRecord, len(kv.Value))
	}
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return nil, fmt.Errorf("%w: %v", errRecord, err)
	}
	ok := r.Term != 0 && r.Epoch != 0 && r.Size <= fabric.MaxOffset
	g := &member.Group{ID: id, Factor: r.Factor, Size: r.Size, Term: r.Term, Epoch: r.Epoch, Serving: r.Serving, Made: r.Made, Origin: r.Origin, Began: r.Began, Changed: uint64(kv.ModRevision)}
	for i, x := range r.Replicas {
		ok = ok && x.Host != 0 && x.Number != 0 && x.Number <= r.Made && x.Phase <= member.InSync && (i > 0 || x.Phase == member.InSync)
		g.Replicas = append(g.Replicas, member.Replica(x))
	}
	if !ok {
		return nil, fmt.Errorf("%w: %q", errRecord, kv.Value)
	}
	return g, nil
}

// putGroup puts a group in the place of that of a view. errStale: another step was faster, or a memory node that is to serve is none any more.
func (c *Coordinator) putGroup(ctx context.Context, v *view, g *member.Group) error {
	n := mnNumber(g.ID)
	modified := int64(0)
	if before := v.groups[g.ID]; before != nil {
		modified = int64(before.Changed)
	}
	epoch := v.epochs[g.ID]
	when := []clientv3.Cmp{c.holds(keyFormat, formatGroups), c.in(v.history), c.unchanged(groupKey(n), modified), c.unchanged(epochKey(n), epoch.modified)}
	for host, live := range v.live { // the end of a lease is no step
		if live == g.Primary() && !host.cn {
			when = append(when, c.holds(dirLive+host.String(), count(uint64(live))))
		}
	}
	then := []clientv3.Op{c.put(groupKey(n), encodeGroup(g), clientv3.NoLease)}
	if uint64(g.Epoch) > epoch.n {
		then = append(then, c.put(epochKey(n), count(uint64(g.Epoch)), clientv3.NoLease))
	}
	_, err := c.commit(ctx, when, c.step(then...)...)
	return err
}

// Change is member.Service.Change.
func (c *Coordinator) Change(ctx context.Context, x member.Change) error {
	for {
		v, err := c.list(ctx)
		if err != nil {
			return err
		}
		g, err := v.ledger().Changed(x)
		if err != nil {
			return err
		}
		if err = c.putGroup(ctx, v, g); !errors.Is(err, errStale) {
			return err
		}
	}
}
