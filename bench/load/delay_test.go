package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Many lines in one go come back in order, each a wire's length later, and all
// together not a wire's length each.
func TestDelayKeepsAPipelineTogether(t *testing.T) {
	const lines, delay = 500, 20 * time.Millisecond
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	ln, err := Delay(echo.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begin := time.Now()
	go func() {
		for i := range lines {
			fmt.Fprintln(conn, i) // each a packet of its own
		}
	}()
	in := bufio.NewReader(conn)
	for i := range lines {
		var got int
		if _, err := fmt.Fscanln(in, &got); err != nil || got != i {
			t.Fatalf("line %d came as %d, %v", i, got, err)
		}
		if i == 0 && time.Since(begin) < delay {
			t.Errorf("a round trip took %v, less than the wire", time.Since(begin))
		}
	}
	if took := time.Since(begin); took > lines*delay/4 {
		t.Errorf("%d lines took %v: each waits for the one before", lines, took)
	}
}
