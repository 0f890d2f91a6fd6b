package load

import (
	"fmt"
	"io"
	"net"
	"time"
)

// Delay listens on a port of 127.0.0.1 and connects each client to target. What
// a client sends arrives d later, as over a longer wire. Bytes on their way do
// not delay those behind them, so the delay costs latency and no throughput.
// Replies come at once, so a round trip takes d more. Delay runs until the
// listener is closed.
func Delay(target string, d time.Duration) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return // closed
			}
			go join(client, target, d)
		}
	}()
	return ln, nil
}

// ServeDelay reads an address, delays what is sent there, writes where it
// listens, and runs until its input ends.
func ServeDelay(in io.Reader, out io.Writer, d time.Duration) error {
	var addr string
	if _, err := fmt.Fscanln(in, &addr); err != nil {
		return err
	}
	ln, err := Delay(addr, d)
	if err != nil {
		return err
	}
	defer ln.Close()
	fmt.Fprintln(out, ln.Addr())
	_, err = io.Copy(io.Discard, in)
	return err
}

// join connects one client. The channel is the wire: it holds what was sent and
// is not due yet. 1,024 chunks are more than a client sends within the delay.
func join(client net.Conn, target string, d time.Duration) {
	defer client.Close()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer server.Close()
	wire := make(chan chunk, 1024)
	go read(client, wire)
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	write(server, wire, d)
}

// chunk is what one read returned, and when, which decides when it is due.
type chunk struct {
	came  time.Time
	bytes []byte
}

// read copies each chunk, as its buffer is used again for the next.
func read(from net.Conn, wire chan<- chunk) {
	defer close(wire)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			wire <- chunk{time.Now(), append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			return
		}
	}
}

// write sends each chunk when it is due. After a failed write it still reads
// the wire to its end, so that read, which fills it, never blocks for ever.
func write(to net.Conn, wire <-chan chunk, d time.Duration) {
	bell := newAlarm()
	defer bell.close()
	var err error
	for c := range wire {
		bell.until(c.came.Add(d))
		if err == nil {
			_, err = to.Write(c.bytes)
		}
	}
}
