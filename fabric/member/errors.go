package member

import "errors"

// Errors of joining.
var (
	// ErrFull: all numbers of compute nodes are taken.
	ErrFull = errors.New("member: all numbers of compute nodes are taken")
	// ErrInUse: another process is this memory node.
	ErrInUse = errors.New("member: there is a memory node with this number")
	// ErrUnknown: the cluster has no memory node with this number.
	ErrUnknown = errors.New("member: the cluster knows no memory node with this number")
	// ErrChanged: the group of a memory-node number has changed since: look again, and then try again if that is still right.
	ErrChanged = errors.New("member: the replicas of this memory-node number have changed meanwhile")
	// ErrReplica: a group does not allow the change.
	ErrReplica = errors.New("member: this replica cannot be changed so")
	// ErrUnreachable: the coordinator does not answer.
	ErrUnreachable = errors.New("member: the coordinator cannot be reached")
	// ErrRefused: the coordinator does not accept this process: name, password or certificate.
	ErrRefused = errors.New("member: the coordinator refuses us")
	// ErrLeftOut: the program has no coordinator.
	ErrLeftOut = errors.New("this program is for shared memory only: it was built with -tags shmonly, which leaves etcd and RDMA out; build it without")
)
