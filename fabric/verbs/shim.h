// The C side of fabric/verbs: libibverbs, loaded when the program runs, behind
// a narrow interface that needs none of its headers. Nothing here keeps a pointer
// to Go memory. Functions that return int return 0 or an errno, unless they say else.

#ifndef DECLOCK_VERBS_SHIM_H
#define DECLOCK_VERBS_SHIM_H

#include <stdint.h>

typedef struct vb_device vb_device;   // an open device, with a protection domain
typedef struct ibv_comp_channel vb_channel; // a completion channel
typedef struct ibv_cq vb_cq;           // a completion queue
typedef struct ibv_mr vb_mr;           // a memory region
typedef struct ibv_qp vb_qp;           // a reliable connection

// What a device can do.
typedef struct {
	uint32_t max_cqe, max_rd_atomic, max_init_rd_atomic;
	uint32_t atomic; // 0: no atomics, 1: among the device's own, 2: with CPUs too
	uint32_t vendor_id;
	uint64_t max_mr_size;
} vb_caps;

// What a port is.
typedef struct {
	uint32_t active, ethernet, lid, mtu, max_message;
} vb_port;

// One end of a connection.
typedef struct {
	uint32_t qpn, psn, lid, mtu;
	uint8_t gid[16];
} vb_end;

// How a connection is set up.
typedef struct {
	uint8_t port, gid_index, global, service_level, traffic_class;
	uint8_t rd_atomic, dest_rd_atomic; // READs and atomics in flight from here and to here
	uint8_t timeout, retry;            // 4.096 us << timeout, times retry + 1
	uint8_t remote;                    // whether the peer may READ, WRITE and do atomics
} vb_path;

enum { VB_READ, VB_WRITE, VB_CAS, VB_FAA, VB_SEND, VB_SEND_IMM };
enum { VB_SIGNALED = 1, VB_FENCE = 2, VB_INLINE = 4 };

// An operation to post. arg and cmp are an atomic's operands.
typedef struct {
	uint64_t id;
	uint64_t remote, local;
	uint64_t arg, cmp;
	uint32_t len, lkey, rkey, imm;
	uint8_t kind, flags;
	uint8_t pad[6];
} vb_op;

// A completion. status is an IBV_WC_ value, 0 for success.
typedef struct {
	uint64_t id;
	uint32_t status, imm, vendor;
	uint32_t pad;
} vb_wc;

// vb_load loads libibverbs, once. It returns 0, or what is wrong: 1 no headers
// when this was built, 2 no library, 3 a library without a symbol. vb_missing
// then says which.
int vb_load(void);
const char *vb_missing(void);

vb_device *vb_open(const char *name, vb_caps *caps, int *error);
void vb_close(vb_device *d);
int vb_query_port(vb_device *d, uint8_t port, vb_port *out);

vb_channel *vb_channel_new(vb_device *d, int *fd);
void vb_channel_free(vb_channel *c);
// vb_channel_event takes an event and returns the cookie of its queue, 0 if there is none, or -1.
int64_t vb_channel_event(vb_channel *c);

// vb_cq_new makes a completion queue; cookie is positive.
vb_cq *vb_cq_new(vb_device *d, uint32_t entries, vb_channel *c, int64_t cookie, int *error);
int vb_cq_free(vb_cq *q);
int vb_cq_arm(vb_cq *q);
// vb_cq_poll returns how many completions it took, or less than 0.
int vb_cq_poll(vb_cq *q, vb_wc *out, int n);

// vb_mr_new registers memory; with remote others may READ, WRITE and do atomics.
vb_mr *vb_mr_new(vb_device *d, uint64_t at, uint64_t len, int remote, uint32_t *lkey, uint32_t *rkey, int *error);
int vb_mr_free(vb_mr *m);

// vb_qp_new makes a connection in state INIT. *max_inline is what is wanted, then what there is.
vb_qp *vb_qp_new(vb_device *d, vb_cq *send, vb_cq *recv, uint32_t max_send, uint32_t max_recv,
	uint32_t *max_inline, const vb_path *path, uint32_t *qpn, int *error);
int vb_qp_connect(vb_qp *q, const vb_path *path, const vb_end *own, const vb_end *peer);
int vb_qp_break(vb_qp *q);
int vb_qp_free(vb_qp *q);

// vb_post posts a list of operations with one doorbell. *posted is how many were accepted.
int vb_post(vb_qp *q, vb_op *ops, int n, int *posted);
// vb_post_recv posts n receives of len bytes each, the i-th with id and local memory at + i*len; with len 0 without memory.
int vb_post_recv(vb_qp *q, uint64_t id, uint64_t at, uint32_t len, uint32_t lkey, int first, int n, int size);

// vb_loop executes n operations one after the other, as the plainest of C programs would: the measure of
// what this package costs.
int vb_loop(vb_qp *q, vb_cq *cq, vb_op *op, int n);

#endif
