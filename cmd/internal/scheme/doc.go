// Package scheme is what the commands know of fabrics: how an address names a
// cluster, and how a process serves memory to it, joins it, and describes its members. Each fabric is one
// [Scheme], found by what stands before the colon of an address:
//
//	shm:NAME                      one machine, over shared memory
//	tcp://ETCD[,ETCD..]/NAME      any network; membership is in etcd
//	verbs://ETCD[,ETCD..]/NAME    RDMA NICs; membership is in etcd
//
// All else in the commands is the same for all fabrics.
package scheme
