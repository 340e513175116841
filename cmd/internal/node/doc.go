// Package node is the applications declock-mn and declock-cn over package daemon, with what other commands share of them: the
// flags by which a command finds a cluster and is let in, configuration files, logging.
package node
