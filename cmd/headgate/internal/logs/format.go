package logs

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// parser reads the lines of one format.
type parser interface {
	// parse sets the values of the wanted fields, nil for those that the line lacks. They are
	// valid until the next call.
	parse(line []byte, values [][]byte) error
}

// want is a field of which the value is wanted. The field without a name is the time.
type want struct {
	name   string
	header bool // of the request
}

// profile is what is known of a program's JSON lines.
type profile struct {
	name     string
	marks    []string // keys of each line, by which it is recognised; one of several after a |
	begins   bool     // its time is the begin of a call
	duration string   // the field of the duration, and its unit
	unit     string
	names    map[string][]string // of a field: the keys that may have it, the one that counts most first
}

// profiles are tried in this order.
var profiles = []profile{
	{name: "Caddy", marks: []string{"ts", "request.remote_ip|request.remote_addr", "request.uri"}, duration: "duration", unit: "s", names: map[string][]string{
		"": {"ts"}, "remote": {"request.client_ip", "request.remote_ip", "request.remote_addr"}, "user": {"user_id"}, "method": {"request.method"},
		"uri": {"request.uri"}, "host": {"request.host"}, "protocol": {"request.proto"}, "bytes": {"size"},
	}},
	{name: "Traefik", marks: []string{"ClientHost|ClientAddr", "StartUTC|StartLocal|time"}, begins: true, duration: "Duration", unit: "ns", names: map[string][]string{
		"": {"StartUTC", "StartLocal", "time"}, "remote": {"ClientHost", "ClientAddr"}, "user": {"ClientUsername"}, "method": {"RequestMethod"},
		"uri": {"RequestPath"}, "host": {"RequestHost"}, "protocol": {"RequestProtocol"}, "status": {"DownstreamStatus"}, "bytes": {"DownstreamContentSize"},
	}},
	{name: "Envoy", marks: []string{"start_time"}, begins: true, duration: "duration", unit: "ms", names: map[string][]string{
		"": {"start_time"}, "remote": {"downstream_remote_address_without_port", "downstream_remote_address", "downstream_direct_remote_address"},
		"host": {"authority", ":authority"}, "uri": {"x_envoy_original_path", "path", ":path"}, "method": {"method", ":method"}, "status": {"response_code"}, "bytes": {"bytes_sent"},
		"agent": {"user_agent"},
	}},
	{name: "slog", marks: []string{"time", "level", "msg"}},
	{name: "JSON"},
}

// usual are the names of fields that a profile does not have.
var usual = map[string][]string{
	"":       {"time", "timestamp", "@timestamp", "ts", "time_iso8601", "msec", "time_local", "date"},
	"remote": {"remote", "remote_addr", "remote_ip", "client_ip", "client", "ip", "remote_address"},
	"user":   {"user", "remote_user"}, "method": {"method", "request_method"}, "uri": {"uri", "request_uri", "url"}, "path": {"path", "uri", "request_uri", "url"},
	"host": {"host", "http_host", "server_name"}, "status": {"status", "status_code"}, "bytes": {"bytes", "body_bytes_sent", "bytes_sent", "size"},
	"agent": {"agent", "user_agent", "http_user_agent"}, "referer": {"referer", "http_referer"},
}

// of returns the keys that may have a field.
func (p *profile) of(w want) []string {
	if w.header {
		canonical, lower := http.CanonicalHeaderKey(w.name), strings.ToLower(w.name)
		under := strings.ReplaceAll(lower, "-", "_")
		return []string{"request.headers." + canonical, "request_" + canonical, "http_" + under, w.name, canonical, lower, under}
	}
	if w.name == "duration" && p.duration != "" {
		return []string{p.duration}
	}
	keys := p.names[w.name]
	if w.name == "path" {
		keys = append(keys, p.names["uri"]...)
	}
	if len(keys) > 0 {
		return keys
	}
	if keys = usual[w.name]; len(keys) > 0 {
		return keys
	}
	return []string{w.name}
}

// all returns the keys of each field.
func (p *profile) all(wants []want) (names [][]string) {
	for _, w := range wants {
		names = append(names, p.of(w))
	}
	return names
}

// Formats are those that can be named, beside a guess.
const Formats = "common, combined, json or csv"

// format is how the lines of a file are read.
type format struct {
	name    string
	parser  parser
	profile *profile
	head    bool // the first line names the fields
	ends    func(line []byte) bool
}

// newFormat returns the format of the sample's lines, or the one that is named. note is an error
// of a format that would fit.
func newFormat(name string, sample [][]byte, wants []want) (*format, error) {
	var first error
	for i, line := range sample {
		f, err := formatOf(name, line, i == 0, wants)
		if f != nil || err != nil && !errors.As(err, new(unfit)) {
			return f, err
		}
		if first == nil {
			first = err
		}
	}
	if name == "" {
		return nil, fmt.Errorf("no format fits one of its first %d lines, such as %.120q (%w); -format names one: %s", len(sample), sample[0], first, Formats)
	}
	return nil, fmt.Errorf("-format %s: none of its first %d lines can be read: %w; such as %.120q", name, len(sample), first, sample[0])
}

// unfit is why a line has another format.
type unfit struct{ error }

// formatOf returns the format of a line. Only the first one can name the fields of a table.
func formatOf(name string, line []byte, first bool, wants []want) (*format, error) {
	trimmed := bytes.TrimSpace(line)
	switch {
	case name == "json" || name == "" && len(trimmed) > 0 && trimmed[0] == '{':
		return jsonOf(line, wants)
	case name == "common" || name == "combined" || name == "" && bytes.Contains(line, []byte(`] "`)):
		return commonOf(line, wants)
	case name == "csv" || name == "" && first && isHead(line):
		t, err := newTable(line, (&profile{}).all(wants))
		if err != nil && name == "" {
			err = unfit{err}
		}
		if err != nil {
			return nil, err
		}
		return &format{name: "CSV", parser: t, head: true, ends: func([]byte) bool { return false }}, nil
	case name != "":
		return nil, fmt.Errorf("-format %.40q: want %s", name, Formats)
	}
	return nil, unfit{errors.New("no format fits")}
}

// isHead reports whether a line can name fields: several words, none of which is a number.
func isHead(line []byte) bool {
	between := separatorOf(line)
	if between == 0 {
		return false
	}
	for _, f := range bytes.Split(line, []byte{between}) {
		f = bytes.Trim(bytes.TrimSpace(f), `"`)
		if len(f) == 0 || len(f) > 100 || f[0] >= '0' && f[0] <= '9' {
			return false
		}
	}
	return true
}

func commonOf(line []byte, wants []want) (*format, error) {
	p, err := newCommon(wants)
	if err != nil {
		return nil, err
	}
	if err := p.parse(line, make([][]byte, len(wants))); err != nil {
		return nil, unfit{err}
	}
	name, c := "Common", p.(*common)
	if c.cols[colReferer] != nil {
		name = "Combined"
	}
	if c.cols[colHost] != nil {
		name += " with a virtual host"
	}
	if n := len(c.extra); n > 0 {
		name += fmt.Sprintf(" and %d more fields", n)
	}
	return &format{name: name, parser: p, ends: func(line []byte) bool { return bytes.HasSuffix(line, []byte{'"'}) }}, nil
}

// jsonOf returns the profile of which a line has all marks.
func jsonOf(line []byte, wants []want) (*format, error) {
	for i := range profiles {
		p := &profiles[i]
		var marks [][]string
		for _, mark := range p.marks {
			marks = append(marks, strings.Split(mark, "|"))
		}
		found := make([][]byte, len(marks))
		if err := newObject(marks).parse(line, found); err != nil {
			return nil, unfit{err}
		}
		has := true
		for _, v := range found {
			has = has && v != nil
		}
		if has {
			ends := func(line []byte) bool { return bytes.HasSuffix(bytes.TrimSpace(line), []byte{'}'}) }
			return &format{name: p.title(), parser: newObject(p.all(wants)), profile: p, ends: ends}, nil
		}
	}
	return nil, unfit{errJSON}
}

func (p *profile) title() string {
	if p.name == "JSON" {
		return "JSON lines"
	}
	return "JSON lines of " + p.name
}
