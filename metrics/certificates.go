package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var certificateExpiry = gauge("certificate_expiry_timestamp_seconds", "When the certificate in a file of this daemon expires, in Unix time.", "file")

// A Certificate is a certificate in a file: of several in it, the one that expires first.
type Certificate struct {
	File     string
	NotAfter time.Time
}

// Certificates returns a collector of when certificates expire; list is called at each scrape, since files are renewed.
func Certificates(list func() []Certificate) prometheus.Collector { return certificates{list} }

type certificates struct{ list func() []Certificate }

// Describe implements prometheus.Collector.
func (certificates) Describe(ch chan<- *prometheus.Desc) { ch <- certificateExpiry.Desc }

// Collect implements prometheus.Collector.
func (c certificates) Collect(ch chan<- prometheus.Metric) {
	e := emitter{ch}
	for _, x := range c.list() {
		e.one(certificateExpiry, float64(x.NotAfter.Unix()), x.File)
	}
}
