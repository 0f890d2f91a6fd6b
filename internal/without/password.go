package without

import (
	"errors"
	"regexp"
	"strings"
)

// Password returns an error without what may be a password in its text. That is a user before
// a host, and the arguments of a command that the server does not know, such as AUTH. An
// error that has neither is returned as it is. Any other keeps what it matches, but no
// cause, as that has the text. A reply stays a reply.
func Password(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	safe := hide(text)
	var reply interface {
		error
		RedisError()
	}
	switch {
	case safe == text:
		return err
	case errors.As(err, &reply):
		return safeReply{safeText{safe, err}}
	}
	return safeText{safe, err}
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

// safeText is an error whose text had to change.
type safeText struct {
	text string
	err  error
}

func (s safeText) Error() string { return s.text }

// Is matches what the error matched.
func (s safeText) Is(target error) bool { return errors.Is(s.err, target) }

// safeReply is one of a server.
type safeReply struct{ safeText }

// RedisError makes it a reply, which go-redis finds by this method.
func (safeReply) RedisError() {}
