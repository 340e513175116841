// Package web serves what a daemon shows over HTTP: whether it runs and can be used, its metrics, its status, and profiles.
//
//	/               a page for people, if the node has one
//	/healthz        liveness: 200 as long as the process answers; a restart would not help against what /readyz reports
//	/readyz         readiness: 200 when it can be used; 503 with the reason while it starts, drains or misses something
//	/metrics        for Prometheus
//	/status         JSON, as "declock status" shows it
//	/debug/pprof/   if it was asked for
//
// The server starts before the node and ends after it, so that /readyz can report that the node starts or drains.
//
// There is no authentication: bind it to an address that only monitoring reaches. Nothing here changes the node.
package web

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // in http.DefaultServeMux, which nothing else serves
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Options of a server.
type Options struct {
	Addr  string // host:port
	Pprof bool
	Ready func() error // why the node cannot be used; nil: it can
}

// A Server serves until Close. A nil *Server is a daemon without HTTP: its methods do nothing.
type Server struct {
	ln    net.Listener
	srv   *http.Server
	shown shown
}

// A shown is the status and metrics of the node: none while it starts and after it has left. As a collector it is unchecked: its metrics
// are not described in advance.
type shown struct {
	mu      sync.RWMutex // held for reading during a scrape or a request
	status  func() any
	page    http.Handler // nil: none
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

func (n *shown) set(status func() any, page http.Handler, c []prometheus.Collector) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status, n.page, n.metrics = status, page, c
}

// ServeHTTP serves the page, if there is one now.
func (n *shown) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.page == nil {
		w.Header().Set("Refresh", "5")
		http.Error(w, "it starts, or has left", http.StatusServiceUnavailable)
		return
	}
	n.page.ServeHTTP(w, r)
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
	mux.Handle("GET /{$}", &s.shown)
	mux.HandleFunc("GET /healthz", report(func() error { return nil }))
	mux.HandleFunc("GET /readyz", report(o.Ready))
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
		mux.Handle("GET /debug/pprof/", http.DefaultServeMux)
	}
	s.srv = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 16 << 10}
	go func() { _ = s.srv.Serve(ln) }() // until Close
	return s, nil
}

// Show shows a status, a page and metrics from now on, until Hide.
func (s *Server) Show(status func() any, page http.Handler, c ...prometheus.Collector) {
	if s != nil {
		s.shown.set(status, page, c)
	}
}

// Hide ends Show: when it returns, no scrape uses the collectors any more, and no reader the page.
func (s *Server) Hide() { s.Show(nil, nil) }

// Addr returns the address on which it listens; of nil, "".
func (s *Server) Addr() string {
	if s == nil {
		return ""
	}
	return s.ln.Addr().String()
}

// Close ends it at once: requests under way get no answer.
func (s *Server) Close() {
	if s != nil {
		_ = s.srv.Close()
	}
}

// report answers 503 with the error of check, or 200 without one.
func report(check func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	}
}
