package postgres_test

import (
	"context"
	"fmt"
	"log"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend/postgres"
)

func Example() {
	ctx := context.Background()
	store, err := postgres.Open("postgres://user:password@localhost:5432/database", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Migrate(ctx); err != nil { // creates two tables, if they are not there
		log.Fatal(err)
	}
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(100)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	warnings, err := limiter.Ping(ctx) // a missing right or table is an error here
	if err != nil {
		log.Fatal(err, warnings)
	}
	d, err := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed, err)
}
