package httplimit

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
)

// recorder is a ResponseWriter that notes what is written. The handler gets it through
// writer.
type recorder struct {
	http.ResponseWriter
	request  *http.Request
	status   int // 0: none yet
	written  int64
	hijacked bool
}

// fill completes an outcome, whose Panicked is set. reported is the status that the
// handler named, which counts where it wrote none here.
func (w *recorder) fill(o *Outcome, reported int) {
	o.Status, o.Written, o.Hijacked, o.Wrote = w.status, w.written, w.hijacked, w.status != 0
	//mutant:head-has-no-body
	if w.request != nil && w.request.Method == http.MethodHead { // whose body is not sent
		o.Written = 0
	}
	switch {
	case o.Status == 0 && reported != 0:
		o.Status = reported
	case o.Status != 0 || o.Hijacked:
	case o.Panicked:
		o.Status = http.StatusInternalServerError
	default:
		o.Status = http.StatusOK
	}
}

// WriteHeader notes the first status that ends the header.
func (w *recorder) WriteHeader(status int) {
	//mutant:informational-is-no-status
	if status >= 200 || status == http.StatusSwitchingProtocols {
		w.ended(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) wrote(n int64) {
	w.written += n
	w.ended(http.StatusOK)
}

// ended notes the status of a header. Later ones are not sent, and none is after a hijack.
func (w *recorder) ended(status int) {
	if w.status == 0 && !w.hijacked {
		w.status = status
	}
}

func (w *recorder) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.wrote(int64(n))
	return n, err
}

// WriteString saves the copy where the ResponseWriter does.
func (w *recorder) WriteString(s string) (int, error) {
	n, err := io.WriteString(w.ResponseWriter, s)
	w.wrote(int64(n))
	return n, err
}

// ReadFrom lets the ResponseWriter copy a file its own way, as by sendfile: all but the
// first bytes. With these the status is known, also where r panics later.
func (w *recorder) ReadFrom(r io.Reader) (n int64, err error) {
	//mutant:status-before-copy
	if w.status == 0 {
		if n, err = io.CopyN(struct{ io.Writer }{w}, r, 512); err != nil {
			if err == io.EOF { // as a copy says
				err = nil
			}
			return n, err
		}
	}
	rest, err := io.Copy(w.ResponseWriter, r)
	w.wrote(rest)
	return n + rest, err
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CloseNotify implements http.CloseNotifier, which some frameworks demand of each
// ResponseWriter. Its channel follows the request's context.
func (w *recorder) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(w.request.Context(), func() { gone <- true })
	return gone
}

// writer returns a ResponseWriter with the optional methods of the one below, which
// handlers find by a type assertion. Flush and Hijack may stand further below, where
// http.ResponseController finds them: it would pass the recorder by.
func (w *recorder) writer() http.ResponseWriter {
	flushes, hijacks := has[http.Flusher](w.ResponseWriter), has[http.Hijacker](w.ResponseWriter)
	pusher, pushes := w.ResponseWriter.(http.Pusher)
	switch f := (flusher{w}); {
	case hijacks && flushes:
		return struct {
			flusher
			http.Hijacker
		}{f, hijacker{w}}
	case hijacks:
		return struct {
			*recorder
			http.Hijacker
		}{w, hijacker{w}}
	case pushes && flushes:
		return struct {
			flusher
			http.Pusher
		}{f, pusher}
	case flushes:
		return f
	}
	return w
}

// has reports whether http.ResponseController finds a T at w or below it.
func has[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

// flusher is a recorder over a ResponseWriter that flushes.
type flusher struct{ *recorder }

// Flush sends what was written, and the header.
func (w flusher) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController calls.
func (w flusher) FlushError() error {
	w.wrote(0)
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// hijacker notes that the connection was handed over.
type hijacker struct{ w *recorder }

// Hijack hands the connection to the handler.
func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.w.ResponseWriter).Hijack()
	h.w.hijacked = h.w.hijacked || err == nil
	return conn, rw, err
}
