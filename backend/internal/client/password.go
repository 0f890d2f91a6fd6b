package client

import (
	"errors"
	"regexp"
	"strings"

	"github.com/headgate-go/headgate/backend"
	"github.com/redis/go-redis/v9"
)

// CheckAddr refuses an address that may hold a password, such as a URL. It would stand
// in errors, events, log lines and the name of a circuit. The error does not quote it.
func CheckAddr(network, addr string) error {
	if network == "unix" || network == "" && strings.HasPrefix(addr, "/") {
		return nil // a path, or the name of an abstract socket
	}
	if strings.ContainsAny(addr, "/@?=# ") {
		return &backend.InvalidError{What: "address", Value: "(hidden: it may hold a password)", Want: "host:port, without a scheme, a user or a password"}
	}
	return nil
}

// Hide returns an error without what may be a password in its text. That is a user before
// a host, and the arguments of a command that the server does not know, such as AUTH. An
// error that has neither is returned as it is. Any other keeps what it matches, but no
// cause, as that has the text. A reply stays a reply.
func Hide(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	safe := hide(text)
	var reply redis.Error
	switch {
	case safe == text:
		return err
	case errors.As(err, &reply):
		return hiddenReply{hidden{safe, err}}
	}
	return hidden{safe, err}
}

// user matches the words that have a user before a host. A password in a URL may have
// spaces. "on @user_script" of a script's error is no user.
var user = regexp.MustCompile(`\S*://.*\S@\S*|\S+@\S*`)

func hide(text string) string {
	const quoted = "with args beginning with:"
	//mutant:quoted-arguments-hidden
	if s, _, found := strings.Cut(text, quoted); found {
		text = s + quoted + " (hidden)"
	}
	//mutant:user-hidden
	if strings.Contains(text, "@") {
		text = user.ReplaceAllString(text, "(hidden)")
	}
	return text
}

// hidden is an error whose text had to change.
type hidden struct {
	text string
	err  error
}

func (h hidden) Error() string { return h.text }

// Is matches what the error matched.
func (h hidden) Is(target error) bool { return errors.Is(h.err, target) }

// hiddenReply is one of a server.
type hiddenReply struct{ hidden }

// RedisError makes it a reply.
func (hiddenReply) RedisError() {}
