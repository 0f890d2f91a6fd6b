package layer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// Within returns a context that ends with its parent, or once what is left of a budget is
// spent. Its error then names the budget. It is not context.DeadlineExceeded, which is that
// of a caller's own deadline.
func Within(parent context.Context, budget, left time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(parent, left, budgetEnded(budget))
	return within{ctx}, cancel
}

type within struct{ context.Context }

// Err returns the error of the context that ended first.
func (w within) Err() error {
	//mutant:budget-is-no-deadline
	if ended, ok := context.Cause(w.Context).(budgetEnded); ok {
		return ended
	}
	return w.Context.Err()
}

// budgetEnded is the end of a budget.
type budgetEnded time.Duration

func (b budgetEnded) Error() string { return fmt.Sprintf("no answer within %v", time.Duration(b)) }

// BudgetEnded returns backend.ErrUnavailable if a request in ctx has err because a budget of
// Within ended it, else nil. An error that is undecided by itself stays as it is.
func BudgetEnded(ctx context.Context, err error) error {
	late := errors.As(err, new(budgetEnded)) || errors.Is(err, context.DeadlineExceeded)
	//mutant:perhaps-counted-stays
	if !late || backend.Undecided(err) {
		return nil
	}
	if ended, ok := ctx.Err().(budgetEnded); ok {
		return backend.Wrap(backend.ErrUnavailable, ended)
	}
	return nil
}
