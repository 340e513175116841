//go:build cgo && !shmonly

#define _GNU_SOURCE // dlvsym
#include "shim.h"

#include <errno.h>
#include <stddef.h>

#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>)
#define HAVE_VERBS 1
#endif
#endif

#if defined(DECLOCK_REQUIRE_VERBS) && !defined(HAVE_VERBS)
#error "infiniband/verbs.h is missing: install libibverbs-dev (Debian, Ubuntu) or rdma-core-devel (Fedora, RHEL)"
#endif

#ifdef HAVE_VERBS

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

// Every function of libibverbs that is called by name. What posts and polls is
// inline in its header and goes through the device's own table.
#define SYMBOLS(X) \
	X(ibv_get_device_list) X(ibv_free_device_list) X(ibv_get_device_name) \
	X(ibv_open_device) X(ibv_close_device) X(ibv_query_device) X(ibv_query_port) \
	X(ibv_alloc_pd) X(ibv_dealloc_pd) X(ibv_reg_mr) X(ibv_dereg_mr) \
	X(ibv_create_comp_channel) X(ibv_destroy_comp_channel) \
	X(ibv_create_cq) X(ibv_destroy_cq) X(ibv_get_cq_event) X(ibv_ack_cq_events) \
	X(ibv_create_qp) X(ibv_modify_qp) X(ibv_destroy_qp)

static struct {
#define X(name) __typeof__(&(name)) name;
	SYMBOLS(X)
#undef X
} lib;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static int load_result;
static char load_missing[256];

// symbol prefers version 1.1: an unversioned look-up can find the functions of
// version 1.0, which have the same names and other arguments.
static void *symbol(void *handle, const char *name) {
	void *p = dlvsym(handle, name, "IBVERBS_1.1");
	if (!p) p = dlsym(handle, name);
	if (!p && !load_result) {
		load_result = 3;
		strncpy(load_missing, name, sizeof load_missing - 1);
	}
	return p;
}

static void load(void) {
	void *handle = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		const char *why = dlerror();
		load_result = 2;
		strncpy(load_missing, why ? why : "libibverbs.so.1", sizeof load_missing - 1);
		return;
	}
#define X(name) lib.name = (__typeof__(lib.name))symbol(handle, #name);
	SYMBOLS(X)
#undef X
}

int vb_load(void) {
	pthread_once(&load_once, load);
	return load_result;
}

const char *vb_missing(void) { return load_missing; }

struct vb_device {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
};

static int failed(void) { return errno ? errno : EIO; }

static struct ibv_context *open_named(const char *name) {
	int n = 0;
	struct ibv_context *ctx = NULL;
	struct ibv_device **list = lib.ibv_get_device_list(&n);
	if (!list) return NULL;
	errno = ENODEV;
	for (int i = 0; i < n; i++) {
		if (strcmp(lib.ibv_get_device_name(list[i]), name) == 0) {
			errno = 0;
			ctx = lib.ibv_open_device(list[i]);
			break;
		}
	}
	int saved = errno;
	lib.ibv_free_device_list(list);
	errno = saved;
	return ctx;
}

vb_device *vb_open(const char *name, vb_caps *caps, int *error) {
	struct ibv_device_attr attr;
	memset(&attr, 0, sizeof attr);
	vb_device *d = calloc(1, sizeof *d);
	if (!d) {
		*error = ENOMEM;
		return NULL;
	}
	errno = 0;
	if (!(d->ctx = open_named(name)) || !(d->pd = lib.ibv_alloc_pd(d->ctx))) {
		*error = failed();
		vb_close(d);
		return NULL;
	}
	if ((*error = lib.ibv_query_device(d->ctx, &attr))) {
		vb_close(d);
		return NULL;
	}
	caps->max_cqe = attr.max_cqe;
	caps->max_rd_atomic = attr.max_qp_rd_atom;
	caps->max_init_rd_atomic = attr.max_qp_init_rd_atom;
	caps->atomic = attr.atomic_cap;
	caps->vendor_id = attr.vendor_id;
	caps->max_mr_size = attr.max_mr_size;
	return d;
}

void vb_close(vb_device *d) {
	if (d->pd) lib.ibv_dealloc_pd(d->pd);
	if (d->ctx) lib.ibv_close_device(d->ctx);
	free(d);
}

int vb_query_port(vb_device *d, uint8_t port, vb_port *out) {
	// The library of version 1.1 fills in less than today's header has; the
	// rest stays zero.
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	int e = (lib.ibv_query_port)(d->ctx, port, (void *)&a);
	if (e) return e;
	out->active = a.state == IBV_PORT_ACTIVE;
	out->ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET;
	out->lid = a.lid;
	out->mtu = a.active_mtu;
	out->max_message = a.max_msg_sz;
	return 0;
}

vb_channel *vb_channel_new(vb_device *d, int *fd) {
	struct ibv_comp_channel *c = lib.ibv_create_comp_channel(d->ctx);
	if (c) *fd = c->fd;
	return c;
}

void vb_channel_free(vb_channel *c) { lib.ibv_destroy_comp_channel(c); }

int64_t vb_channel_event(vb_channel *c) {
	struct ibv_cq *cq;
	void *cookie;
	errno = 0;
	if (lib.ibv_get_cq_event(c, &cq, &cookie)) return errno == EAGAIN || errno == EINTR ? 0 : -1;
	lib.ibv_ack_cq_events(cq, 1);
	return (int64_t)(intptr_t)cookie;
}

vb_cq *vb_cq_new(vb_device *d, uint32_t entries, vb_channel *c, int64_t cookie, int *error) {
	errno = 0;
	struct ibv_cq *q = lib.ibv_create_cq(d->ctx, entries, (void *)(intptr_t)cookie, c, 0);
	if (!q) *error = failed();
	return q;
}

int vb_cq_free(vb_cq *q) { return lib.ibv_destroy_cq(q); }

int vb_cq_arm(vb_cq *q) { return ibv_req_notify_cq(q, 0); }

int vb_cq_poll(vb_cq *q, vb_wc *out, int n) {
	struct ibv_wc wc[32];
	if (n > 32) n = 32;
	int got = ibv_poll_cq(q, n, wc);
	for (int i = 0; i < got; i++) {
		out[i].id = wc[i].wr_id;
		out[i].status = wc[i].status;
		out[i].vendor = wc[i].vendor_err;
		// It means something on success only.
		out[i].imm = !wc[i].status && (wc[i].wc_flags & IBV_WC_WITH_IMM) ? be32toh(wc[i].imm_data) : 0;
	}
	return got;
}

vb_mr *vb_mr_new(vb_device *d, uint64_t at, uint64_t len, int remote, uint32_t *lkey, uint32_t *rkey, int *error) {
	unsigned int access = IBV_ACCESS_LOCAL_WRITE;
	if (remote) access |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	errno = 0;
	struct ibv_mr *m = (lib.ibv_reg_mr)(d->pd, (void *)(uintptr_t)at, len, access);
	if (!m) {
		*error = failed();
		return NULL;
	}
	*lkey = m->lkey;
	*rkey = m->rkey;
	return m;
}

int vb_mr_free(vb_mr *m) { return lib.ibv_dereg_mr(m); }

vb_qp *vb_qp_new(vb_device *d, vb_cq *send, vb_cq *recv, uint32_t max_send, uint32_t max_recv,
	uint32_t *max_inline, const vb_path *path, uint32_t *qpn, int *error) {
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	struct ibv_qp *q = NULL;
	// What does not fit may be had with less: a device does not say before.
	for (uint32_t want = *max_inline;; want /= 2) {
		memset(&init, 0, sizeof init);
		init.qp_type = IBV_QPT_RC;
		init.send_cq = send;
		init.recv_cq = recv;
		init.cap.max_send_wr = max_send;
		init.cap.max_recv_wr = max_recv;
		init.cap.max_send_sge = 1;
		init.cap.max_recv_sge = 1;
		init.cap.max_inline_data = want;
		errno = 0;
		if ((q = lib.ibv_create_qp(d->pd, &init)) || !want) break;
	}
	if (!q) {
		*error = failed();
		return NULL;
	}
	*max_inline = init.cap.max_inline_data;
	*qpn = q->qp_num;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = path->port;
	attr.qp_access_flags = path->remote ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC : 0;
	*error = lib.ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (*error) {
		lib.ibv_destroy_qp(q);
		return NULL;
	}
	return q;
}

int vb_qp_connect(vb_qp *q, const vb_path *path, const vb_end *own, const vb_end *peer) {
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = own->mtu < peer->mtu ? own->mtu : peer->mtu;
	attr.dest_qp_num = peer->qpn;
	attr.rq_psn = peer->psn;
	attr.max_dest_rd_atomic = path->dest_rd_atomic;
	attr.min_rnr_timer = 12;
	attr.ah_attr.dlid = peer->lid;
	attr.ah_attr.sl = path->service_level;
	attr.ah_attr.port_num = path->port;
	if (path->global) {
		attr.ah_attr.is_global = 1;
		memcpy(attr.ah_attr.grh.dgid.raw, peer->gid, 16);
		attr.ah_attr.grh.sgid_index = path->gid_index;
		attr.ah_attr.grh.hop_limit = 64;
		attr.ah_attr.grh.traffic_class = path->traffic_class;
	}
	int e = lib.ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
		IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (e) return e;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = own->psn;
	attr.max_rd_atomic = path->rd_atomic;
	attr.timeout = path->timeout;
	// 7 would be for ever, on Soft-RoCE at least: a crashed peer would never be noticed.
	attr.retry_cnt = path->retry < 6 ? path->retry : 6;
	attr.rnr_retry = attr.retry_cnt;
	return lib.ibv_modify_qp(q, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
		IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
}

int vb_qp_break(vb_qp *q) {
	struct ibv_qp_attr attr;
	memset(&attr, 0, sizeof attr);
	attr.qp_state = IBV_QPS_ERR;
	return lib.ibv_modify_qp(q, &attr, IBV_QP_STATE);
}

int vb_qp_free(vb_qp *q) { return lib.ibv_destroy_qp(q); }

static const enum ibv_wr_opcode opcodes[] = {
	[VB_READ] = IBV_WR_RDMA_READ, [VB_WRITE] = IBV_WR_RDMA_WRITE,
	[VB_CAS] = IBV_WR_ATOMIC_CMP_AND_SWP, [VB_FAA] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	[VB_SEND] = IBV_WR_SEND, [VB_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
};

static void fill(struct ibv_send_wr *wr, struct ibv_sge *sge, vb_op *op) {
	memset(wr, 0, sizeof *wr);
	wr->wr_id = op->id;
	wr->opcode = opcodes[op->kind];
	wr->sg_list = sge;
	wr->num_sge = op->len ? 1 : 0;
	sge->addr = op->local;
	sge->length = op->len;
	sge->lkey = op->lkey;
	if (op->flags & VB_SIGNALED) wr->send_flags |= IBV_SEND_SIGNALED;
	if (op->flags & VB_FENCE) wr->send_flags |= IBV_SEND_FENCE;
	if (op->flags & VB_INLINE) wr->send_flags |= IBV_SEND_INLINE;
	switch (op->kind) {
	case VB_CAS:
	case VB_FAA:
		wr->wr.atomic.remote_addr = op->remote;
		wr->wr.atomic.rkey = op->rkey;
		wr->wr.atomic.compare_add = op->kind == VB_CAS ? op->cmp : op->arg;
		wr->wr.atomic.swap = op->kind == VB_CAS ? op->arg : 0;
		break;
	case VB_SEND_IMM:
		wr->imm_data = htobe32(op->imm);
		break;
	case VB_SEND:
		break;
	default:
		wr->wr.rdma.remote_addr = op->remote;
		wr->wr.rdma.rkey = op->rkey;
	}
}

enum { BATCH = 32 };

int vb_post(vb_qp *q, vb_op *ops, int n, int *posted) {
	struct ibv_send_wr wr[BATCH], *bad = NULL;
	struct ibv_sge sge[BATCH];
	*posted = 0;
	while (*posted < n) {
		int k = n - *posted < BATCH ? n - *posted : BATCH;
		for (int i = 0; i < k; i++) {
			fill(&wr[i], &sge[i], &ops[*posted + i]);
			wr[i].next = i + 1 < k ? &wr[i + 1] : NULL;
		}
		int e = ibv_post_send(q, wr, &bad);
		if (e) {
			if (bad >= wr && bad < wr + k) *posted += bad - wr;
			return e < 0 ? failed() : e;
		}
		*posted += k;
	}
	return 0;
}

int vb_post_recv(vb_qp *q, uint64_t id, uint64_t at, uint32_t len, uint32_t lkey, int first, int n, int size) {
	struct ibv_recv_wr wr[BATCH], *bad = NULL;
	struct ibv_sge sge[BATCH];
	for (int done = 0; done < n;) {
		int k = n - done < BATCH ? n - done : BATCH;
		for (int i = 0; i < k; i++) {
			int slot = (first + done + i) % size;
			sge[i].addr = at + (uint64_t)slot * len;
			sge[i].length = len;
			sge[i].lkey = lkey;
			wr[i].wr_id = id;
			wr[i].sg_list = &sge[i];
			wr[i].num_sge = len ? 1 : 0;
			wr[i].next = i + 1 < k ? &wr[i + 1] : NULL;
		}
		int e = ibv_post_recv(q, wr, &bad);
		if (e) return e < 0 ? failed() : e;
		done += k;
	}
	return 0;
}

int vb_loop(vb_qp *q, vb_cq *cq, vb_op *op, int n) {
	for (int i = 0; i < n; i++) {
		struct ibv_send_wr wr, *bad;
		struct ibv_sge sge;
		struct ibv_wc wc;
		fill(&wr, &sge, op);
		wr.send_flags |= IBV_SEND_SIGNALED;
		int e = ibv_post_send(q, &wr, &bad), got;
		if (e) return e;
		while ((got = ibv_poll_cq(cq, 1, &wc)) == 0) {
		}
		if (got < 0) return EIO;
		if (wc.status) return 1000 + wc.status;
	}
	return 0;
}

#else // no headers: everything below vb_load is unreachable

int vb_load(void) { return 1; }
const char *vb_missing(void) { return "infiniband/verbs.h"; }
vb_device *vb_open(const char *name, vb_caps *caps, int *error) { return *error = ENOSYS, NULL; }
void vb_close(vb_device *d) {}
int vb_query_port(vb_device *d, uint8_t port, vb_port *out) { return ENOSYS; }
vb_channel *vb_channel_new(vb_device *d, int *fd) { return NULL; }
void vb_channel_free(vb_channel *c) {}
int64_t vb_channel_event(vb_channel *c) { return -1; }
vb_cq *vb_cq_new(vb_device *d, uint32_t entries, vb_channel *c, int64_t cookie, int *error) { return *error = ENOSYS, NULL; }
int vb_cq_free(vb_cq *q) { return ENOSYS; }
int vb_cq_arm(vb_cq *q) { return ENOSYS; }
int vb_cq_poll(vb_cq *q, vb_wc *out, int n) { return -1; }
vb_mr *vb_mr_new(vb_device *d, uint64_t at, uint64_t len, int remote, uint32_t *lkey, uint32_t *rkey, int *error) { return *error = ENOSYS, NULL; }
int vb_mr_free(vb_mr *m) { return ENOSYS; }
vb_qp *vb_qp_new(vb_device *d, vb_cq *send, vb_cq *recv, uint32_t max_send, uint32_t max_recv,
	uint32_t *max_inline, const vb_path *path, uint32_t *qpn, int *error) { return *error = ENOSYS, NULL; }
int vb_qp_connect(vb_qp *q, const vb_path *path, const vb_end *own, const vb_end *peer) { return ENOSYS; }
int vb_qp_break(vb_qp *q) { return ENOSYS; }
int vb_qp_free(vb_qp *q) { return ENOSYS; }
int vb_post(vb_qp *q, vb_op *ops, int n, int *posted) { return ENOSYS; }
int vb_post_recv(vb_qp *q, uint64_t id, uint64_t at, uint32_t len, uint32_t lkey, int first, int n, int size) { return ENOSYS; }
int vb_loop(vb_qp *q, vb_cq *cq, vb_op *op, int n) { return ENOSYS; }

#endif
