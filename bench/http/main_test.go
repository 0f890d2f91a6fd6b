package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestSubjectsLimit: each of them passes the limit and no more, so that they are
// compared at the same work.
func TestSubjectsLimit(t *testing.T) {
	for _, s := range subjects[1:] {
		h := s.wrap(3)(fine)
		for i := range 5 {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
			want := http.StatusNoContent
			if i >= 3 {
				want = http.StatusTooManyRequests
			}
			if w.Code != want {
				t.Errorf("%s: request %d: status %d, want %d", s.name, i, w.Code, want)
			}
		}
	}
}

func BenchmarkPass(b *testing.B) {
	for _, s := range subjects {
		b.Run(s.name, one(s.wrap(1<<30)(fine)))
	}
}
