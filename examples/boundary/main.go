// Boundary shows what each algorithm lets pass at the boundary of two windows.
// 50 calls come one second before it and 50 one second after it, under a limit
// of 50 in 10 seconds.
//
//	go run ./examples/boundary                        at once, in memory, on a clock of its own
//	go run ./examples/boundary -redis localhost:6379  in real time, by the server's clock
//	go run ./examples/boundary -cluster 127.0.0.1:7000,127.0.0.1:7001  the same on a Redis Cluster
//
// It ends with an error if any algorithm lets more pass than it states, or,
// in memory, other than its rule says.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/headgate-go/headgate/backend/memory"
)

func main() {
	addr := flag.String("redis", "", "host:port of a Redis server; without it and -cluster: in memory")
	addrs := flag.String("cluster", "", "host:port of some nodes of a Redis Cluster, with commas between")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := show(ctx, *addr, *addrs); err != nil {
		fmt.Fprintln(os.Stderr, "boundary:", err)
		os.Exit(1)
	}
}

// show runs the scene of the flags, and in real time says first how long
// nothing will happen.
func show(ctx context.Context, addr, addrs string) error {
	p := plain
	if terminal(os.Stdout) {
		p = coloured
	}
	s, err := stage(ctx, addr, addrs)
	if err != nil {
		return err
	}
	if s.exact {
		return run(ctx, os.Stdout, s, p)
	}
	fmt.Printf("waiting for one second before %s by the server's clock ...\n", s.boundary.Format(time.TimeOnly))
	return run(ctx, os.Stdout, s, p)
}

// stage is the scene where the flags say.
func stage(ctx context.Context, addr, addrs string) (*scene, error) {
	switch {
	case addr != "" && addrs != "":
		return nil, errors.New("-redis or -cluster, not both")
	case addr != "":
		return server(ctx, addr)
	case addrs != "":
		return nodes(ctx, strings.Split(addrs, ","))
	}
	return embedded(), nil
}

// run makes the two bursts, prints what passed and judges it.
func run(ctx context.Context, w io.Writer, s *scene, p palette) error {
	rows, err := s.play(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "limit %d in %v: %d calls %v before a window's boundary, %d calls %v after\n\n", limit, window, calls, distance, calls, distance)
	table(w, rows, p)
	fmt.Fprintln(w)
	chart(w, rows, p)
	return judge(rows)
}

// embedded is the scene in memory. Time is a variable: nothing waits, and the
// calls of a burst share one instant.
func embedded() *scene {
	boundary := time.Unix(1_745_000_150, 0).UTC()
	now := boundary
	return &scene{
		store:    memory.New(&memory.Options{Now: func() time.Time { return now }}),
		key:      fresh(),
		boundary: boundary,
		reach:    func(_ context.Context, t time.Time) error { now = t; return nil },
		exact:    true,
	}
}

// judge returns an error for the first row that broke its rule, so the exit
// status shows it.
func judge(rows []*row) error {
	for _, r := range rows {
		if r.broken() {
			return fmt.Errorf("%s passed %d: %s", r.name(), r.admitted(), r.verdict())
		}
	}
	return nil
}

// terminal reports whether colours would be seen rather than stored.
func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}
