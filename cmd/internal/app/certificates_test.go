package app

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/declock/declock/cmd/internal/command"
	"github.com/declock/declock/cmd/internal/exit"
	"github.com/declock/declock/cmd/internal/node"
	"github.com/declock/declock/internal/secure"
	"github.com/declock/declock/internal/secure/securetest"
	"github.com/urfave/cli/v2"
)

// --print-config finds certificates that have expired, that are not valid yet, that another CA has signed, and that are not for the node.
func TestPrintConfigChecksCertificates(t *testing.T) {
	ours, theirs := securetest.New(t), securetest.New(t)
	hour, now := time.Hour, time.Now()
	good := ours.Files("good", "cn.declock", "mn.declock", "mn3.declock")
	foreign := theirs.Files("foreign", "cn.declock")
	foreign.CA = good.CA
	foreignEtcd := theirs.Files("etcd")
	foreignEtcd.CA = good.CA
	expired := ours.Valid("expired", now.Add(-2*hour), now.Add(-hour), "cn.declock")
	for _, x := range []struct {
		app         func(*command.Env) *cli.App
		node, etcd  secure.Files
		more, wrong string
	}{
		{node.CN, good, good, "", ""},
		{node.MN, good, good, "--mem=3", ""},
		{node.CN, expired, good, "", "has expired at"},
		{node.CN, good, expired, "", "for etcd: secure: bad certificate or secret file: the certificate in"},
		{node.CN, ours.Valid("early", now.Add(hour), now.Add(2*hour), "cn.declock"), good, "", "is the clock of this machine right?"},
		{node.CN, foreign, good, "", "is not accepted by the CA"},
		{node.CN, good, foreignEtcd, "", "is not accepted by the CA"},
		{node.CN, ours.Files("memory", "mn.declock"), good, "", "is not for cn.declock"},
		{node.MN, ours.Files("compute", "cn.declock"), good, "", "is not for mn.declock"},
		{node.MN, good, good, "--mem=4", "not for mn4"},
	} {
		a := x.app(&command.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard})
		args := []string{"daemon", "--print-config", "--cluster", "tcp://127.0.0.1:1/x", "--listen", ":0",
			"--tls-ca", x.node.CA, "--tls-cert", x.node.Cert, "--tls-key", x.node.Key, "--etcd-ca", x.etcd.CA, "--etcd-cert", x.etcd.Cert, "--etcd-key", x.etcd.Key}
		if x.more != "" {
			args = append(args, x.more)
		}
		err := a.Run(args)
		if x.wrong == "" && err != nil || x.wrong != "" && (!errors.Is(err, secure.ErrFiles) || !strings.Contains(err.Error(), x.wrong) || exit.Of(err) != exit.Usage) {
			t.Errorf("want %q: %v", x.wrong, err)
		}
	}
}
