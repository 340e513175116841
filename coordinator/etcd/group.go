//go:build !shmonly

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

func encodeGroup(g *member.Group) string {
	b, err := json.Marshal(g)
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
	g := new(member.Group)
	if len(kv.Value) > maxRecord {
		return fmt.Errorf("%w: %d bytes", errRecord, len(kv.Value))
	}
	if err := json.Unmarshal(kv.Value, g); err != nil {
		return fmt.Errorf("%w: %v", errRecord, err)
	}
	g.ID, g.Changed = fabric.MemID(n.id), uint64(kv.ModRevision) // of its last change
	if !validGroup(g) || g.Lost != nil && (g.Lost.Group == nil || !validGroup(g.Lost.Group)) {
		return fmt.Errorf("%w: %q", errRecord, kv.Value)
	}
	v.groups[g.ID] = g
	return nil
}

func validGroup(g *member.Group) bool {
	ok := g.Term != 0 && g.Epoch != 0 && g.Size <= fabric.MaxOffset
	for i, x := range g.Replicas {
		ok = ok && x.Host != 0 && x.Number != 0 && x.Number <= g.Made && x.Phase <= member.InSync && (i > 0 || x.Phase == member.InSync)
	}
	return ok
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
