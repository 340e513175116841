package metrics_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/cn"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	"github.com/declock/declock/fabric/shm"
	"github.com/declock/declock/front"
	"github.com/declock/declock/metrics"
	"github.com/declock/declock/mn"
	"github.com/declock/declock/objstore"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// What is collected is what was described, follows Prometheus's rules for names, and counts what was done.
func TestComputeNode(t *testing.T) {
	ctx := context.Background()
	c, err := declock.Open(ctx, "shm:", declock.WithMemory(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	locks, err := c.Locks(ctx, "l", 1)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 * cn.SampleEvery {
		g, err := s.Lock(ctx, locks.At(0))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := c.Store(ctx, "s", declock.StoreConfig{Objects: 100})
	if err != nil {
		t.Fatal(err)
	}
	cache, err := st.Client(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if err := cache.Set([]byte(key), []byte("value"), objstore.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.ComputeNode(c, func() objstore.Stats { return objstore.Stats{Evictions: 7} }))
	got := check(t, reg)
	for name, want := range map[string]float64{"declock_store_evictions_total": 7, "declock_lock_acquires_total": 2 * cn.SampleEvery, "declock_memory_up": 1, "declock_fenced": 0,
		"declock_store_items": 3} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v, want %v", name, v, want)
		}
	}
}

// A compute node that cannot open a session says so: it looks at no memory node, and none is missing.
func TestProbeSaysWhyItCannotLook(t *testing.T) {
	c, err := declock.Open(context.Background(), "shm:", declock.WithMemory(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	p := metrics.NewProbe(c)
	if list, _, err := p.Look(time.Minute); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	p.Wait()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if list, _, err := p.Look(time.Minute); err == nil || len(list) != 0 {
		t.Errorf("without a session: %v, %v", list, err)
	}
}

// A memory node has restarted without its memory while a compute node was idle: a look has the compute node find out, and is no error.
func TestProbeGoesOnWithoutLostMemory(t *testing.T) {
	o := shm.Options{Name: "lost", Dir: t.TempDir(), Size: 16 << 20, Sparse: true}
	serve := func() *mn.Node {
		srv, err := shm.Serve(o)
		if err != nil {
			t.Fatal(err)
		}
		n, err := mn.Start(srv, mn.Config{Participants: shm.DefaultMaxCN})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	m := serve()
	lost := make(chan fabric.MemID, 10)
	c, err := declock.Open(context.Background(), "shm:lost", declock.WithDir(o.Dir), declock.WithOnMemoryLost(func(mn fabric.MemID) { lost <- mn }))
	if err != nil {
		t.Fatal(err)
	}
	p := metrics.NewProbe(c)
	for range 2 {
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		if list, _, err := p.Look(time.Minute); err != nil || len(list) != 1 || list[0].Err == nil {
			t.Errorf("without a memory node: %+v, %v", list, err)
		}
		m = serve()
		if list, _, err := p.Look(time.Minute); err != nil || len(list) != 1 || list[0].Err != nil {
			t.Errorf("after a loss: %+v, %v", list, err)
		}
		if len(lost) != 1 {
			t.Fatalf("told of %d losses", len(lost))
		}
		<-lost
	}
	if err := errors.Join(c.Close(), m.Close()); err != nil {
		t.Error(err)
	}
}

// When certificates expire is told by their files.
func TestCertificates(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.Certificates(func() []metrics.Certificate {
		return []metrics.Certificate{{File: "a.pem", NotAfter: time.Unix(1000, 0)}}
	}))
	if got := check(t, reg); got["declock_certificate_expiry_timestamp_seconds"] != 1000 {
		t.Errorf("%v", got)
	}
}

func TestMemoryNode(t *testing.T) {
	m := &memoryServer{epoch: 2}
	for _, counters := range []func() member.Counters{nil, func() member.Counters {
		return member.Counters{Ops: map[fabric.OpKind]uint64{fabric.OpFAA: 5}, Connections: 1}
	}} {
		m.epoch = 2
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(metrics.MemoryNode(m, "tcp", counters))
		check(t, reg)
		m.epoch = 4
		if got := check(t, reg); got["declock_mn_fenced_total"] != 2 || got["declock_mn_epoch"] != 4 || got["declock_coordinator_up"] != 0 {
			t.Errorf("after two epochs, and without a coordinator: %v", got)
		}
	}
}

// memoryServer is a memory node whose coordinator is silent.
type memoryServer struct{ epoch uint32 }

func (*memoryServer) ID() fabric.MemID { return 3 }
func (*memoryServer) Size() uint64     { return 1 << 20 }
func (m *memoryServer) Epoch() uint32  { return m.epoch }

func (*memoryServer) Contact() (time.Duration, error) { return time.Second, errors.New("silent") }

// check gathers, and returns the first value of each metric that is a number.
func check(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Error(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Error(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	values := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		values[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return values
}

// A server of another system's protocol is shown by protocol, command and result.
func TestFront(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(metrics.Front(func() []front.Counters {
		return []front.Counters{{Protocol: "memcached", Connections: 3, Accepted: 5, Rejected: 1, Read: 7, Written: 9,
			Requests: []front.Requests{{Command: "get", Result: "hit", Count: 11}, {Command: "get", Result: "miss", Count: 13}}}}
	}))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			name := f.GetName()
			for _, l := range m.Label {
				name += " " + l.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	want := map[string]float64{"declock_front_connections memcached": 3, "declock_front_connections_total memcached accepted": 5,
		"declock_front_connections_total memcached rejected": 1, "declock_front_bytes_total read memcached": 7, "declock_front_bytes_total written memcached": 9,
		"declock_front_requests_total get memcached hit": 11, "declock_front_requests_total get memcached miss": 13}
	for name := range got {
		if want[name] == 0 {
			t.Errorf("%s is not expected", name)
		}
	}
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s is %v, want %v: %v", name, got[name], v, got)
		}
	}
}
