package redistest

import (
	"os"
	"sync"
	"testing"
)

// Long reports whether tests run at full length: `make test-long` sets
// HEADGATE_LONG. Otherwise each test takes as few steps as show its subject.
func Long() bool { return os.Getenv("HEADGATE_LONG") != "" }

// Steps returns short, or long where tests run at full length.
func Steps(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// binary is a test whose cleanups wait for the end of the process, in Main.
type binary struct {
	testing.TB
	cleanups []func()
}

func (b *binary) Cleanup(f func()) { b.cleanups = append(b.cleanups, f) }

func (b *binary) TempDir() string {
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

var shared struct {
	mu struct {
		sync.Mutex
		life    *binary // nil without Main
		server  *Server
		cluster *Cluster
	}
}

// Main runs the tests of a package that uses SharedCluster: its TestMain calls
// it. It stops the servers after the last test.
func Main(m *testing.M) {
	life := &binary{}
	shared.mu.life = life
	code := m.Run()
	for _, f := range life.cleanups {
		f()
	}
	os.Exit(code)
}

// Shared returns the one server that all tests of this process may use if they
// only need some Redis: keep to keys of your own, and don't stop it, kill it or
// change its configuration. It ends with the process. Its directory is the
// system's temporary one, since it never writes a file.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.mu.server == nil {
		shared.mu.server = open(t, os.TempDir(), nil)
	}
	return shared.mu.server
}

// SharedCluster returns the one cluster that all tests of this process may use
// one after the other, without keys, scripts and statistics of an earlier test.
// Don't stop a node, move a slot or leave a configuration behind.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	life := shared.mu.life
	if life == nil {
		t.Fatal("redistest: SharedCluster without Main")
	}
	if life.TB = t; shared.mu.cluster == nil {
		shared.mu.cluster = StartCluster(life)
	}
	c := shared.mu.cluster
	for _, n := range c.all()[:primaries] {
		n.do(t, "FLUSHALL")
		n.do(t, "SCRIPT", "FLUSH")
	}
	c.Settle(t)
	c.ResetStats(t)
	return c
}
