// Package prometheus shows Headgate's metrics as Prometheus scrapes them.
package prometheus_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/otellimit"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

func Example() {
	exporter, err := prometheus.New(prometheus.WithoutScopeInfo())
	if err != nil {
		log.Fatal(err)
	}
	metrics, err := otellimit.New(sdk.NewMeterProvider(sdk.WithReader(exporter)), nil)
	if err != nil {
		log.Fatal(err)
	}
	options := &headgate.Options{Observer: metrics.Observe} // for headgate.New
	http.Handle("/metrics", promhttp.Handler())

	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name: "api", Algorithm: algo.FixedWindow(algo.PerDay(2)), OnFailure: headgate.FailOpen,
	}}, options)
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		_, _ = limiter.Allow(context.Background(), "user:42")
	}
	server := httptest.NewServer(http.DefaultServeMux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/metrics")
	if err != nil {
		log.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^headgate_\w*decisions\w*\{.*$`).FindAllString(string(text), -1) {
		fmt.Println(line)
	}
	// Output:
	// headgate_decisions_total{headgate_operation="take",headgate_policy="api",headgate_result="allowed",headgate_source="store"} 2
	// headgate_decisions_total{headgate_operation="take",headgate_policy="api",headgate_result="denied",headgate_source="store"} 1
}
