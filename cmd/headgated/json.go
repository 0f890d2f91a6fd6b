package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync/atomic"

	"github.com/headgate-go/headgate/cmd/headgated/internal/bounded"
	"github.com/headgate-go/headgate/cmd/headgated/internal/rls"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	rlspb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// handler serves /json, /healthcheck, /ready, /rlconfig and /page/.
func (v *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /json", v.json)
	mux.HandleFunc("GET /healthcheck", shows(&v.readiness.healthy))
	mux.HandleFunc("GET /ready", shows(&v.readiness.ready))
	mux.HandleFunc("GET /rlconfig", v.rlconfig)
	v.servePage(mux)
	return mux
}

// operators serves -metrics: /metrics, /rlconfig, and /ready without the client certificate
// that -http may want.
func (v *server) operators() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(v.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /ready", shows(&v.readiness.ready))
	mux.HandleFunc("GET /rlconfig", v.rlconfig)
	return mux
}

// shows answers 200 while something is true, else 503.
func shows(is *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !is.Load() {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "OK")
	}
}

// byBrowser reports whether a browser sends a request for a page, which could charge the counts
// of others. Origin and Host are not compared: they are equal if the page's name resolves to this
// machine (DNS rebinding). Programs send neither field.
func byBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
}

// errNoSlot is the error of a long request that is not read.
var errNoSlot = errors.New("other long requests are being read")

// body reads the body of a request. A long one waits for a slot.
func (v *server) body(w http.ResponseWriter, r *http.Request, long *bounded.Long) ([]byte, error) {
	connOf(r).Expect()
	defer connOf(r).Arrived()
	in := http.MaxBytesReader(w, r.Body, int64(v.settings.maxMessage))
	b := bytes.NewBuffer(make([]byte, 0, bytes.MinRead))
	if n, err := b.ReadFrom(io.LimitReader(in, bounded.Small)); err != nil || n < bounded.Small {
		return b.Bytes(), err
	}
	if !long.More(bounded.Small+1, readWithin) {
		return nil, errNoSlot
	}
	_, err := b.ReadFrom(in)
	return b.Bytes(), err
}

// requestOf reads a request, or returns and reports an error with its status.
func (v *server) requestOf(w http.ResponseWriter, r *http.Request, long *bounded.Long) (req *rlspb.RateLimitRequest, code int, err error) {
	body, err := v.body(w, r, long)
	req, code = new(rlspb.RateLimitRequest), http.StatusBadRequest
	switch {
	case errors.Is(err, errNoSlot):
		v.metrics.Request(rls.Undecided)
		return nil, http.StatusServiceUnavailable, err
	case errors.As(err, new(*http.MaxBytesError)):
		code = http.StatusRequestEntityTooLarge
	case err != nil:
	//mutant:objects-take-memory
	case bytes.Count(body, []byte("{")) > rls.MaxMessages:
		err = errManyMessages
	default:
		err = protojson.Unmarshal(rls.Text(body), req)
	}
	if err != nil {
		v.unread(rls.BadJSON, err)
	}
	return req, code, err
}

// json answers a RateLimitRequest in JSON: 200, or 429 if it is over a limit.
func (v *server) json(w http.ResponseWriter, r *http.Request) {
	//mutant:no-browser
	if byBrowser(r) {
		http.Error(w, "a browser sends this request for a page", http.StatusForbidden)
		return
	}
	long := bounded.Long{Slots: v.slots}
	defer long.End()
	req, code, err := v.requestOf(w, r, &long)
	if err != nil {
		http.Error(w, shown(err.Error()), code)
		return
	}
	connOf(r).Begin()
	defer connOf(r).End()
	resp, err := v.service.ShouldRateLimit(r.Context(), req)
	if err != nil {
		code := http.StatusServiceUnavailable
		if status.Code(err) == codes.InvalidArgument {
			code = http.StatusBadRequest
		}
		http.Error(w, status.Convert(err).Message(), code)
		return
	}
	text, err := protojson.Marshal(resp)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if resp.OverallCode == rlspb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(text)
}
