package redis

import (
	"testing"
)

func TestBasics(t *testing.T) {
	_, address := startServer(t, openCluster(t), Options{})
	c := dial(t, address)
	c.want("PING", "PONG")
	c.want("GET k", "nil")
	c.want("SET k v", "OK")
	c.want("GET k", "v")
	c.want("DEL k none", ":1")
	c.want("GET k", "nil")
}
