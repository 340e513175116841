package peer

import (
	"testing"

	"github.com/declock/declock/fabric/member"
)

// A memory node keeps the copy that a group has by an incarnation of which the memory node has not heard that.
func TestReplicaOfUnheardIncarnation(t *testing.T) {
	s := &Server{Own: member.MN{Incarnation: 3, Was: 1}}
	g := &member.Group{Replicas: []member.Replica{{Host: 5, Was: 4}, {Host: 2, Was: 1}}}
	if i, current := s.Replica(g); i != 1 || current {
		t.Errorf("replica %d, %v", i, current)
	}
	s.Own.Was = 0
	if i, _ := s.Replica(g); i >= 0 {
		t.Errorf("it has never been a host, and has replica %d", i)
	}
}
