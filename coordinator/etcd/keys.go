//go:build !shmonly

package etcd

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
)

// format is the version of the layout of keys.
const format = "2"

// formatGroups is that of a cluster in which a number of a memory node is, or was, replicated: with dirGroup, and format otherwise. A program that does not know groups would take
// a spare for the memory node.
const formatGroups = "3"

// formatBefore is the version before, without keyHistory and dirServed. A cluster that has it, and of which no node is up, goes over to
// the present one when the first node joins.
const formatBefore = "1"

const (
	root       = "/declock/"
	keyFormat  = "format"
	keyLost    = "lost"
	keyHistory = "history"
	dirLive    = "live/"
	dirNode    = "node/"
	dirAck     = "ack/"
	dirEpoch   = "epoch/"
	dirForgot  = "forgotten/"
	dirServed  = "served/"
	dirGroup   = "group/"

	// behindAcks is behind all keys of dirAck, which come before all others.
	behindAcks = "ack0"

	maxRecord = 1 << 16 // bytes of a value: a memory node may know many groups
	maxAddr   = 512
)

// errRecord: a key under our prefix holds what we have not written.
var errRecord = errors.New("not a record of a cluster")

// A number names a node that has a number: a compute node or a memory node.
type number struct {
	cn bool
	id uint16
}

func (n number) String() string {
	if n.cn {
		return fmt.Sprintf("cn/%03d", n.id)
	}
	return fmt.Sprintf("mn/%05d", n.id)
}

func parseNumber(s string) (n number, err error) {
	kind, digits, _ := strings.Cut(s, "/")
	bits := 16
	if n.cn = kind == "cn"; n.cn {
		bits = 8
	}
	id, err := strconv.ParseUint(digits, 10, bits)
	n.id = uint16(id)
	if err != nil || n.String() != s || n.cn && n.id == 0 {
		return n, fmt.Errorf("%w: %q", errRecord, s)
	}
	return n, nil
}

func cnNumber(id fabric.CNID) number  { return number{cn: true, id: uint16(id)} }
func mnNumber(id fabric.MemID) number { return number{id: uint16(id)} }

// Reasons of having gone.
const (
	goneLeft = "left"
	goneDied = "died"
)

// A record is the value of a node key.
type record struct {
	Incarnation member.Incarnation `json:"life"`
	Addr        string             `json:"addr"`
	Size        uint64             `json:"size,omitempty"`
	Epoch       uint32             `json:"epoch,omitempty"`
	Gone        string             `json:"gone,omitempty"`
	Replicas    int                `json:"replicas,omitempty"`
	MinInSync   int                `json:"minInSync,omitempty"`
	Label       string             `json:"label,omitempty"`
	Room        uint64             `json:"room,omitempty"`
	Was         member.Incarnation `json:"was,omitempty"`
	Known       []member.Known     `json:"known,omitempty"`
}

func (r *record) encode() string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers only
	}
	return string(b)
}

func decodeRecord(n number, value []byte) (record, error) {
	var r record
	if len(value) > maxRecord {
		return r, fmt.Errorf("%w: %d bytes", errRecord, len(value))
	}
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("%w: %v", errRecord, err)
	}
	ok := r.Incarnation != 0 && len(r.Addr) <= maxAddr && len(r.Label) <= maxAddr && (r.Gone == "" || r.Gone == goneLeft || r.Gone == goneDied)
	for _, k := range r.Known {
		ok = ok && k.Group != nil && validGroup(k.Group)
	}
	if !ok || !n.cn && (r.Epoch == 0 || r.Size > fabric.MaxOffset) {
		return r, fmt.Errorf("%w: %q", errRecord, value)
	}
	return r, nil
}

// servedKey is where the last epoch is in which the join of a memory node succeeded.
func servedKey(n number) string { return dirServed + n.String()[len("mn/"):] }

// epochKey is where the last epoch of a memory node is, and forgotKey the one with which it was forgotten.
func epochKey(n number) string  { return dirEpoch + n.String()[len("mn/"):] }
func forgotKey(n number) string { return dirForgot + n.String()[len("mn/"):] }

// groupKey is where the group of a memory-node number is.
func groupKey(n number) string { return dirGroup + n.String()[len("mn/"):] }

func ackKey(l member.Incarnation) string { return dirAck + strconv.FormatUint(uint64(l), 16) }

func parseAckKey(s string) (member.Incarnation, error) {
	l, err := strconv.ParseUint(s, 16, 64)
	if err != nil || l == 0 {
		return 0, fmt.Errorf("%w: %q", errRecord, s)
	}
	return member.Incarnation(l), nil
}

func parseCount(value []byte) (uint64, error) {
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %q", errRecord, value)
	}
	return n, nil
}

func count(n uint64) string { return strconv.FormatUint(n, 10) }
