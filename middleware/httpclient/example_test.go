package httpclient_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/headgate-go/headgate/middleware/httpclient"
)

// A client that waits for the server's rate limit instead of running into it.
func ExampleTransport() {
	client := &http.Client{Transport: &httpclient.Transport{}}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("RateLimit", `"default";r=50;t=30`)
	}))
	defer server.Close()
	resp, err := client.Get(server.URL)
	if err != nil {
		panic(err)
	}
	fmt.Println(resp.StatusCode)
	_ = resp.Body.Close()
	// Output: 200
}
