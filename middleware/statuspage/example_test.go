package statuspage_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/statuspage"
)

func Example() {
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(100)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		panic(err)
	}
	page := statuspage.New(limiter)
	defer page.Close()
	mux := http.NewServeMux()
	mux.Handle("/debug/limits/", page)

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/limits/", nil))
	fmt.Println(w.Code, page.Status().Limits[0].Rule)
	// Output: 200 SlidingWindow(100 per 1m0s)
}
