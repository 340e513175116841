package metrics

import (
	"github.com/declock/declock/front"
	"github.com/prometheus/client_golang/prometheus"
)

var (
	frontConnections = gauge("front_connections", "Connections of clients of another system's protocol.", "protocol")
	frontAccepted    = counter("front_connections_total", "Connections of such clients, by what became of them.", "protocol", "result")
	frontBytes       = counter("front_bytes_total", "Bytes read from and written to such clients.", "protocol", "direction")
	frontRequests    = counter("front_requests_total", "Requests of such clients, in the words of the protocol's own statistics.", "protocol", "command", "result")
)

// Front returns a collector of servers of other systems' protocols; read is called at each scrape.
func Front(read func() []front.Counters) prometheus.Collector { return frontEnd{read} }

type frontEnd struct{ read func() []front.Counters }

// Describe implements prometheus.Collector.
func (frontEnd) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []desc{frontConnections, frontAccepted, frontBytes, frontRequests} {
		ch <- d.Desc
	}
}

// Collect implements prometheus.Collector.
func (f frontEnd) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	for _, n := range f.read() {
		e.front(&n)
	}
}

func (e emitter) front(n *front.Counters) {
	e.one(frontConnections, float64(n.Connections), n.Protocol)
	e.one(frontAccepted, float64(n.Accepted), n.Protocol, "accepted")
	e.one(frontAccepted, float64(n.Rejected), n.Protocol, "rejected")
	e.one(frontBytes, float64(n.Read), n.Protocol, "read")
	e.one(frontBytes, float64(n.Written), n.Protocol, "written")
	for _, r := range n.Requests {
		e.one(frontRequests, float64(r.Count), n.Protocol, r.Command, r.Result)
	}
}
