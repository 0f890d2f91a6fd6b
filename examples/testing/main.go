// Testing is a mailer that waits after a denial, and two ways to test such
// code. main_test.go sets the store's clock; synctest_test.go lets the testing
// package's fake time pass. Neither sleeps.
//
//	go test -v ./examples/testing
//	go run ./examples/testing
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/headgate-go/headgate"
	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/backend/memory"
)

// mailer sends at most two mails per second to an address.
type mailer struct {
	limiter *headgate.Limiter
	send    func(to, text string)
}

// newMailer takes the store, so that a test can give one with its own clock.
func newMailer(s backend.Store, send func(to, text string)) (*mailer, error) {
	l, err := headgate.New(s, []headgate.Policy{{
		Name:      "mails",
		Algorithm: algo.SlidingLog(algo.PerSecond(2)),
		OnFailure: headgate.FailClosed,
	}}, nil)
	return &mailer{l, send}, err
}

// try sends the mail, or says how long to wait.
func (m *mailer) try(ctx context.Context, to, text string) (wait time.Duration, err error) {
	d, err := m.limiter.Allow(ctx, to)
	if err != nil || !d.Allowed {
		return d.RetryAfter, err
	}
	m.send(to, text)
	return 0, nil
}

// mail sends the mail, after as long a wait as it takes.
func (m *mailer) mail(ctx context.Context, to, text string) error {
	for {
		wait, err := m.try(ctx, to, text)
		if err != nil || wait == 0 {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func main() {
	m, err := newMailer(memory.New(nil), func(to, text string) { fmt.Println(time.Now().Format("05.000"), to, text) })
	if err != nil {
		log.Fatal(err)
	}
	for i := range 5 {
		if err := m.mail(context.Background(), "ann@example.com", fmt.Sprint("mail ", i+1)); err != nil {
			log.Fatal(err)
		}
	}
}
