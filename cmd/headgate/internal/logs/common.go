package logs

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// common reads the Common and the Combined log format of Apache and nginx, with a virtual host
// before it and more fields after it:
//
//	host ident user [time] "request" status bytes "referer" "agent" more…
//
// Servers write a quote inside of a field as \" or \x22. So the first quote of a line begins the
// request, whatever a client has sent as its user. A further field is extra1, extra2 and so on,
// and, if it has the form NAME=VALUE, also NAME.
type common struct {
	want  []int    // by value: one of the columns below
	names []string // by value: the name of a further field
	cols  [colExtra][]byte
	extra [][]byte
}

const (
	colRemote = iota
	colIdent
	colUser
	colTime
	colRequest
	colStatus
	colBytes
	colReferer
	colAgent
	colHost
	colMethod
	colURI
	colPath
	colProtocol
	colExtra // a further field, by its name
)

var commonNames = map[string]int{
	"remote": colRemote, "ident": colIdent, "user": colUser, "time": colTime, "request": colRequest, "status": colStatus, "bytes": colBytes,
	"referer": colReferer, "header:referer": colReferer, "agent": colAgent, "header:user-agent": colAgent, "host": colHost,
	"method": colMethod, "uri": colURI, "path": colPath, "protocol": colProtocol,
}

func newCommon(wants []want) (parser, error) {
	p := &common{}
	for _, w := range wants {
		name := strings.ToLower(w.name)
		if w.header {
			name = "header:" + name
		}
		if name == "" {
			name = "time"
		}
		col, ok := commonNames[name]
		if !ok {
			if w.header {
				return nil, errors.New("the format has no header " + strconv.Quote(w.name) + "; it has Referer and User-Agent")
			}
			col = colExtra
		}
		p.want, p.names = append(p.want, col), append(p.names, w.name)
	}
	return p, nil
}

var (
	errNoRequest = errors.New(`no [time] "request"`)
	errQuote     = errors.New("a quote that does not end")
	errStatus    = errors.New("no status and size after the request")
	errHost      = errors.New("no host, ident and user before the time")
)

func (p *common) parse(line []byte, values [][]byte) error {
	quote := bytes.IndexByte(line, '"')
	if quote < 4 || line[quote-1] != ' ' || line[quote-2] != ']' {
		return errNoRequest
	}
	open := bytes.LastIndexByte(line[:quote-2], '[')
	if open < 2 || line[open-1] != ' ' {
		return errNoRequest
	}
	clear(p.cols[:])
	p.cols[colTime] = line[open+1 : quote-2]
	if err := p.before(line[:open-1]); err != nil {
		return err
	}
	end := closing(line, quote+1)
	if end < 0 {
		return errQuote
	}
	p.cols[colRequest] = line[quote+1 : end]
	if err := p.after(line[end+1:]); err != nil {
		return err
	}
	for i, col := range p.want {
		values[i] = p.column(col, p.names[i])
	}
	return nil
}

// before reads what stands before the time. The user may contain spaces. With a virtual host the
// fields are one more, and the third one is "-" nearly always.
func (p *common) before(text []byte) error {
	host, rest, ok := bytes.Cut(text, []byte{' '})
	ident, user, more := bytes.Cut(rest, []byte{' '})
	if !ok || !more || len(host) == 0 {
		return errHost
	}
	if next, last, four := bytes.Cut(user, []byte{' '}); four && string(ident) != "-" && string(next) == "-" {
		p.cols[colHost] = host
		host, ident, user = ident, next, last
	}
	p.cols[colRemote], p.cols[colIdent], p.cols[colUser] = host, ident, user
	return nil
}

// after reads what follows the request.
func (p *common) after(rest []byte) error {
	if len(rest) < 6 || rest[0] != ' ' {
		return errStatus
	}
	status, rest, ok := bytes.Cut(rest[1:], []byte{' '})
	size, rest, _ := bytes.Cut(rest, []byte{' '})
	if !ok || len(status) != 3 || digits(status) < 0 || string(size) != "-" && digits(size) < 0 || len(size) == 0 {
		return errStatus
	}
	p.cols[colStatus], p.cols[colBytes] = status, size
	if string(size) == "-" {
		p.cols[colBytes] = []byte("0")
	}
	p.extra = p.extra[:0]
	for n := 0; len(rest) > 0; n++ {
		field, more, err := word(rest)
		if err != nil {
			return err
		}
		if rest = more; n < 2 && n+colReferer <= colAgent {
			p.cols[colReferer+n] = field
			continue
		}
		p.extra = append(p.extra, field)
	}
	return nil
}

// word returns the first field, without its quotes. A quote may begin after NAME=.
func word(text []byte) (field, rest []byte, err error) {
	begin := 0
	if text[0] != '"' {
		if at := bytes.IndexAny(text, `" `); at > 0 && text[at] == '"' && text[at-1] == '=' {
			begin = at
		}
	}
	if text[begin] != '"' {
		field, rest, _ = bytes.Cut(text, []byte{' '})
		return field, rest, nil
	}
	end := closing(text, begin+1)
	if end < 0 || end+1 < len(text) && text[end+1] != ' ' {
		return nil, nil, errQuote
	}
	field = text[begin+1 : end]
	if begin > 0 {
		field = append(append([]byte{}, text[:begin]...), field...)
	}
	return field, text[min(end+2, len(text)):], nil
}

// closing returns where the quote ends that begins before at, -1 if it does not.
func closing(line []byte, at int) int {
	for begin := at; ; {
		i := bytes.IndexByte(line[at:], '"')
		if i < 0 {
			return -1
		}
		end := at + i
		escapes := 0
		for end-escapes > begin && line[end-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end
		}
		at = end + 1
	}
}

// column returns the value of a column, nil if the line has none.
func (p *common) column(col int, name string) []byte {
	value := []byte(nil)
	switch {
	case col < colMethod:
		value = p.cols[col]
	case col == colExtra:
		value = p.further(name)
	default:
		value = p.requested(col)
	}
	if string(value) == "-" {
		return nil
	}
	return value
}

// requested returns a part of the request's line.
func (p *common) requested(col int) []byte {
	method, rest, ok := bytes.Cut(p.cols[colRequest], []byte{' '})
	last := bytes.LastIndexByte(rest, ' ')
	if !ok || last < 0 {
		return nil
	}
	switch uri := rest[:last]; col {
	case colMethod:
		return method
	case colURI:
		return uri
	case colPath:
		path, _, _ := bytes.Cut(uri, []byte{'?'})
		return path
	}
	return rest[last+1:]
}

// further returns a field after those of the format.
func (p *common) further(name string) []byte {
	if n, ok := strings.CutPrefix(name, "extra"); ok {
		if i, err := strconv.Atoi(n); err == nil && i >= 1 {
			if i <= len(p.extra) {
				return p.extra[i-1]
			}
			return nil
		}
	}
	for _, field := range p.extra {
		if key, value, ok := bytes.Cut(field, []byte{'='}); ok && string(key) == name {
			return value
		}
	}
	return nil
}
