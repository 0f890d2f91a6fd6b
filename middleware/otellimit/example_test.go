package otellimit_test

import (
	"fmt"
	"log"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/memory"
	"github.com/headgate-go/headgate/middleware/otellimit"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

func Example() {
	reader := sdk.NewManualReader() // or an exporter's
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	metrics, err := otellimit.New(provider, nil)
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := headgate.New(memory.New(nil), []headgate.Policy{{
		Name:      "api",
		Algorithm: algo.SlidingWindow(algo.PerMinute(100)),
		OnFailure: headgate.FailOpen,
	}}, &headgate.Options{Observer: metrics.Observe})
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed, err)
	// Output: true <nil>
}
