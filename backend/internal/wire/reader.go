package wire

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/headgate-go/headgate/algo/rule"
	"github.com/headgate-go/headgate/backend/internal/names"
)

// errMalformed is a reply that the script can't have made.
var errMalformed = errors.New("malformed reply")

// reader parses a reply. The first thing missing spoils it for good.
//
// Its methods return zero values once something was missing. So a parser runs to its end
// without a check per field, and Read looks at err once.
type reader struct {
	rest   string
	err    error
	now    int64 // of the script
	prefix names.Prefix
}

// take reads the next n bytes.
func (r *reader) take(n int) string {
	if n > len(r.rest) {
		r.err, r.rest = errMalformed, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// number reads decimal digits.
func (r *reader) number() int64 {
	n, err := strconv.ParseInt(r.take(len(r.rest)-len(strings.TrimLeft(r.rest, "0123456789"))), 10, 53)
	if err != nil {
		r.err = errMalformed
	}
	return n
}

// whole reads a double that holds a whole number, 0 to 2^53.
// Anything else would be a value that the script can't have computed. It is an error, since
// a wrong count must not look like a decision.
func (r *reader) whole() int64 {
	s := r.take(8)
	if s == "" {
		return 0
	}
	f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(s)))
	//mutant:impossible-number
	if f != math.Trunc(f) || f < 0 || f > 1<<53 {
		r.err = errMalformed
		return 0
	}
	return int64(f)
}

// stored reports whether a stored value follows, by the byte that stands for its
// version: 0 where there is none.
// A version is from 1 to 31. Letters stand for errors, and are above.
func (r *reader) stored() bool {
	v := r.take(1)
	if v >= "\x20" { // above what a version can be
		r.err = errMalformed
	}
	return v > "\x00"
}

// retryAt reads, or works out, when a policy will have room for n units.
//
// A log's entries stay on the server, so only the script can search them. Sooner takes the
// end of the first loan, if that comes earlier.
func (r *reader) retryAt(a *rule.Algorithm, v *rule.View, n int64) int64 {
	if many(a) && n <= a.Max() {
		return a.Sooner(v, n, r.whole())
	}
	return a.RetryAt(nil, v, n)
}

// many reports whether a kind keeps too much to send: the script answers with
// what it amounts to.
func many(a *rule.Algorithm) bool { return a.Kind().Storage() != rule.StoredWords }

// view reads what is stored of one policy, as it is at the script's instant. What is lent
// of the count stands before it. For a kind with few words these are the stored ones, and
// Go computes what has aged. For the others it is what the script has computed.
func (r *reader) view(a *rule.Algorithm) (v rule.View) {
	if len(r.rest) > 0 && r.rest[0] == beside {
		lent := r.lent()
		v = r.view(a)
		v.Beside = lent
		return v
	}
	if many(a) {
		r.stored()
		used, newest := r.whole(), r.whole()
		return a.Seen(used, newest, r.now)
	}
	var words [3]int64
	if r.stored() {
		r.take(8) // the horizon: the script's own
		for i := range words[:a.Kind().Words()] {
			words[i] = r.whole()
		}
	}
	return a.ViewOf(words, r.now)
}

// beside stands before what is lent of a count.
const beside = 31

// lent reads what is lent of a count.
func (r *reader) lent() *rule.Lent {
	l := new(rule.Lent)
	if n := r.take(2); n != "" {
		// Ends lie on a grid, so one byte is enough for their number.
		for range n[1] {
			l.Ends = append(l.Ends, rule.LentUntil{End: r.whole(), Due: r.whole(), Units: r.whole()})
		}
	}
	if len(r.rest) > 0 && r.rest[0] == beside {
		r.err, r.rest = errMalformed, "" // or a malformed reply would be read for ever
	}
	return l
}
