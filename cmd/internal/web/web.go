// Package web is what a daemon shows over HTTP: whether it lives and can be used, its metrics, its status, and profiles.
//
//	/healthz        200 as long as the process can go on; 503 when it should be started anew
//	/readyz         200 when it can be used; 503 with the reason while it starts, drains or misses something
//	/metrics        for Prometheus
//	/status         JSON, as "declock status" shows it
//	/debug/pprof/   if it was asked for
//
// The server outlives the node that it shows: it says that the node starts, and that it drains.
//
// There is no authentication: it is for an address that only those reach who may know. It changes nothing.
package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a server.
type Options struct {
	Addr    string // host:port
	Pprof   bool
	Healthy func() error // why the process should be started anew; nil: it is well
	Ready   func() error // why it cannot be used; nil: it can
}

// A Server serves until Close.
type Server struct {
	ln    net.Listener
	srv   *http.Server
	shown shown
}

// A shown is what there is to show of the node itself: nothing while it starts and when it has left. It is a collector of which nobody
// knows before what it has.
type shown struct {
	mu      sync.RWMutex // held while it is shown
	status  func() any
	metrics []prometheus.Collector
}

// Describe is prometheus.Collector.Describe.
func (n *shown) Describe(chan<- *prometheus.Desc) {}

// Collect is prometheus.Collector.Collect.
func (n *shown) Collect(ch chan<- prometheus.Metric) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, c := range n.metrics {
		c.Collect(ch)
	}
}

func (n *shown) set(status func() any, c []prometheus.Collector) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status, n.metrics = status, c
}

// get returns the status, if there is one.
func (n *shown) get() (any, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.status == nil {
		return nil, false
	}
	return n.status(), true
}

// Start starts a server.
func Start(o Options) (*Server, error) {
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s := &Server{ln: ln}
	reg.MustRegister(&s.shown)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", say(o.Healthy))
	mux.HandleFunc("GET /readyz", say(o.Ready))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		status, ok := s.shown.get()
		if !ok {
			http.Error(w, "it starts, or has left", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(status) // a caller that has gone needs no answer
	})
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	s.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	go func() { _ = s.srv.Serve(ln) }() // until Close
	return s, nil
}

// Show shows a status and metrics from now on, until Hide.
func (s *Server) Show(status func() any, c ...prometheus.Collector) { s.shown.set(status, c) }

// Hide ends Show: when it returns, nobody uses the collectors any more.
func (s *Server) Hide() { s.shown.set(nil, nil) }

// Addr returns the address on which it listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close ends it at once.
func (s *Server) Close() error {
	if err := s.srv.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func say(why func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := why(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}
