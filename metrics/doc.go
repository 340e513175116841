// Package metrics exports what a compute node or memory node does to Prometheus. The daemons have it built in; a program with
// the library registers a collector of its own:
//
//	m := metrics.ComputeNode(cluster, nil)
//	prometheus.MustRegister(m)
//	..
//	prometheus.Unregister(m)
//	m.Wait()
//	cluster.Close()
//
// Counters of a session that is open are as of the last of its acquisitions that was sampled (one in
// cn.SampleEvery); the histograms count these samples only. docs/monitoring.md says what each metric means and
// when to wonder, and deploy/grafana has a dashboard.
package metrics
