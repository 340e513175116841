package app

import (
	"fmt"
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
