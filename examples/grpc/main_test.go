package main

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/headgate-go/headgate/internal/lab/redistest"
)

// TestExample: on real Redis a client that waits has all its calls served, and
// one that does not is refused.
func TestExample(t *testing.T) {
	store, err := open(redistest.Shared(t).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	server, err := newServer(store)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(ln) }()
	defer server.Stop()
	var patient, impatient bytes.Buffer
	if err := call(&patient, ln.Addr().String(), 12, false); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(patient.String(), "served"); n != 12 {
		t.Errorf("served %d of 12:\n%s", n, &patient)
	}
	if err := call(&impatient, ln.Addr().String(), 20, true); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(impatient.String(), "ResourceExhausted") {
		t.Errorf("nothing was refused:\n%s", &impatient)
	}
}
