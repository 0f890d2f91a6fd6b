package limits

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-go/headgate/algo"
	"github.com/headgate-go/headgate/algo/rule"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// calendar is the algorithm that has zone and anchor.
const calendar = "calendar"

// civil is what a rule of the calendar has beside its unit.
type civil struct {
	zone   *time.Location // nil is UTC
	anchor string         // "" is Monday, or a month's first day
}

// civil reads zone and anchor, which no other algorithm has.
func (p *parser) civil(zone words, anchor field, algorithm string) (c civil, err error) {
	if c.anchor, err = anchor.text(); err != nil {
		return c, err
	}
	switch {
	case algorithm == calendar:
		c.zone, err = p.zone(zone)
	case zone.word != "":
		err = zone.errorf("only algorithm: calendar has a zone")
	case c.anchor != "":
		err = anchor.errorf("only algorithm: calendar has an anchor")
	}
	return c, err
}

// zone returns the location of a name, which is loaded once.
func (p *parser) zone(w words) (*time.Location, error) {
	if w.word == "" {
		return time.UTC, nil
	}
	if zone := p.zones[w.word]; zone != nil {
		return zone, nil
	}
	zone, err := time.LoadLocation(w.word)
	if err != nil {
		return nil, w.errorf("%v; want a name such as Europe/Berlin", err)
	}
	p.zones[w.word] = zone
	return zone, nil
}

func ofCalendar(r *Rule, c civil) (algo.Algorithm, error) {
	every, err := c.period(r)
	if err != nil {
		return algo.Algorithm{}, err
	}
	zone := c.zone
	if zone == nil {
		zone = time.UTC
	}
	r.Civil = fmt.Sprintf("%v, %v", every, zone)
	a := algo.Calendar(r.some(), every, zone)
	return a, a.Check()
}

// period returns the civil period of a rule's unit.
func (c civil) period(r *Rule) (none algo.CivilPeriod, _ error) {
	if r.Limit.UnitMultiplier != nil {
		return none, fmt.Errorf("algorithm: calendar has no unit_multiplier")
	}
	switch u := r.Limit.Unit; {
	case u == rls.RateLimitResponse_RateLimit_DAY && c.anchor == "":
		return algo.Day(), nil
	case u == rls.RateLimitResponse_RateLimit_DAY:
		return none, fmt.Errorf("a day has no anchor")
	case u == rls.RateLimitResponse_RateLimit_WEEK:
		return week(c.anchor)
	case u == rls.RateLimitResponse_RateLimit_MONTH:
		return month(c.anchor)
	}
	return none, fmt.Errorf("algorithm: calendar has the units day, week and month, not %v", r.Limit.Unit)
}

func week(anchor string) (algo.CivilPeriod, error) {
	if anchor == "" {
		return algo.Week(time.Monday), nil
	}
	for day := time.Sunday; day <= time.Saturday; day++ {
		if strings.EqualFold(anchor, day.String()) {
			return algo.Week(day), nil
		}
	}
	return algo.CivilPeriod{}, fmt.Errorf("the anchor of a week is %q; want a weekday such as monday", anchor)
}

func month(anchor string) (algo.CivilPeriod, error) {
	if anchor == "" {
		return algo.Month(1), nil
	}
	day, err := strconv.Atoi(anchor)
	if err != nil || day < 1 || day > 31 {
		return algo.CivilPeriod{}, fmt.Errorf("the anchor of a month is %q; want a day from 1 to 31", anchor)
	}
	return algo.Month(day), nil
}

// UntilReset returns how long the period of now lasts: until the civil boundary for a rule of
// the calendar, else until the clock-aligned one.
func (r *Rule) UntilReset(now time.Time) time.Duration {
	a := r.Policy.Algorithm
	//mutant:civil-boundary
	if a.Kind() == rule.KindCalendar {
		v := a.View(make([]int64, a.Words()), now.UnixMicro())
		a.Add(&v, 1) // of a key that is used, the reset is the boundary
		return time.UnixMicro(a.ResetAt(&v)).Sub(now)
	}
	return r.Period - now.Sub(time.Unix(0, 0))%r.Period
}
