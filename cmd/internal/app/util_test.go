package app

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/declock/declock/cmd/internal/scheme"
)

func TestStatusOfAnotherNodeIsNotTaken(t *testing.T) {
	of, err := scheme.Parse("tcp://a:1,b:2/demo", scheme.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for said, taken := range map[string]bool{
		`{"node":"cn2","address":"tcp://a:1,b:2/demo"}`: true,
		`{"node":"cn2","address":"tcp://b:2/demo"}`:     true, // its configuration names another server
		`{"node":"cn1","address":"tcp://a:1,b:2/demo"}`: false,
		`{"node":"cn2","address":"tcp://a:1,b:2/test"}`: false,
		`{"memory":"of a memory node"}`:                 false,
		`{}`:                                            false,
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, said) }))
		s, err := fetchStatus(t.Context(), strings.TrimPrefix(srv.URL, "http://"), of, "cn2")
		if (err == nil) != taken {
			t.Errorf("%s: %+v, %v", said, s, err)
		}
		srv.Close()
	}
}

// Compute nodes that accept connections and say nothing take no time of those behind them.
func TestStatusBesideSilentNodes(t *testing.T) {
	t.Parallel()
	at, err := scheme.Parse("tcp://a:1/demo", scheme.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []scheme.ComputeInfo
	for i := range 4 {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		nodes = append(nodes, scheme.ComputeInfo{Node: fmt.Sprintf("cn%d", i+1), Alive: true, HTTP: silent.Addr().String()})
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"node":"cn5","address":"tcp://a:1/demo"}`)
	}))
	defer srv.Close()
	nodes = append(nodes, scheme.ComputeInfo{Node: "cn5", Alive: true, HTTP: strings.TrimPrefix(srv.URL, "http://")})
	for i, r := range computeRows(t.Context(), at, nodes, nil) {
		if r.Node != nodes[i].Node || (r.Status != nil) != (i == 4) {
			t.Errorf("%s: status %+v", r.Node, r.Status)
		}
	}
}
