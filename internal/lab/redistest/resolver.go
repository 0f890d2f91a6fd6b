package redistest

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// Resolver returns a resolver for which every name has these IPv4 addresses, in this
// order. It speaks DNS over a pipe.
func Resolver(ips ...string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go answer(server, ips)
		return client, nil
	}}
}

// answer answers DNS questions as over TCP: each message follows its length.
func answer(c net.Conn, ips []string) {
	defer c.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		end := 12
		for question[end] != 0 { // the name
			end += 1 + int(question[end])
		}
		end += 5
		v4 := binary.BigEndian.Uint16(question[end-4:]) == 1
		reply := append([]byte{}, question[:end]...)
		reply[2], reply[3] = 0x81, 0x80
		binary.BigEndian.PutUint16(reply[10:], 0) // additional records
		binary.BigEndian.PutUint16(reply[6:], 0)
		if v4 {
			binary.BigEndian.PutUint16(reply[6:], uint16(len(ips)))
			for _, ip := range ips {
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4) // the same name, A, IN, TTL 0
				reply = append(reply, net.ParseIP(ip).To4()...)
			}
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// Silent makes the address 127.0.0.2 with a port silent: no SYN is answered, since the
// queue of a listener that accepts nothing is full. Without such a system the test is
// skipped.
func Silent(t testing.TB, port string) (ip string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	check(t, err)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 2}}); err != nil {
		t.Skipf("NOT TESTED: no address 127.0.0.2: %v", err)
	}
	check(t, syscall.Listen(fd, 0))
	ip = "127.0.0.2"
	for range 100 {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(ip, port), 50*time.Millisecond)
		if err != nil {
			return ip
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	t.Skip("NOT TESTED: the queue of a listener never fills")
	return ""
}
