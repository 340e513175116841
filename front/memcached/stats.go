package memcached

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/declock/declock"
	"github.com/declock/declock/memory"
	"github.com/declock/declock/objstore"
)

// A stat is a line of what stats answers.
type stat struct{ name, value string }

func number[T uint64 | uint32 | int | int64](v T) string { return fmt.Sprint(v) }

// stats answers stats.
func (c *conn) stats(t [][]byte) error {
	if len(t) == 1 {
		list, err := c.general()
		if err != nil {
			c.failed(err)
			return nil
		}
		c.list(list)
		return nil
	}
	switch string(t[1]) {
	case "reset":
		c.srv.counted.reset()
		c.srv.accept.Rejected.Store(0)
		c.srv.counted.evictedBefore.Store(c.srv.StoreStats().Evictions)
		c.srv.prefixes.reset()
		c.say("RESET")
	case "settings":
		c.list(c.srv.settings())
	case "detail":
		c.detail(t[2:])
	case "conns":
		c.list(c.srv.connections())
	case "items", "slabs":
		list, err := c.classes(string(t[1]))
		if err != nil {
			c.failed(err)
			return nil
		}
		c.list(list)
	case "cachedump":
		return c.cacheDump(t[2:])
	case "sizes":
		c.list([]stat{{"sizes_status", "disabled"}})
	case "sizes_enable", "sizes_disable":
		c.list([]stat{{"sizes_status", "disabled"}, {"sizes_error", "not_supported"}})
	default:
		c.say("ERROR")
	}
	return nil
}

// list answers with lines of statistics.
func (c *conn) list(list []stat) {
	for _, s := range list {
		c.out = append(append(append(append(append(c.out, "STAT "...), s.name...), ' '), s.value...), '\r', '\n')
	}
	c.out = append(c.out, "END\r\n"...)
}

// general are the statistics that stats without an argument answers with: memcached's names in its order. What this server does not have is zero.
func (c *conn) general() ([]stat, error) {
	h := c.srv.home.Load()
	u, err := h.usage()
	if err != nil {
		return nil, err
	}
	s, n := c.srv, c.srv.counted.total()
	var use syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &use)
	cpu := func(t syscall.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }
	list := []stat{
		{"pid", number(os.Getpid())}, {"uptime", number(int(s.clock().Seconds()))}, {"time", number(time.Now().Unix() + s.moved.Load())},
		{"version", Version}, {"libevent", "none"}, {"pointer_size", number(strconv.IntSize)},
		{"rusage_user", cpu(use.Utime)}, {"rusage_system", cpu(use.Stime)},
		{"max_connections", number(s.o.MaxConns)}, {"curr_connections", number(s.accept.Open())},
		{"total_connections", number(s.accept.Accepted.Load())}, {"rejected_connections", number(s.accept.Rejected.Load())},
		{"connection_structures", number(s.accept.Open())}, {"response_obj_oom", "0"}, {"response_obj_count", "0"}, {"response_obj_bytes", "0"},
		{"read_buf_count", "0"}, {"read_buf_bytes", "0"}, {"read_buf_bytes_free", "0"}, {"read_buf_oom", "0"}, {"reserved_fds", "0"},
	}
	for i, name := range counterNames {
		list = append(list, stat{name, number(n[i])})
	}
	list = append(list, stat{"store_too_large", number(s.counted.tooLarge.Load())}, stat{"store_no_memory", number(n[noMemory])}, stat{"auth_cmds", number(s.counted.authentications.Load())}, stat{"auth_errors", number(s.counted.unauthenticated.Load())})
	if s.o.IdleTimeout > 0 {
		list = append(list, stat{"idle_kicks", number(s.counted.idled.Load())})
	}
	list = append(list, []stat{
		{"bytes_read", number(s.counted.read.Load())}, {"bytes_written", number(s.counted.written.Load())},
		{"limit_maxbytes", number(h.limit())}, {"accepting_conns", "1"}, {"listen_disabled_num", "0"}, {"time_in_listen_disabled_us", "0"},
		{"threads", number(runtime.GOMAXPROCS(0))}, {"conn_yields", "0"}, {"hash_power_level", "0"},
		{"hash_bytes", number(h.index())}, {"hash_is_expanding", "0"},
	}...)
	for _, name := range slabNames {
		list = append(list, stat{name, "0"})
	}
	return append(list, []stat{
		{"bytes", number(u.Bytes)}, {"curr_items", number(u.Items)}, {"total_items", number(n[totalItems])}, {"slab_global_page_pool", "0"},
		{"expired_unfetched", "0"}, {"evicted_unfetched", "0"}, {"evictions", number(s.evictions())},
		{"reclaimed", number(n[reclaimed])}, {"crawler_reclaimed", "0"}, {"crawler_items_checked", "0"}, {"lrutail_reflocked", "0"},
	}...), nil
}

// counterNames are memcached's names of counters, in its order.
var counterNames = [...]string{
	cmdGet: "cmd_get", cmdSet: "cmd_set", cmdFlush: "cmd_flush", cmdTouch: "cmd_touch", cmdMeta: "cmd_meta", getHits: "get_hits", getMisses: "get_misses",
	getExpired: "get_expired", getFlushed: "get_flushed", deleteMisses: "delete_misses", deleteHits: "delete_hits", incrMisses: "incr_misses",
	incrHits: "incr_hits", decrMisses: "decr_misses", decrHits: "decr_hits", casMisses: "cas_misses", casHits: "cas_hits", casBadval: "cas_badval",
	touchHits: "touch_hits", touchMisses: "touch_misses",
}

// slabNames are memcached's names of what only it has.
var slabNames = []string{
	"slab_reassign_rescues", "slab_reassign_chunk_rescues", "slab_reassign_evictions_nomem", "slab_reassign_inline_reclaim", "slab_reassign_busy_items",
	"slab_reassign_busy_deletes", "slab_reassign_running", "slabs_moved",
	"malloc_fails", "log_worker_dropped", "log_worker_written", "log_watcher_skipped", "log_watcher_sent", "log_watchers", "unexpected_napi_ids",
	"round_robin_fallback",
}

// usageSample is how many buckets of each memory node are counted for curr_items and bytes.
const usageSample = 4096

// usage returns how many items there are, about, and their bytes.
func (h *home) usage() (sum objstore.Usage, err error) {
	if h == nil {
		return sum, errDetached
	}
	h.inUse.RLock()
	defer h.inUse.RUnlock()
	err = h.cluster.Use(context.Background(), func(s *declock.Session) error {
		nodes := h.stores.Load()[items].Nodes()
		for _, r := range h.cluster.Node().Regions() {
			if !slices.Contains(nodes, r.Memory()) {
				continue
			}
			e, err := r.Lookup(s.Port(), h.o.Store, memory.KindStore)
			if err != nil {
				return err
			}
			u, err := objstore.Estimate(s.Port(), r, &e, usageSample)
			if err != nil {
				return err
			}
			sum.Items += u.Items
			sum.Bytes += u.Bytes
		}
		return nil
	})
	return sum, err
}

// evictions returns how many there were since the last reset.
func (s *Server) evictions() uint64 {
	n := s.StoreStats().Evictions
	return n - min(n, s.counted.evictedBefore.Load())
}

// limit returns how many bytes items may take.
func (h *home) limit() (sum uint64) {
	for _, r := range h.cluster.Node().Regions() {
		if limit := h.stores.Load()[items].MemoryLimit(); limit != 0 {
			sum += limit
		} else {
			sum += r.Size()
		}
	}
	return sum
}

// index returns the bytes of the store's buckets.
func (h *home) index() uint64 {
	st := h.stores.Load()[items]
	perNode, slots := st.Buckets()
	return perNode * uint64(len(st.Nodes())) * uint64(slots+1) * 8
}

// settings are the settings that there are.
func (s *Server) settings() []stat {
	evictions, limit := "on", uint64(0)
	if h := s.home.Load(); h != nil {
		limit = h.cfg.MemoryLimit
		if h.cfg.NoEvict {
			evictions = "off"
		}
	}
	list := []stat{
		{"maxbytes", number(limit)}, {"maxconns", number(s.o.MaxConns)}, {"verbosity", number(s.verbose.Load())},
		{"evictions", evictions}, {"cas_enabled", "yes"}, {"item_size_max", number(s.o.MaxItem)}, {"maxconns_fast", "yes"},
		{"stat_key_prefix", string(prefixEnd)}, {"detail_enabled", yesNo(s.prefixes.on.Load())}, {"auth_enabled_sasl", "no"}, {"auth_enabled_ascii", cmp.Or(s.o.AuthFile, "no")},
		{"shutdown_command", yesNo(s.o.Shutdown != nil)},
		{"flush_enabled", yesNo(!s.o.NoFlush)}, {"dump_enabled", yesNo(!s.o.NoDump)}, {"idle_timeout", number(int(s.o.IdleTimeout.Seconds()))},
		{"num_threads", number(runtime.GOMAXPROCS(0))}, {"ssl_enabled", yesNo(s.o.TLS != nil)}, {"binding_protocol", "auto-negotiate"},
	}
	for i := range list {
		if v, ok := s.o.Settings[list[i].name]; ok {
			list[i].value = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.o.Settings)) {
		if !slices.ContainsFunc(list, func(x stat) bool { return x.name == name }) {
			list = append(list, stat{name, s.o.Settings[name]})
		}
	}
	return list
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// classes answers stats items and stats slabs. The store has no classes that clients could know: all items are of class 1.
func (c *conn) classes(what string) ([]stat, error) {
	u, err := c.srv.home.Load().usage()
	if err != nil {
		return nil, err
	}
	if what == "items" {
		if u.Items == 0 {
			return nil, nil
		}
		return ofClass("items:1:", itemNames, map[string]uint64{"number": u.Items, "mem_requested": u.Bytes, "evicted": c.srv.evictions(), "reclaimed": c.srv.counted.total()[reclaimed]}), nil
	}
	n := c.srv.counted.total()
	list := ofClass("1:", chunkNames, map[string]uint64{"chunk_size": uint64(c.srv.o.MaxItem), "used_chunks": u.Items, "get_hits": n[getHits], "cmd_set": n[cmdSet], "delete_hits": n[deleteHits],
		"incr_hits": n[incrHits], "decr_hits": n[decrHits], "cas_hits": n[casHits], "cas_badval": n[casBadval], "touch_hits": n[touchHits]})
	return append(list, stat{"active_slabs", "1"}, stat{"total_malloced", number(u.Bytes)}), nil
}

// ofClass lists all names of a class's statistics, for exporters that fail when one is missing. Those that are not known are zero.
func ofClass(prefix string, names []string, known map[string]uint64) (list []stat) {
	for _, name := range names {
		list = append(list, stat{prefix + name, number(known[name])})
	}
	return list
}

// itemNames are memcached's names in stats items, in its order.
var itemNames = []string{
	"number", "number_hot", "number_warm", "number_cold", "age_hot", "age_warm", "age", "mem_requested", "evicted", "evicted_nonzero", "evicted_time", "outofmemory", "tailrepairs", "reclaimed",
	"expired_unfetched", "evicted_unfetched", "evicted_active", "crawler_reclaimed", "crawler_items_checked", "lrutail_reflocked", "moves_to_cold", "moves_to_warm", "moves_within_lru",
	"direct_reclaims", "hits_to_hot", "hits_to_warm", "hits_to_cold", "hits_to_temp",
}

// chunkNames are those in stats slabs.
var chunkNames = []string{
	"chunk_size", "chunks_per_page", "total_pages", "total_chunks", "used_chunks", "free_chunks", "free_chunks_end", "get_hits", "cmd_set", "delete_hits", "incr_hits", "decr_hits", "cas_hits",
	"cas_badval", "touch_hits",
}
