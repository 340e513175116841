//go:build !shmonly

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/declock/declock/coordinator/coordtest"
	"github.com/declock/declock/coordinator/embedded"
	"github.com/declock/declock/coordinator/etcd"
	"github.com/declock/declock/fabric"
	"github.com/declock/declock/fabric/member"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// directory returns a directory for a server: t.TempDir's is too long for a socket.
func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "declock-etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A server is an etcd that can be stopped and started again.
type server struct {
	*embedded.Server
	dir string
}

func start(t *testing.T) *server {
	t.Helper()
	s := &server{dir: directory(t)}
	s.start(t)
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *server) start(t *testing.T) {
	t.Helper()
	var err error
	if s.Server, err = embedded.Start(bounded(t), embedded.Options{Dir: s.dir}); err != nil {
		t.Fatal(err)
	}
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func options(endpoint, cluster string) etcd.Options {
	return etcd.Options{
		Endpoints: []string{endpoint}, Cluster: cluster, MaxCN: coordtest.MaxCN, TTL: 5 * time.Second, Timeout: 20 * time.Second,
	}
}

func connect(t *testing.T, o etcd.Options) *etcd.Coordinator {
	t.Helper()
	c, err := etcd.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw returns a client for what no coordinator does.
func raw(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// acknowledge is what a fabric does when it is ready.
func acknowledge(m member.Member) { acknowledgeUnless(m, new(atomic.Bool)) }

// acknowledgeUnless is acknowledge, for a node that acknowledges no state that it gets while it is deaf.
func acknowledgeUnless(m member.Member, deaf *atomic.Bool) {
	go func() {
		for {
			s, changed := m.State()
			if !deaf.Load() {
				m.Ack(s.Revision)
			}
			select {
			case <-changed:
			case <-m.Done():
				return
			}
		}
	}()
}

func joinCN(t *testing.T, c *etcd.Coordinator) member.Member {
	t.Helper()
	m, err := c.JoinCN(bounded(t), "cn.example:1", acknowledge)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave(context.Background()) })
	return m
}

func await(t *testing.T, w member.Watcher, what string, ok func(*member.State) bool) *member.State {
	t.Helper()
	ctx := bounded(t)
	for {
		s, changed := w.State()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-ctx.Done():
			var over error
			if m, ok := w.(member.Member); ok {
				over = m.Err()
			}
			t.Fatalf("waiting for %s: %+v: %v", what, *s, over)
		}
	}
}

// TestConformance: what package member promises. The tests share a server.
func TestConformance(t *testing.T) {
	s := start(t)
	var clusters atomic.Int32
	coordtest.Run(t, func(t *testing.T) coordtest.Cluster {
		t.Parallel()
		c := connect(t, options(s.Endpoint(), fmt.Sprintf("test-%d", clusters.Add(1))))
		return coordtest.Cluster{Service: c, Kill: func(m member.Member) { etcd.Expire(c, m) }}
	})
}

// TestEtcdAway: memberships go on while etcd is away, joins fail, crashes are noticed afterwards.
func TestEtcdAway(t *testing.T) {
	s := start(t)
	coordtest.RunAway(t, func(t *testing.T) coordtest.Cluster {
		o := options(s.Endpoint(), "test")
		o.Timeout = time.Second
		c := connect(t, o)
		isAway := false
		set := func(away bool) {
			if isAway && !away {
				s.start(t)
			} else if away {
				s.Close()
			}
			isAway = away
		}
		return coordtest.Cluster{Service: c, Kill: etcd.Silence, SetAway: set}
	})
}

// TestLeaseRunsOut: a node whose lease runs out is fenced, and the others see it go.
func TestLeaseRunsOut(t *testing.T) {
	s := start(t)
	o := options(s.Endpoint(), "test")
	a := joinCN(t, connect(t, o))
	o.TTL = time.Second
	b := joinCN(t, connect(t, o))
	etcd.Silence(b)
	await(t, a, "its end", func(s *member.State) bool { return s.Lost == 1 && len(s.CNs) == 1 && len(s.Fencing) == 0 })
	<-b.Done()
	if err := b.Err(); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Err: %v", err)
	}
	if err := b.Leave(bounded(t)); !errors.Is(err, fabric.ErrFenced) {
		t.Errorf("Leave: %v", err)
	}
}

// TestServerRestarts: members see what changes after etcd has been started again.
func TestServerRestarts(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	a, b := joinCN(t, c), joinCN(t, c)
	for range 2 {
		s.Close()
		s.start(t)
		n := joinCN(t, c)
		for _, m := range []member.Member{a, b} {
			await(t, m, "the new one", func(s *member.State) bool { return s.Has(n.CN().Incarnation) })
		}
		if err := n.Leave(bounded(t)); err != nil {
			t.Fatal(err)
		}
		await(t, a, "its end", func(s *member.State) bool { return len(s.CNs) == 2 && len(s.Fencing) == 0 })
	}
}

// TestCompaction: a watch whose revisions have been compacted lists anew.
func TestCompaction(t *testing.T) {
	s := start(t)
	p := startProxy(t, s.Endpoint())
	o := options(p.endpoint(), "test")
	o.TTL = time.Minute // its lease is not what this is about
	a := joinCN(t, connect(t, o))
	p.cut()
	n := joinCNInBackground(t, connect(t, options(s.Endpoint(), "test")), "")
	kv := raw(t, s.Endpoint())
	var revision int64
	for revision == 0 {
		got, err := kv.Get(bounded(t), "/declock/test/node/cn/002")
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Kvs) > 0 {
			revision = got.Header.Revision
		}
	}
	if _, err := kv.Compact(bounded(t), revision); err != nil {
		t.Fatal(err)
	}
	p.restore()
	await(t, a, "the new one", func(s *member.State) bool { return len(s.CNs) == 2 })
	if err := <-n; err != nil {
		t.Fatal(err)
	}
}

func joinCNInBackground(t *testing.T, c *etcd.Coordinator, addr string) <-chan error {
	return joinInBackground(t, c, addr, acknowledge)
}

func joinInBackground(t *testing.T, c *etcd.Coordinator, addr string, ready func(member.Member)) <-chan error {
	joined := make(chan error, 1)
	ctx := bounded(t)
	go func() {
		_, err := c.JoinCN(ctx, addr, ready)
		joined <- err
	}()
	return joined
}

// TestTwoCoordinatorsRace: joins through connections of their own get different numbers.
func TestTwoCoordinatorsRace(t *testing.T) {
	s := start(t)
	var joins []<-chan error
	var last *etcd.Coordinator
	for range coordtest.MaxCN {
		last = connect(t, options(s.Endpoint(), "test"))
		joins = append(joins, joinCNInBackground(t, last, ""))
	}
	for _, j := range joins {
		if err := <-j; err != nil {
			t.Error(err)
		}
	}
	if _, err := last.JoinCN(bounded(t), "", nil); !errors.Is(err, member.ErrFull) {
		t.Errorf("one more: %v", err)
	}
}

// TestUnreachable: an error in bounded time that says where.
func TestUnreachable(t *testing.T) {
	o := options("unix:///nonexistent/etcd.sock", "test")
	o.Timeout = 200 * time.Millisecond
	c := connect(t, o)
	if _, err := c.JoinCN(bounded(t), "", nil); !errors.Is(err, member.ErrUnreachable) {
		t.Errorf("JoinCN: %v", err)
	}
	if _, err := c.JoinMN(bounded(t), member.MN{Size: 1 << 20}, nil); !errors.Is(err, member.ErrUnreachable) {
		t.Errorf("JoinMN: %v", err)
	}
	if _, err := c.Watch(bounded(t)); !errors.Is(err, member.ErrUnreachable) {
		t.Errorf("Watch: %v", err)
	}
	o.User, o.Password = "u", "p"
	if _, err := etcd.New(t.Context(), o); !errors.Is(err, member.ErrUnreachable) {
		t.Errorf("New: %v", err)
	}
}

// TestPassword: with authentication, a client that is not known is refused.
func TestPassword(t *testing.T) {
	if testing.Short() {
		t.Skip("etcd hashes passwords: with the race detector that takes longer than leases last")
	}
	s := start(t)
	admin := raw(t, s.Endpoint())
	ctx := bounded(t)
	for _, err := range []error{
		second(admin.RoleAdd(ctx, "declock")),
		second(admin.RoleGrantPermission(ctx, "declock", "/declock/test/", clientv3.GetPrefixRangeEnd("/declock/test/"), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(admin.UserAdd(ctx, "root", "r")), second(admin.UserGrantRole(ctx, "root", "root")),
		second(admin.UserAdd(ctx, "node", "secret")), second(admin.UserGrantRole(ctx, "node", "declock")),
		second(admin.AuthEnable(ctx)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	o := options(s.Endpoint(), "test")
	if _, err := connect(t, o).JoinCN(ctx, "", nil); !errors.Is(err, member.ErrRefused) {
		t.Errorf("without a user: %v", err)
	}
	o.User, o.Password = "node", "wrong"
	if _, err := etcd.New(t.Context(), o); !errors.Is(err, member.ErrRefused) {
		t.Errorf("wrong password: %v", err)
	}
	o.Password = "secret"
	a := joinCN(t, connect(t, o))
	b := joinCN(t, connect(t, o))
	a.Report(b.CN().Incarnation)
	await(t, a, "the reported death", func(s *member.State) bool { return s.Lost == 1 })
	o.Cluster = "other"
	if _, err := connect(t, o).JoinCN(ctx, "", nil); !errors.Is(err, member.ErrRefused) {
		t.Errorf("a cluster without permission: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestStrangeKeys: what we have not written is reported and ignored, but for the number that it takes.
func TestStrangeKeys(t *testing.T) {
	s := start(t)
	kv := raw(t, s.Endpoint())
	for _, k := range []string{"x", "node/cn/000", "node/cn/1", "node/cn/256", "node/xx/001", "live/mn/1", "ack/zz", "ack/0", "epoch/1"} {
		if _, err := kv.Put(bounded(t), "/declock/test/"+k, "garbage"); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range []string{"", "{}", `{"life":1,"gone":"away"}`, `{"life":-1}`, `[`} {
		for _, k := range []string{"node/cn/001", "node/mn/00000"} {
			if _, err := kv.Put(bounded(t), "/declock/test/"+k, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	var reports atomic.Int32
	o := options(s.Endpoint(), "test")
	o.Report = func(error) { reports.Add(1) }
	c := connect(t, o)
	a := joinCN(t, c)
	if _, err := c.JoinMN(bounded(t), member.MN{Size: 1 << 20}, nil); !errors.Is(err, etcd.ErrFormat) {
		t.Errorf("the number of a memory node is taken: %v", err)
	}
	if s, _ := a.State(); a.CN().ID != 2 || len(s.CNs) != 1 || len(s.Fencing) != 0 {
		t.Errorf("%+v in %+v", a.CN(), s)
	}
	if reports.Load() < 10 {
		t.Errorf("%d reports", reports.Load())
	}
}

// A cluster of the version before is refused while a node of it is up; else it goes over to the present one, which the other refuses.
func TestFormatBefore(t *testing.T) {
	s := start(t)
	kv := raw(t, s.Endpoint())
	for k, v := range map[string]string{"format": "1", "live/cn/001": "77", "node/cn/001": `{"life":77,"addr":"old"}`, "epoch/00007": "4", "lost": "2"} {
		if _, err := kv.Put(bounded(t), "/declock/test/"+k, v); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, options(s.Endpoint(), "test"))
	if _, err := c.JoinCN(bounded(t), "", nil); !errors.Is(err, etcd.ErrFormat) {
		t.Errorf("while an old node is up: %v", err)
	}
	if _, err := kv.Delete(bounded(t), "/declock/test/live/cn/001"); err != nil {
		t.Fatal(err)
	}
	if err := c.ForgetMN(bounded(t), 7); !errors.Is(err, etcd.ErrFormat) {
		t.Errorf("forget a memory node of the old cluster: %v", err)
	}
	m, err := c.JoinMN(bounded(t), member.MN{ID: 7, Size: 8}, acknowledge)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(context.Background())
	if m.MN().Epoch != 5 {
		t.Errorf("%+v after epoch 4", m.MN())
	}
	await(t, m, "the end of the old node", func(s *member.State) bool { return s.Lost == 3 && len(s.Fencing) == 0 })
	got, err := kv.Get(bounded(t), "/declock/test/format")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "2" {
		t.Errorf("format %v, %v", got, err)
	}
}

// Two compute nodes that have crashed are both counted, though both are to be forgotten by the same listing.
func TestBothAreCounted(t *testing.T) {
	s := start(t)
	kv := raw(t, s.Endpoint())
	for k, v := range map[string]string{"format": "2", "node/cn/001": `{"life":1,"gone":"died"}`, "node/cn/002": `{"life":2,"gone":"died"}`} {
		if _, err := kv.Put(bounded(t), "/declock/test/"+k, v); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, options(s.Endpoint(), "test"))
	forgetting := func(id fabric.CNID) func() (bool, error) {
		f, err := etcd.Forgetting(c, bounded(t), id)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := forgetting(1), forgetting(2)
	for i, f := range []func() (bool, error){first, second} {
		if done, err := f(); err != nil || done != (i == 0) {
			t.Errorf("%d: done %v, %v", i, done, err)
		}
	}
	if done, err := forgetting(2)(); err != nil || !done {
		t.Errorf("again: done %v, %v", done, err)
	}
	if st, _ := joinCN(t, c).State(); st.Lost != 2 {
		t.Errorf("%d lost", st.Lost)
	}
}

// TestFormatOfGroups: keys with groups have another format. The first memory node with replicas writes it, if no node is up that may not know it.
func TestFormatOfGroups(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	cn := joinCN(t, c)
	want := member.MN{ID: 1, Size: 8, Replicas: 2}
	if _, err := c.JoinMN(bounded(t), want, acknowledge); !errors.Is(err, etcd.ErrFormat) {
		t.Errorf("while a node of format 2 is up: %v", err)
	}
	if err := cn.Leave(bounded(t)); err != nil {
		t.Fatal(err)
	}
	m, err := c.JoinMN(bounded(t), want, acknowledge)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Leave(context.Background())
	await(t, m, "the group", func(s *member.State) bool { return s.Group(1) != nil && s.Group(1).Serving })
	got, err := raw(t, s.Endpoint()).Get(bounded(t), "/declock/test/format")
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "3" {
		t.Errorf("format %v, %v", got, err)
	}
	await(t, joinCN(t, c), "the memory", func(s *member.State) bool { return len(s.Memory()) == 1 && s.Memory()[0].Term == 1 })
}

// TestFormatOfGroupsAtOnce: memory nodes with replicas that start at once in a cluster without nodes, which had none with replicas so far, find it of the right format
// whichever of them is first.
func TestFormatOfGroupsAtOnce(t *testing.T) {
	s := start(t)
	for i := range 5 {
		name := fmt.Sprintf("test%d", i)
		if _, err := raw(t, s.Endpoint()).Put(bounded(t), "/declock/"+name+"/format", "2"); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error)
		for id := range fabric.MemID(4) {
			c := connect(t, options(s.Endpoint(), name))
			go func() {
				_, err := c.JoinMN(bounded(t), member.MN{ID: id, Size: 8, Replicas: 2}, acknowledge)
				errs <- err
			}()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	}
}

// TestOtherFormat: a cluster of another version is refused.
func TestOtherFormat(t *testing.T) {
	s := start(t)
	if _, err := raw(t, s.Endpoint()).Put(bounded(t), "/declock/test/format", "4"); err != nil {
		t.Fatal(err)
	}
	c := connect(t, options(s.Endpoint(), "test"))
	if _, err := c.JoinCN(bounded(t), "", nil); !errors.Is(err, etcd.ErrFormat) {
		t.Errorf("JoinCN: %v", err)
	}
}

// TestAllCrashed: numbers of a cluster whose nodes have all died are free again.
func TestAllCrashed(t *testing.T) {
	s := start(t)
	c := connect(t, options(s.Endpoint(), "test"))
	for range coordtest.MaxCN {
		etcd.Expire(c, joinCN(t, c))
	}
	kv := raw(t, s.Endpoint())
	for gone := false; !gone; {
		got, err := kv.Get(bounded(t), "/declock/test/live/", clientv3.WithPrefix())
		if err != nil {
			t.Fatal(err)
		}
		gone = len(got.Kvs) == 0
	}
	m := joinCN(t, c)
	await(t, m, "nobody else", func(s *member.State) bool { return len(s.CNs) == 1 && len(s.Fencing) == 0 && s.Lost == coordtest.MaxCN })
}

// TestOptions: bad options are refused before anything is sent.
func TestOptions(t *testing.T) {
	good := options("http://localhost:1", "test")
	for name, change := range map[string]func(*etcd.Options){
		"no endpoint":  func(o *etcd.Options) { o.Endpoints = nil },
		"no scheme":    func(o *etcd.Options) { o.Endpoints = []string{"localhost:2379"} },
		"no name":      func(o *etcd.Options) { o.Cluster = "" },
		"slash":        func(o *etcd.Options) { o.Cluster = "a/b" },
		"part second":  func(o *etcd.Options) { o.TTL = 1500 * time.Millisecond },
		"no password":  func(o *etcd.Options) { o.User = "u" },
		"only timeout": func(o *etcd.Options) { o.Timeout = -1 },
	} {
		o := good
		change(&o)
		if _, err := etcd.New(t.Context(), o); !errors.Is(err, etcd.ErrOptions) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
