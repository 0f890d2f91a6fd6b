// Package nodes reads the nodes of a Redis Cluster as the flag -cluster of each command names
// them.
package nodes

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Errors of a list. Neither quotes it: a parser that finds the end of the host in the password
// quotes the rest as a port or a path.
var (
	ErrList   = errors.New("want host:port,… or redis://user:password@host:port,… with rediss:// for TLS, and %25 for a % in the password")
	ErrLogins = errors.New("two URLs have different users or passwords: all nodes have one")
)

// Parse reads a list of "host:port" and URLs. The user, the password and the TLS of a URL are
// those of all nodes. A comma before a URL's last @ belongs to its password.
func Parse(list string) (*redis.ClusterOptions, error) {
	var all *redis.ClusterOptions
	for _, group := range groups(list) {
		host := strings.LastIndexByte(group, '@') + 1
		hosts := strings.Split(group[host:], ",")
		url := group[:host] + hosts[0]
		if !strings.Contains(url, "://") {
			url = "redis://" + url
		}
		o, err := redis.ParseClusterURL(url)
		if err != nil {
			return nil, ErrList
		}
		o.Addrs = append(o.Addrs, hosts[1:]...)
		if o.TLSConfig != nil {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12} // the name is that of each node
		}
		if all == nil {
			all = o
			continue
		}
		if err := add(all, o); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// groups divides a list where a URL begins behind a comma.
func groups(list string) []string {
	for _, scheme := range []string{"redis://", "rediss://"} {
		list = strings.ReplaceAll(list, ","+scheme, "\n"+scheme)
	}
	return strings.Split(list, "\n")
}

// add adds the nodes of a further URL.
func add(all, o *redis.ClusterOptions) error {
	all.Addrs = append(all.Addrs, o.Addrs...)
	switch {
	case o.Username+o.Password == "":
	//mutant:first-login-holds
	case all.Username+all.Password == "":
		all.Username, all.Password = o.Username, o.Password
	case all.Username != o.Username || all.Password != o.Password:
		return ErrLogins
	}
	if all.TLSConfig == nil {
		all.TLSConfig = o.TLSConfig
	}
	return nil
}
