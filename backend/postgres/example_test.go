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
	if err := store.Migrate(ctx); err != nil { // once, by a role that may create tables
		log.Fatal(err)
	}
	limiter, err := headgate.New(store, []headgate.Policy{{
		Name: "api", Algorithm: algo.SlidingWindow(algo.PerMinute(100)), OnFailure: headgate.FailOpen,
	}}, nil)
	if err != nil {
		log.Fatal(err)
	}
	d, err := limiter.Allow(ctx, "user:42")
	fmt.Println(d.Allowed, err)
}
