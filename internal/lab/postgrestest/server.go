// Package postgrestest starts, inspects and breaks real PostgreSQL servers for tests. It needs
// a Unix system.
//
// PostgreSQL refuses to run as root. A test that does runs it as another user: postgres, or
// nobody. On Linux a server ends with the test process, even after a panic or SIGKILL.
package postgrestest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startup is the time that a server may take to answer.
const startup = 30 * time.Second

// Server is a PostgreSQL server on a port of 127.0.0.1, with a data directory of its own. Its
// methods are not safe for concurrent use.
type Server struct {
	bin, dir string
	port     int
	args     []string
	cmd      *exec.Cmd
	log      string
	exited   chan struct{}
}

// defaults make a server quick, which is used by a test alone. Kill loses nothing with them:
// the operating system goes on.
var defaults = []string{
	"fsync=off", "full_page_writes=off", "synchronous_commit=on", "max_connections=200", "shared_buffers=64MB",
	"listen_addresses=127.0.0.1", "unix_socket_directories=", "logging_collector=off", "dynamic_shared_memory_type=mmap", "log_min_messages=warning",
}

// Start runs a server for this test only and kills it when the test ends. settings are as
// "name=value", and override the defaults. Without PostgreSQL the test is skipped, or fails
// where CI=true.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	s := open(t, settings, (*Server).create)
	t.Cleanup(s.Remove)
	return s
}

var shared struct {
	sync.Mutex
	server *Server
}

// Shared returns the one server that all tests of this process may use. A test keeps to a
// schema of its own. The process calls RemoveShared at its end.
func Shared(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		shared.server = open(t, nil, (*Server).create)
	}
	return shared.server
}

// RemoveShared kills the shared server and removes its files.
func RemoveShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.server != nil {
		shared.server.Remove()
		shared.server = nil
	}
}

// locate returns the folder of PostgreSQL's programs, the newest of Debian's if initdb is not
// in PATH.
func locate(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("HEADGATE_POSTGRES_BIN"); bin != "" {
		return bin
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) > 0 {
		slices.SortFunc(found, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
		return filepath.Dir(found[len(found)-1])
	}
	const missing = "NOT TESTED: no PostgreSQL; install it with: apt-get install -y postgresql"
	if os.Getenv("CI") == "true" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// open runs a server on the data directory that create makes.
func open(t testing.TB, settings []string, create func(*Server) error) *Server {
	t.Helper()
	s := &Server{bin: locate(t), args: append(slices.Clone(defaults), settings...)}
	var err error
	if s.dir, err = os.MkdirTemp("", "postgrestest"); err == nil {
		err = s.own()
	}
	if err == nil {
		err = create(s)
	}
	for i := 0; i < 10 && err == nil; i++ {
		// Below 32768, where systems begin to use ports for outgoing connections.
		s.port = 10000 + rand.IntN(12000)
		if err = s.run(); !errors.Is(err, errTaken) {
			break
		}
	}
	if err != nil {
		s.Remove()
		t.Fatal(err)
	}
	return s
}

// own gives the folder to the user that the server runs as.
func (s *Server) own() error {
	if as := other(); as != nil {
		return os.Chown(s.dir, int(as.Uid), int(as.Gid))
	}
	return nil
}

// create makes the data directory of a new server.
func (s *Server) create() error {
	return s.execute("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8", "--no-locale")
}

// execute runs a command of PostgreSQL's to its end.
func (s *Server) execute(name string, args ...string) error {
	if out, err := s.command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("postgrestest: %s: %w\n%s", name, err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command returns a command of PostgreSQL's, which runs as a user that is not root.
func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	dieWithParent(cmd)
	cmd.SysProcAttr.Credential = other()
	return cmd
}

// other is the user that a server of root's runs as, nil if this process is not root's.
func other() *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

var errTaken = errors.New("postgrestest: port or memory taken")

// run starts the server and returns when it serves.
func (s *Server) run() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port)}
	for _, a := range s.args {
		args = append(args, "-c", a)
	}
	s.log = filepath.Join(s.dir, "log")
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := s.command("postgres", args...)
	// Never our own stdout: go test waits until every process has closed it.
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait()
	}()
	s.cmd, s.exited = cmd, exited
	return s.await()
}

// await reads the server's own file, whose last line says that it is ready. Another server may
// answer on the port.
func (s *Server) await() error {
	for end := time.Now().Add(startup); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		pid, _ := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
		lines := strings.Split(string(pid), "\n")
		if len(lines) > 7 && strings.TrimSpace(lines[7]) == "ready" && lines[0] == strconv.Itoa(s.cmd.Process.Pid) {
			return nil
		}
		select {
		case <-s.exited:
			// A process that was killed keeps its memory until it has ended.
			if log := s.Log(); strings.Contains(log, "Address already in use") || strings.Contains(log, "is still in use") {
				return errTaken
			}
			return fmt.Errorf("postgrestest: postgres ended:\n%s", s.Log())
		default:
		}
	}
	return fmt.Errorf("postgrestest: not ready within %v:\n%s", startup, s.Log())
}

// Log returns what the present run has printed.
func (s *Server) Log() string {
	log, _ := os.ReadFile(s.log)
	return string(log)
}

// Addr is host:port, the same after a restart.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL is how a client reaches the server at an address, its own or that of a proxy, with
// settings as "name=value&…".
func URL(addr, settings string) string {
	return "postgres://postgres@" + addr + "/postgres?sslmode=disable&" + settings
}

// URL is how a client reaches the server.
func (s *Server) URL() string { return URL(s.Addr(), "") }

// Kill ends all processes of the server as SIGKILL does, and waits for that.
func (s *Server) Kill() {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-s.exited
}

// Shutdown ends the server in order, without waiting for clients.
func (s *Server) Shutdown() {
	_ = s.cmd.Process.Signal(syscall.SIGINT)
	<-s.exited
}

// Restart runs an ended server again, on the same port and data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	err := s.run()
	for i := 0; i < 100 && errors.Is(err, errTaken); i++ {
		time.Sleep(50 * time.Millisecond)
		err = s.run()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Stop suspends all processes of the server. Cont resumes them.
func (s *Server) Stop() {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
}

// Cont resumes what Stop has suspended.
func (s *Server) Cont() {
	for _, pid := range s.processes() {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// Remove kills the server and removes its files.
func (s *Server) Remove() {
	if s.cmd != nil && s.cmd.Process != nil && s.exited != nil {
		s.Cont()
		_ = s.cmd.Process.Signal(syscall.SIGQUIT) // and leaves no shared memory, as Kill does
		select {
		case <-s.exited:
		case <-time.After(5 * time.Second):
			s.Kill()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// processes returns the server's process and its children, which have process groups of their
// own.
func (s *Server) processes() []int {
	parent := s.cmd.Process.Pid
	pids := []int{parent}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// The state and the parent follow the name, which stands in brackets.
		_, rest, _ := bytes.Cut(stat, []byte(") "))
		if f := bytes.Fields(rest); len(f) > 1 && string(f[1]) == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			pids = append(pids, pid)
		}
	}
	return pids
}
