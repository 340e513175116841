//go:build cgo && !shmonly

package verbs

/*
#cgo LDFLAGS: -ldl -lpthread
#cgo verbs CFLAGS: -DDECLOCK_REQUIRE_VERBS
#cgo noescape vb_post
#cgo nocallback vb_post
#cgo noescape vb_post_recv
#cgo nocallback vb_post_recv
#cgo noescape vb_cq_poll
#cgo nocallback vb_cq_poll
#cgo noescape vb_cq_arm
#cgo nocallback vb_cq_arm
#cgo nocallback vb_channel_event
#cgo noescape vb_loop
#cgo nocallback vb_loop
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"unsafe"
)

// A wrOp is an operation to post, and a wc a completion: vb_op and vb_wc of shim.h.
type (
	wrOp struct {
		id                   uint64
		remote, local        uint64
		arg, cmp             uint64
		len, lkey, rkey, imm uint32
		kind, flags          uint8
	}
	wc struct {
		id                  uint64
		status, imm, vendor uint32
	}
	cq = C.vb_cq
)

var (
	_ = [1]struct{}{}[unsafe.Sizeof(wrOp{})-unsafe.Sizeof(C.vb_op{})]
	_ = [1]struct{}{}[unsafe.Sizeof(wc{})-unsafe.Sizeof(C.vb_wc{})]
)

const (
	wrRead    = C.VB_READ
	wrWrite   = C.VB_WRITE
	wrCAS     = C.VB_CAS
	wrFAA     = C.VB_FAA
	wrSend    = C.VB_SEND
	wrSendImm = C.VB_SEND_IMM

	flagSignaled = C.VB_SIGNALED
	flagFence    = C.VB_FENCE
	flagInline   = C.VB_INLINE
)

// load loads libibverbs, or says what is missing.
func load() error {
	switch C.vb_load() {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("%w: this program was built without infiniband/verbs.h; install libibverbs-dev (Debian, Ubuntu) "+
			"or rdma-core-devel (Fedora, RHEL) and build with -tags verbs", ErrUnavailable)
	case 2:
		return fmt.Errorf("%w: %s; install libibverbs1 and ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)",
			ErrUnavailable, C.GoString(C.vb_missing()))
	}
	return fmt.Errorf("%w: libibverbs.so.1 has no %s: it is too old", ErrUnavailable, C.GoString(C.vb_missing()))
}

// A device is an open end of an RDMA network.
type device struct {
	d    *C.vb_device
	end  Candidate
	caps C.vb_caps
	port C.vb_port
	path C.vb_path
}

// openDevice chooses and opens a device.
func openDevice(o *Options) (*device, error) {
	if err := load(); err != nil {
		return nil, err
	}
	all, err := devices()
	if err != nil {
		return nil, err
	}
	end, err := choose(all, o)
	if err != nil {
		return nil, err
	}
	d := &device{end: end}
	name := C.CString(end.Device)
	defer C.free(unsafe.Pointer(name))
	var code C.int
	if d.d = C.vb_open(name, &d.caps, &code); d.d == nil {
		return nil, openError(end, syscall.Errno(code))
	}
	if err := d.setUp(o); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func openError(end Candidate, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.ENODEV):
		hint = "; its user-space driver is missing: install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, RHEL)"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.ENOENT):
		hint = "; in a container, give it /dev/infiniband/uverbs* and /dev/infiniband/rdma_cm"
	}
	return fmt.Errorf("%w: open %v: %w%s", ErrNoDevice, end, err, hint)
}

func (d *device) setUp(o *Options) error {
	if e := C.vb_query_port(d.d, C.uint8_t(d.end.Port), &d.port); e != 0 {
		return fmt.Errorf("%w: query %v: %w", ErrNoDevice, d.end, syscall.Errno(e))
	}
	if d.caps.atomic == 0 {
		return fmt.Errorf("%w: %v has no atomics, which every lock needs", ErrNoDevice, d.end)
	}
	d.path = C.vb_path{
		port: C.uint8_t(d.end.Port), gid_index: C.uint8_t(d.end.GIDIndex),
		service_level: C.uint8_t(o.ServiceLevel), traffic_class: C.uint8_t(o.TrafficClass),
		timeout: ackTimeout, retry: ackRetries,
	}
	if d.caps.vendor_id == softVendor {
		d.path.timeout = softAckTimeout
	}
	if d.port.ethernet != 0 {
		d.path.global = 1
	}
	return nil
}

const (
	// A packet that is not acknowledged in 4.096 us << ackTimeout (67 ms) is sent
	// again, ackRetries times: a crashed peer is noticed within half a second, or two
	// on devices that round the time up.
	ackTimeout = 14
	ackRetries = 6
	// Soft-RoCE sends nothing again. Its timer goes off while all is well, too: it is set by the first of many operations, and not
	// by the last. And since Linux 6.0 what is sent again behind a fence waits for itself, if it is an atomic (or a WRITE with
	// a READ behind it): rxe_wqe_is_fenced counts it among those that it has to wait for. The queue pair stands still for good.
	// What a network loses is found by stallLimit. Queue pairs of messages have no fences, and 1.1 s: see resends.
	softAckTimeout     = 0
	softMessageTimeout = 18
	softVendor         = 0xffffff // what Soft-RoCE says for a vendor
)

func (d *device) close() { C.vb_close(d.d) }

// rdAtomic returns how many READs and atomics the device takes at a time from
// a peer.
func (d *device) rdAtomic() uint8 { return uint8(min(d.caps.max_rd_atomic, 128)) }

// initRDAtomic returns how many it can have under way.
func (d *device) initRDAtomic() uint8 { return uint8(max(1, min(d.caps.max_init_rd_atomic, 128))) }

// A region is registered memory.
type region struct {
	m          *C.vb_mr
	lkey, rkey uint32
}

func (d *device) register(at unsafe.Pointer, size uint64, remote bool) (region, error) {
	var lkey, rkey C.uint32_t
	var code, r C.int
	if remote {
		r = 1
	}
	m := C.vb_mr_new(d.d, C.uint64_t(uintptr(at)), C.uint64_t(size), r, &lkey, &rkey, &code)
	if m == nil {
		return region{}, registerError(size, syscall.Errno(code))
	}
	return region{m, uint32(lkey), uint32(rkey)}, nil
}

// release undoes register. It cannot fail in a way that matters: the device is
// about to be closed, or the memory is kept.
func (r region) release() { C.vb_mr_free(r.m) }

// A channel has an event for completions.
type channel struct{ c *C.vb_channel }

func (d *device) newChannel() (channel, int, error) {
	var fd C.int
	c := C.vb_channel_new(d.d, &fd)
	if c == nil {
		return channel{}, 0, fmt.Errorf("%w: %v: no completion channel", ErrNoDevice, d.end)
	}
	return channel{c}, int(fd), nil
}

// event takes an event: the cookie of its queue, 0 if there is none, -1 at the end.
func (c channel) event() int64 { return int64(C.vb_channel_event(c.c)) }

func (c channel) close() { C.vb_channel_free(c.c) }

func (d *device) newCQ(entries int, c channel, cookie int64) (*cq, error) {
	var code C.int
	entries = min(entries, int(d.caps.max_cqe))
	q := C.vb_cq_new(d.d, C.uint32_t(entries), c.c, C.int64_t(cookie), &code)
	if q == nil {
		return nil, fmt.Errorf("%w: %v: completion queue of %d: %w", ErrNoDevice, d.end, entries, syscall.Errno(code))
	}
	return q, nil
}

func freeCQ(q *cq) { C.vb_cq_free(q) }

func armCQ(q *cq) { C.vb_cq_arm(q) }

// pollCQ takes completions.
func pollCQ(q *cq, out []wc) int {
	return int(C.vb_cq_poll(q, (*C.vb_wc)(unsafe.Pointer(&out[0])), C.int(len(out))))
}

// A qp is one end of a reliable connection.
type qp struct {
	q      *C.vb_qp
	d      *device
	path   C.vb_path
	own    C.vb_end
	inline int
}

// newQP makes an end. With remote the peer may use the memory of this side.
func (d *device) newQP(send, recv *cq, maxSend, maxRecv, inline int, remote bool) (*qp, error) {
	q := &qp{d: d, path: d.path}
	if remote {
		q.path.remote = 1
	}
	want := C.uint32_t(inline)
	var code C.int
	q.q = C.vb_qp_new(d.d, send, recv, C.uint32_t(maxSend), C.uint32_t(maxRecv), &want, &q.path, &q.own.qpn, &code)
	if q.q == nil {
		return nil, fmt.Errorf("%w: %v: queue pair: %w", ErrNoDevice, d.end, syscall.Errno(code))
	}
	q.inline = int(want)
	q.own.psn = C.uint32_t(rand.Uint32() & 0xff_ffff)
	q.own.lid, q.own.mtu = d.port.lid, d.port.mtu
	for i, b := range d.end.GID.As16() {
		q.own.gid[i] = C.uint8_t(b)
	}
	return q, nil
}

// end returns what the peer must know.
func (q *qp) end() end {
	e := end{QPN: uint32(q.own.qpn), PSN: uint32(q.own.psn), LID: uint32(q.own.lid), MTU: uint32(q.own.mtu), RDAtomic: q.d.rdAtomic()}
	e.GID = q.d.end.GID.As16()
	return e
}

// connect connects the end to its peer.
func (q *qp) connect(peer end) error {
	p := C.vb_end{qpn: C.uint32_t(peer.QPN), psn: C.uint32_t(peer.PSN), lid: C.uint32_t(peer.LID), mtu: C.uint32_t(peer.MTU)}
	for i, b := range peer.GID {
		p.gid[i] = C.uint8_t(b)
	}
	q.path.dest_rd_atomic = C.uint8_t(q.d.rdAtomic())
	q.path.rd_atomic = C.uint8_t(max(1, min(q.d.initRDAtomic(), peer.RDAtomic)))
	if q.d.port.ethernet == 0 && peer.LID == 0 {
		q.path.global = 1 // another subnet: by its GID
	}
	if e := C.vb_qp_connect(q.q, &q.path, &q.own, &p); e != 0 {
		return fmt.Errorf("%w: %v: connect queue pair: %w", ErrNoDevice, q.d.end, syscall.Errno(e))
	}
	return nil
}

// resends is for queue pairs of messages, before they are connected: what is not acknowledged is sent again, on Soft-RoCE too.
func (q *qp) resends() {
	if q.path.timeout == softAckTimeout {
		q.path.timeout = softMessageTimeout
	}
}

// fail makes the end refuse and flush what is posted.
func (q *qp) fail() { C.vb_qp_break(q.q) }

// close destroys the end: nothing comes in any more, and nothing goes out.
func (q *qp) close() { C.vb_qp_free(q.q) }

// post posts operations with one doorbell, and returns how many were accepted.
func (q *qp) post(ops []wrOp) (int, error) {
	var posted C.int
	if e := C.vb_post(q.q, (*C.vb_op)(unsafe.Pointer(&ops[0])), C.int(len(ops)), &posted); e != 0 {
		return int(posted), syscall.Errno(e)
	}
	return len(ops), nil
}

// receive posts n receives, from slot first of a ring of size slots of length bytes.
func (q *qp) receive(id uint64, ring unsafe.Pointer, length uint32, lkey uint32, first, n, size int) error {
	e := C.vb_post_recv(q.q, C.uint64_t(id), C.uint64_t(uintptr(ring)), C.uint32_t(length), C.uint32_t(lkey), C.int(first), C.int(n), C.int(size))
	if e != 0 {
		return fmt.Errorf("%w: post receives: %w", ErrNoDevice, syscall.Errno(e))
	}
	return nil
}

// loop executes an operation n times in C: see shim.h.
func (q *qp) loop(c *cq, op *wrOp, n int) error {
	if e := C.vb_loop(q.q, c, (*C.vb_op)(unsafe.Pointer(op)), C.int(n)); e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

// setLocal describes the local memory of an operation.
func (o *wrOp) setLocal(at unsafe.Pointer, n int, lkey uint32) {
	o.local, o.len, o.lkey = uint64(uintptr(at)), uint32(n), lkey
}
