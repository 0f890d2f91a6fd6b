package main

import (
	"context"
	"net"
	"os"
	"strings"

	"golang.org/x/net/netutil"
)

// listen opens an address, "host:port" or "unix:/path".
func listen(address string, s *settings) (net.Listener, error) {
	network, path := "tcp", address
	if p, ok := strings.CutPrefix(address, "unix:"); ok {
		network, path = "unix", p
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			_ = os.Remove(path) // of a process that was killed
		}
	}
	var config net.ListenConfig
	if network == "tcp" && s.reusePort {
		config.Control = reusePort
	}
	l, err := config.Listen(context.Background(), network, path)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, s.maxConnections), nil
}
