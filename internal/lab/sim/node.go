package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headgate-go/headgate/lua"
)

// node is a simulated server: a Redis as far as the library's requests go. All of its
// fields are used only by events of the network, one at a time.
type node struct {
	world *World
	addr  string
	id    string // in CLUSTER SLOTS
	life  int    // how often its process was started
	conns []*conn

	down   bool // its process has ended: dials are refused
	dark   bool // its host has: nothing comes back
	frozen bool // its process is stopped: it reads later
	wants  []func()

	scripts bool          // the script is loaded
	refuses string        // an error instead of every script's answer, such as OOM
	raises  bool          // a script ends with an error now and then, though it has charged
	ran     int           // scripts
	revoked bool          // no script may write keys of a policy's own
	replica *node         // of which it is a copy; nil for a primary
	ahead   time.Duration // its clock before virtual time
	free    time.Time     // when it has done what it was sent
	keeps   states
}

// arrives is called with what a process sent.
func (n *node) arrives(c *conn, packet string) {
	switch {
	case c.gone:
		return
	case n.dark: // TCP sends it again
		if c.again++; c.again < 8 {
			n.world.at(resend<<c.again, func() { n.arrives(c, packet) })
		}
		return
	case n.down || c.life != n.life:
		n.world.reset(c, syscall.ECONNRESET)
		return
	case n.frozen:
		n.wants = append(n.wants, func() { n.arrives(c, packet) })
		return
	}
	c.inbox += packet
	var out []byte
	for {
		args, rest, err := command(c.inbox)
		if err != nil {
			n.world.fail("the wire", fmt.Errorf("%s: %w in %q", n.addr, err, c.inbox))
		}
		if args == nil {
			break
		}
		c.inbox = rest
		n.free = time.Unix(0, max(n.free.UnixNano(), time.Now().UnixNano())+int64(n.cost(args)))
		out = append(out, n.run(c, args)...)
	}
	n.world.reply(c, time.Until(n.free), out)
}

// cost is the time that a command takes.
func (n *node) cost(args []string) time.Duration {
	return 10*time.Microsecond + time.Duration(len(args))*time.Microsecond
}

// thaw lets the node read what came while it was stopped.
func (n *node) thaw() {
	wants := n.wants
	n.frozen, n.wants = false, nil
	for _, arrives := range wants {
		arrives()
	}
}

// forget removes a connection that the process has closed.
func (n *node) forget(c *conn) {
	if i := slices.Index(n.conns, c); i >= 0 {
		n.conns = slices.Delete(n.conns, i, i+1)
	}
}

// kill ends the node's process: what it has not answered is lost, and all connections end.
func (n *node) kill() {
	conns := n.conns
	n.down, n.conns, n.wants, n.frozen = true, nil, nil, false
	n.life++
	for _, c := range conns {
		n.world.reset(c, cuts[n.world.hashOf("cut", n.addr, n.life)%2])
	}
}

// run runs a command.
func (n *node) run(c *conn, args []string) []byte {
	switch name := strings.ToLower(args[0]); name {
	case "evalsha":
		asking := c.asking
		c.asking = false
		return n.evalsha(c, args[1:], asking)
	case "script":
		if len(args) == 3 && args[2] == lua.Script {
			n.scripts = true
			return bulk(lua.SHA)
		}
		return failure("ERR not the library's script")
	case "hello":
		return n.hello()
	case "ping":
		if len(args) > 1 {
			return bulk(args[1])
		}
		return []byte("+PONG\r\n")
	case "cluster":
		return n.world.slots(n)
	case "asking":
		c.asking = true
		return []byte("+OK\r\n")
	default:
		n.world.fail("the wire", fmt.Errorf("%s: a command that no simulated node has: %q", n.addr, args))
		return failure("ERR unknown command '" + name + "'")
	}
}

// hello answers as a server of protocol 3.
func (n *node) hello() []byte {
	role, mode := "master", "standalone"
	if n.replica != nil {
		role = "replica"
	}
	if n.world.plan.Cluster {
		mode = "cluster"
	}
	b := []byte("%7\r\n")
	for _, field := range [...][2]string{{"server", "redis"}, {"version", "8.0.0"}, {"mode", mode}, {"role", role}} {
		b = append(append(b, bulk(field[0])...), bulk(field[1])...)
	}
	b = append(append(b, bulk("proto")...), ":3\r\n"...)
	b = append(append(b, bulk("id")...), ":1\r\n"...)
	return append(append(b, bulk("modules")...), "*0\r\n"...)
}

// command takes the first command off what has come: an array of bulk strings. It returns
// nil if that is not whole.
func command(b string) (args []string, rest string, err error) {
	n, b, ok := header(b, '*')
	if !ok {
		return nil, "", nil
	}
	if n < 1 {
		return nil, "", fmt.Errorf("an array of %d", n)
	}
	for range n {
		size, after, ok := header(b, '$')
		if !ok || len(after) < size+2 {
			return nil, "", nil
		}
		if size < 0 {
			return nil, "", fmt.Errorf("a string of %d bytes", size)
		}
		args, b = append(args, after[:size]), after[size+2:]
	}
	return args, b, nil
}

// header reads a mark and a number.
func header(b string, mark byte) (n int, rest string, ok bool) {
	line, _, whole := strings.Cut(b[:min(len(b), 32)], "\r\n")
	if !whole {
		return 0, "", false
	}
	if len(line) < 2 || line[0] != mark {
		return -1, "", true
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return -1, "", true
	}
	return n, b[len(line)+2:], true
}

func bulk(s string) []byte { return []byte(fmt.Sprintf("$%d\r\n%s\r\n", len(s), s)) }

func failure(s string) []byte { return []byte("-" + s + "\r\n") }
