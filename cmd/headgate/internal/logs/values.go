package logs

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate-go/headgate/backend"
)

// took reads a duration, in µs: a number of the unit, or one with a unit of its own.
func took(text []byte, unit string) (int64, error) {
	if len(text) == 0 {
		return 0, errNoField("duration")
	}
	//mutant:unit-of-its-own
	if last := text[len(text)-1]; last != '.' && (last < '0' || last > '9') {
		unit = "" // or 1m of seconds would be 1ms
	} else if unit == "" {
		return 0, fmt.Errorf("%.40q has no unit: want -duration FIELD:UNIT, such as request_time:s", text)
	}
	var d time.Duration
	var err error
	if unit == "" {
		d, err = time.ParseDuration(string(text))
	} else {
		var f float64
		f, err = strconv.ParseFloat(string(text), 64)
		one, _ := time.ParseDuration("1" + unit)
		if f *= float64(one); err == nil && math.Abs(f) > 1<<62 {
			err = errInstant
		}
		d = time.Duration(math.Round(f))
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%.40q is no duration", text)
	case d < 0:
		return 0, errors.New("a negative duration")
	}
	return d.Microseconds(), nil
}

// costs reads the fields of the costs.
func (s *Stream) costs(values [][]byte) (*[MostCosts]int64, error) {
	if len(s.Costs) == 0 {
		return nil, nil
	}
	costs := new([MostCosts]int64)
	for i, place := range s.costAt {
		v := values[place]
		if len(v) == 0 {
			return nil, errNoField("cost " + s.Costs[i])
		}
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%.40q is no cost: want a whole number", v)
		}
		costs[i] = n
	}
	return costs, nil
}

// key finds the key of a call, and what it uses. It reports whether the line has a key.
func (s *Stream) key(values [][]byte, text *[]byte, c *Call) (has bool, err error) {
	if p := s.keys.single(); p != nil {
		if c.Key, has = s.Keys.find(values[p.value]); !has {
			c.Key, has, err = s.newKey(values, text)
		}
	} else {
		c.Key, has, err = s.newKey(values, text)
	}
	if !has || err != nil || len(s.uses) == 0 {
		return has, err
	}
	b := (*text)[:0]
	for _, t := range s.uses {
		begin := len(b)
		var whole bool
		if b, whole = t.appendTo(b, values); !whole {
			b = b[:begin] // without a value it limits nothing
		}
		b = append(b, 0)
		b = strconv.AppendInt(b, int64(len(b)-begin), 10)
		b = append(b, 0)
	}
	*text = b
	if c.Of, has = s.useKeys.find(b); !has {
		c.Of, err = s.newUse(values, b)
	}
	return true, err
}

// newKey finds the key of a text that was not a key before.
func (s *Stream) newKey(values [][]byte, text *[]byte) (uint32, bool, error) {
	b, has := s.keys.appendTo((*text)[:0], values)
	*text = b
	switch {
	case !has:
		return 0, false, nil
	case len(b) > backend.MaxKey:
		return 0, false, fmt.Errorf("a key of %d bytes; at most %d are allowed", len(b), backend.MaxKey)
	}
	n := s.Keys.Number(b)
	if p := s.keys.single(); p != nil && p.remote && string(values[p.value]) != string(b) && s.Keys.other.Len() < s.MaxKeys {
		s.Keys.alias(values[p.value], n)
	}
	//mutant:replay-shares-no-count
	if s.Keys.Len() > s.MaxKeys {
		return 0, false, Full("keys", s.MaxKeys)
	}
	return n, true, nil
}

// newUse keeps what calls use, whose text is new.
func (s *Stream) newUse(values [][]byte, text []byte) (uint32, error) {
	n := s.useKeys.Number(text)
	use := make([]string, len(s.uses))
	for i, t := range s.uses {
		if b, has := t.appendTo(nil, values); has {
			use[i] = string(b)
		}
	}
	*s.Uses.Add() = use
	if s.useKeys.Len() > s.MaxKeys {
		return 0, Full("values of -plan, -tenant and -per", s.MaxKeys)
	}
	return n, nil
}

// fullError ends a replay, since keys would have to share a count.
type fullError struct {
	what string
	most int
}

// Full returns the error of more things than may be kept.
func Full(what string, most int) error { return &fullError{what, most} }

func (e *fullError) Error() string {
	return fmt.Sprintf("more than %d %s, and no two may share a count: -max-keys allows more, each takes some 300 bytes of memory", e.most, e.what)
}
