package logs

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// table reads fields between separators. The first line of a file names them. A field may be in
// quotes, of which "" is one; it ends on its line.
type table struct {
	between byte
	columns int
	want    []int // by value: its column
	fields  [][]byte
}

// separators are those that are tried, in this order.
const separators = ",;\t|"

var errColumns = errors.New("another number of fields than the first line")

// newTable reads the line that names the fields. names are those of each value, the one that
// counts most first.
func newTable(head []byte, names [][]string) (*table, error) {
	t := &table{between: separatorOf(head)}
	if err := t.split(head); err != nil {
		return nil, err
	}
	t.columns = len(t.fields)
	var all []string
	for _, f := range t.fields {
		all = append(all, string(bytes.TrimSpace(f)))
	}
	for _, of := range names {
		at := -1
		for _, name := range of {
			for i := range all {
				if at < 0 && strings.EqualFold(all[i], name) {
					at = i
				}
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("no field %q among %.300q", of[0], all)
		}
		t.want = append(t.want, at)
	}
	return t, nil
}

// separatorOf returns the separator of a line that names fields, or 0.
func separatorOf(head []byte) byte {
	for _, c := range []byte(separators) {
		if bytes.IndexByte(head, c) >= 0 {
			return c
		}
	}
	return 0
}

func (t *table) parse(line []byte, values [][]byte) error {
	if err := t.split(line); err != nil {
		return err
	}
	if len(t.fields) != t.columns {
		return errColumns
	}
	for i, column := range t.want {
		values[i] = t.fields[column]
	}
	return nil
}

// split cuts a line into its fields.
func (t *table) split(line []byte) error {
	t.fields = t.fields[:0]
	for {
		field, rest, more, err := t.field(line)
		if err != nil {
			return err
		}
		if t.fields = append(t.fields, field); !more {
			return nil
		}
		line = rest
	}
}

// field returns the first field of a line, and whether another one follows.
func (t *table) field(line []byte) (field, rest []byte, more bool, err error) {
	if len(line) == 0 || line[0] != '"' {
		field, rest, more = bytes.Cut(line, []byte{t.between})
		return field, rest, more, nil
	}
	for at := 1; ; {
		i := bytes.IndexByte(line[at:], '"')
		if i < 0 {
			return nil, nil, false, errQuote
		}
		end := at + i
		if end+1 < len(line) && line[end+1] == '"' {
			at = end + 2
			continue
		}
		field, rest = line[1:end], line[end+1:]
		if bytes.IndexByte(field, '"') >= 0 {
			field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
		}
		if len(rest) == 0 {
			return field, nil, false, nil
		}
		if rest[0] != t.between {
			return nil, nil, false, errQuote
		}
		return field, rest[1:], true, nil
	}
}
