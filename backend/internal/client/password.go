package client

import (
	"strings"

	"github.com/headgate-go/headgate/backend"
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
