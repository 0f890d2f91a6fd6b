package postgrestest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Pooler runs a pgbouncer in transaction mode before the server, with at most four connections
// to it, until the test ends. It returns the address. settings are as "name = value". Without
// pgbouncer the test is skipped, or fails where CI=true.
func (s *Server) Pooler(t testing.TB, settings ...string) (addr string) {
	t.Helper()
	bin := "/usr/sbin/pgbouncer" // not in the PATH of most users
	if path, err := exec.LookPath("pgbouncer"); err == nil {
		bin = path
	}
	if _, err := os.Stat(bin); err != nil {
		const missing = "NOT TESTED: no pgbouncer; install it with: apt-get install -y pgbouncer"
		if os.Getenv("CI") == "true" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	var err error
	for range 10 {
		if addr, err = s.pooler(t, bin, settings); err == nil {
			return addr
		}
	}
	t.Fatal(err)
	return ""
}

// pooler runs a pgbouncer on a port that nobody may have.
func (s *Server) pooler(t testing.TB, bin string, settings []string) (addr string, err error) {
	port := 10000 + rand.IntN(12000)
	file := filepath.Join(s.dir, fmt.Sprintf("pgbouncer%d.ini", port))
	lines := append([]string{
		"[databases]", fmt.Sprintf("postgres = host=127.0.0.1 port=%d user=postgres", s.port), "[pgbouncer]",
		"listen_addr = 127.0.0.1", fmt.Sprintf("listen_port = %d", port), "unix_socket_dir =", "auth_type = any",
		"pool_mode = transaction", "default_pool_size = 4", "max_client_conn = 200",
	}, settings...)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return "", err
	}
	log, err := os.Create(file + ".log")
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.Command(bin, file)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	cmd.SysProcAttr.Credential = other() // it refuses to run as root
	if err := cmd.Start(); err != nil {
		return "", err
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("pgbouncer:\n%s", text)
		}
	})
	addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if err := listening(addr, exited); err != nil {
		text, _ := os.ReadFile(log.Name())
		return "", fmt.Errorf("postgrestest: pgbouncer: %w\n%s", err, text)
	}
	return addr, nil
}

// listening returns when something listens at an address.
func listening(addr string, exited <-chan struct{}) error {
	for end := time.Now().Add(startup); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		select {
		case <-exited:
			return errors.New("ended")
		default:
		}
		if c, err := net.Dial("tcp", addr); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("not ready within %v", startup)
}
