package resp

import (
	"bufio"
	"crypto/subtle"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
)

// session is a connection between its first command and its last. Clients of Redis send some
// commands before the first one of their caller; they are answered as Redis does.
type session struct {
	reply
	server   *Server
	raw      net.Conn
	conn     *bounded.Conn // raw's; nil if the listener has no bound
	id       int64
	name     string
	version  int  // of the protocol
	admitted bool // by a password, or since none is wanted
	multi    bool // between MULTI and EXEC
}

func (s *Server) newSession(conn net.Conn, out *bufio.Writer) *session {
	c := &session{reply: reply{out}, server: s, raw: conn, conn: bounded.Of(conn.RemoteAddr()), id: s.ids.Add(1)}
	c.begin()
	return c
}

// begin makes the session a fresh one.
func (c *session) begin() {
	c.name, c.version, c.multi, c.admitted = "", 2, false, c.server.password() == ""
}

// maxBytes is the size of a command.
func (c *session) maxBytes() int {
	//mutant:stranger-is-short
	if !c.admitted {
		return min(maxStranger, c.server.opts.MaxBytes)
	}
	return c.server.opts.MaxBytes
}

func (s *Server) password() string {
	if s.opts.Password == nil {
		return ""
	}
	return s.opts.Password()
}

// greeting is a command about the connection itself.
type greeting struct {
	least, most int  // arguments
	open        bool // answered before AUTH
	always      bool // answered between MULTI and EXEC
	run         func(c *session, args []string) error
}

var greetings = map[string]greeting{
	"AUTH":    {1, 2, true, false, (*session).auth},
	"CLIENT":  {1, maxArgs, false, false, (*session).client},
	"COMMAND": {0, maxArgs, false, false, func(c *session, _ []string) error { c.array(0); return nil }},
	"DISCARD": {0, 0, false, true, (*session).discard},
	"ECHO":    {1, 1, false, false, func(c *session, args []string) error { c.bulk(args[0]); return nil }},
	"EXEC":    {0, 0, false, true, (*session).exec},
	"HELLO":   {0, maxArgs, true, false, (*session).hello},
	"INFO":    {0, maxArgs, false, false, func(c *session, _ []string) error { c.bulk(info); return nil }},
	"MULTI":   {0, 0, false, true, (*session).begins},
	"PING":    {0, 1, false, false, (*session).ping},
	"RESET":   {0, 0, true, true, (*session).reset},
	"SELECT":  {1, 1, false, false, (*session).selects},
}

// info is what clients look for before they use a connection.
const info = "# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\nserver_name:headgated\r\n\r\n" +
	"# Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n\r\n" +
	"# Cluster\r\ncluster_enabled:0\r\n"

// version is that of the Redis whose protocol this is.
const version = "7.0.0"

// Errors in the words of Redis, by which clients distinguish them.
var (
	errNoAuth    = errors.New("NOAUTH Authentication required.")
	errNoHello   = errors.New("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time")
	errWrongPass = errors.New("WRONGPASS invalid username-password pair or user is disabled.")
	errNoPass    = errors.New("ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?")
	errSyntax    = errors.New("ERR syntax error")
	errMulti     = errors.New("ERR there are no transactions: the command was not run")
	errAborted   = errors.New("EXECABORT Transaction discarded because of previous errors.")
	errWebPage   = errors.New("ERR a request of HTTP")
	errName      = errors.New("ERR Client names cannot contain spaces, newlines or special characters.")
)

// do answers one command. It returns false if the connection ends.
func (c *session) do(args []string) bool {
	name := strings.ToUpper(args[0])
	switch name {
	case "QUIT":
		c.simple("OK")
		return false
	//mutant:no-web-page
	case "POST", "HOST:": // a web page that a browser on this machine shows: its body would be commands
		c.server.opts.Observe(strings.TrimSuffix(name, ":"), errWebPage)
		return false
	}
	g, greets := greetings[name]
	cmd, decides := commands[name]
	//mutant:stranger-is-idle
	if (decides || greets) && c.admitted { // bytes that are no command, and who has no password, leave the connection idle
		c.conn.Begin()
		defer c.conn.End()
	}
	err := c.refuse(g)
	switch {
	case err != nil:
	case decides:
		c.server.runs(name, cmd, args[1:], c.reply)
		return true
	case !greets:
		c.error("ERR unknown command '" + args[0] + "'")
		return true
	case len(args)-1 < g.least || len(args)-1 > g.most:
		err = errors.New("ERR wrong number of arguments for '" + strings.ToLower(name) + "' command")
	default:
		err = g.run(c, args[1:])
	}
	if err != nil {
		c.error(err.Error())
	}
	if decides || greets {
		c.server.opts.Observe(name, err)
	}
	return true
}

// refuse returns the error of a command that may not run now. That of a limiter is the zero
// greeting.
func (c *session) refuse(g greeting) error {
	//mutant:password-first
	if !c.admitted && !g.open {
		return errNoAuth
	}
	//mutant:nothing-in-a-transaction
	if c.multi && !g.always {
		return errMulti
	}
	return nil
}

func (c *session) ping(args []string) error {
	if len(args) > 0 {
		c.bulk(args[0])
	} else {
		c.simple("PONG")
	}
	return nil
}

// admit takes a user and a password. Without a password of the server anybody is the user
// "default", as in Redis.
func (c *session) admit(user, password string) error {
	want := c.server.password()
	//mutant:wrong-password
	if user != "default" || want != "" && subtle.ConstantTimeCompare([]byte(password), []byte(want)) != 1 {
		return errWrongPass
	}
	c.admitted = true
	c.conn.Begin()
	c.conn.End()
	return nil
}

func (c *session) auth(args []string) error {
	user := "default"
	if len(args) == 2 {
		user = args[0]
	} else if c.server.password() == "" {
		return errNoPass
	}
	if err := c.admit(user, args[len(args)-1]); err != nil {
		return err
	}
	c.simple("OK")
	return nil
}

// hello is HELLO [version [AUTH user password] [SETNAME name]].
func (c *session) hello(args []string) error {
	asked, name := c.version, c.name
	if len(args) > 0 {
		n, err := strconv.Atoi(args[0])
		if err != nil {
			return errors.New("ERR Protocol version is not an integer or out of range")
		}
		if n < 2 || n > 3 {
			return errors.New("NOPROTO unsupported protocol version")
		}
		asked, args = n, args[1:]
	}
	for len(args) > 0 {
		switch option := strings.ToUpper(args[0]); {
		case option == "AUTH" && len(args) > 2:
			if err := c.admit(args[1], args[2]); err != nil {
				return err
			}
			args = args[3:]
		case option == "SETNAME" && len(args) > 1:
			if name, args = args[1], args[2:]; !validName(name) {
				return errName
			}
		default:
			return errSyntax
		}
	}
	if !c.admitted {
		return errNoHello
	}
	c.version, c.name = asked, name
	c.greet()
	return nil
}

// greet is the answer of HELLO: a map, which version 2 has as a list.
func (c *session) greet() {
	if c.version == 3 {
		c.line('%', "7")
	} else {
		c.array(14)
	}
	for _, pair := range [][2]string{{"server", "redis"}, {"version", version}, {"mode", "standalone"}, {"role", "master"}} {
		c.bulk(pair[0])
		c.bulk(pair[1])
	}
	c.bulk("proto")
	c.integer(int64(c.version))
	c.bulk("id")
	c.integer(c.id)
	c.bulk("modules")
	c.array(0)
}

// selects refuses every database but 0: their counts would be those of 0.
func (c *session) selects(args []string) error {
	n, err := strconv.Atoi(args[0])
	switch {
	case err != nil:
		return errors.New("ERR value is not an integer or out of range")
	//mutant:one-database
	case n != 0:
		return errors.New("ERR DB index is out of range")
	}
	c.simple("OK")
	return nil
}

func (c *session) reset(_ []string) error {
	c.begin()
	c.simple("RESET")
	return nil
}

func (c *session) begins(_ []string) error {
	if c.multi {
		return errors.New("ERR MULTI calls can not be nested")
	}
	c.multi = true
	c.simple("OK")
	return nil
}

func (c *session) exec(_ []string) error {
	if !c.multi {
		return errors.New("ERR EXEC without MULTI")
	}
	c.multi = false
	return errAborted
}

func (c *session) discard(_ []string) error {
	if !c.multi {
		return errors.New("ERR DISCARD without MULTI")
	}
	c.multi = false
	c.simple("OK")
	return nil
}

// validName reports whether a connection may have a name. The rule is that of Redis, and no more
// than maxName bytes, since it is kept for as long as the connection is open.
func validName(name string) bool {
	//mutant:short-name
	return len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' })
}

// client is CLIENT, as far as clients use it when they connect. Nothing is stored that a
// client could keep in a cache, so TRACKING has nothing to do.
func (c *session) client(args []string) error {
	switch sub := strings.ToUpper(args[0]); {
	case sub == "ID":
		c.integer(c.id)
	case sub == "GETNAME":
		c.bulk(c.name)
	case sub == "SETNAME" && len(args) == 2:
		if !validName(args[1]) {
			return errName
		}
		c.name = args[1]
		c.simple("OK")
	case sub == "SETINFO" && len(args) == 3, sub == "TRACKING", sub == "CACHING", sub == "NO-EVICT", sub == "NO-TOUCH":
		c.simple("OK")
	default:
		return errors.New("ERR unknown subcommand or wrong number of arguments for '" + args[0] + "'")
	}
	return nil
}
