package load

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm returns within some 10 µs of an instant, by a timer of the kernel.
// time.Sleep may be a millisecond late in an idle process, since the runtime
// polls in whole milliseconds. At 20,000 arrivals per second that delay would
// be all that is seen. An alarm is for one goroutine at a time.
type alarm struct {
	fd   int
	file *os.File // of fd
}

func newAlarm() *alarm {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		panic(err) // no more file descriptors: there is nothing to measure with
	}
	// Non-blocking, so that reading parks the goroutine, not its thread.
	return &alarm{fd, os.NewFile(uintptr(fd), "timer")}
}

// until returns at due, at once if that is past.
func (a *alarm) until(due time.Time) {
	d := time.Until(due)
	if d <= 0 {
		return
	}
	once := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &once, nil); err != nil {
		panic(err)
	}
	var fired [8]byte
	if _, err := a.file.Read(fired[:]); err != nil {
		panic(err)
	}
}

func (a *alarm) close() { _ = a.file.Close() }
