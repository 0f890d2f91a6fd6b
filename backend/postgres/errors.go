package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/backend"
	"github.com/headgate-go/headgate/internal/layer"
	"github.com/headgate-go/headgate/internal/without"
	"github.com/jackc/pgx/v5/pgconn"
)

// The states of PostgreSQL's errors that are told apart.
const (
	serializationFailure = "40001"
	deadlockDetected     = "40P01"
	lockNotAvailable     = "55P03"
	idleInTransaction    = "25P03"
	queryCanceled        = "57014"
	undefinedTable       = "42P01"
	undefinedSchema      = "3F000"
	noSuchStatement      = "26000"
	statementExists      = "42P05"
)

// stateOf returns the state of a server's error, "" of any other.
func stateOf(err error) (state string, fatal bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return "", false
	}
	return e.Code, e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC"
}

// again reports whether a transaction that failed before its commit may be tried again.
func again(err error) bool {
	switch state, fatal := stateOf(err); {
	case errors.Is(err, errSwept), state == serializationFailure, state == deadlockDetected, state == idleInTransaction:
		return true
	case state == "" || fatal:
		// The connection was lost, perhaps long before. Refused ones are the pool's error.
		var connect *pgconn.ConnectError
		return !errors.As(err, &connect) && !errors.Is(err, context.DeadlineExceeded)
	}
	return false
}

// undone reports whether the error of a commit shows that nothing was counted. The server
// reports an error that is not fatal before it commits. After an idle transaction's end it
// reads nothing more.
func undone(err error) bool {
	state, fatal := stateOf(err)
	//mutant:fatal-is-doubt
	return state != "" && (!fatal || state == idleInTransaction)
}

// unavailable returns the error of calls that were certainly not counted. It is the server's
// failure where that did not answer, or answered that it does not serve.
func unavailable(err error) error {
	state, _ := stateOf(err)
	cause := hidden(err)
	switch {
	case state == "" || state[:2] == "57" && state != queryCanceled || state[:2] == "08" || state[:2] == "53" || state[:2] == "58":
		cause = backend.Wrap(layer.ErrFailed, cause)
	//mutant:pooler-named
	case state == noSuchStatement || state == statementExists:
		cause = fmt.Errorf("%w: if a pooler in transaction mode is between, the URL needs %s", cause, poolerMode)
	case state == undefinedTable || state == undefinedSchema:
		cause = backend.Wrap(ErrNoTables, cause)
	}
	return backend.Wrap(backend.ErrUnavailable, cause)
}

// poolerMode is the setting of a URL by which no statement is prepared.
const poolerMode = "default_query_exec_mode=exec"

// ErrNoTables is the error of calls where the store's tables are not there. It matches
// backend.ErrUnavailable too. Migrate creates them.
var ErrNoTables = errors.New("headgate: no tables in PostgreSQL: run headgate migrate, or call Migrate")

// outcome returns what a transaction shows of the server.
func outcome(err error) error {
	if err == nil || errors.Is(err, layer.ErrFailed) {
		return err
	}
	return layer.ErrExcused
}

// hidden returns the error without a password that its text may have.
func hidden(err error) error { return without.Password(err) }

// bytesOf returns strings as a parameter has them.
func bytesOf(all []string) [][]byte {
	b := make([][]byte, len(all))
	for i, s := range all {
		b[i] = []byte(s)
	}
	return b
}

// millis returns a time as a server's setting has it.
func millis(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
