package limits

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate"
)

// words is a field whose value is one of a few words; "" is the default.
type words struct {
	field
	word string
}

func (p *parser) words(limit map[string]field, key string) (words, error) {
	f, ok := limit[key]
	if !ok {
		return words{}, nil
	}
	word, err := f.text()
	return words{f, word}, err
}

func (w words) wrong(want ...string) error {
	slices.Sort(want)
	return w.errorf("unknown word %q; want %s", w.word, strings.Join(want, ", "))
}

func (w words) failureMode(unset headgate.FailureMode) (headgate.FailureMode, error) {
	switch w.word {
	case "":
		return unset, nil
	case "open":
		return headgate.FailOpen, nil
	case "closed":
		return headgate.FailClosed, nil
	case "local":
		return headgate.FailLocal, nil
	}
	return 0, w.wrong("open", "closed", "local")
}

func (w words) charge(unset Charge) (Charge, error) {
	switch w.word {
	case "":
		return unset, nil
	case "admitted":
		return ChargeAdmitted, nil
	case "always":
		return ChargeAlways, nil
	}
	return 0, w.wrong("admitted", "always")
}

// unset is the length of a rule without borrow.
const unset time.Duration = math.MinInt64

// length returns the word as a duration, or unset where there is none.
func (w words) length(unset time.Duration) (time.Duration, error) {
	if w.word == "" {
		return unset, nil
	}
	d, err := time.ParseDuration(w.word)
	if err != nil {
		return 0, w.wrong("a duration such as 50ms")
	}
	return d, nil
}
