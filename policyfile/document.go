package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// document returns the value of the whole file. It keeps the library's nodes
// rather than decoding into structs: nodes have lines, and anchors that an
// error can name.
func document(file string, data []byte) (value, error) {
	var doc, more yaml.Node
	data = bytes.TrimPrefix(data, []byte("\ufeff")) // with which JSON is not valid, and a directive not at the start
	d := yaml.NewDecoder(bytes.NewReader(withoutSurrogates(withoutVersion(data))))
	err := d.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return value{}, &Error{File: file, Err: errors.New("empty; want policies")}
	}
	if err != nil {
		return value{}, syntax(file, err)
	}
	if err = d.Decode(&more); err == nil {
		return value{}, &Error{File: file, Line: more.Line, Column: more.Column, Err: errors.New("a second document; want one")}
	}
	if !errors.Is(err, io.EOF) {
		return value{}, syntax(file, err)
	}
	return value{file: file, node: doc.Content[0]}, nil
}

// withoutVersion makes a comment of the directive %YAML 1.2 where it stands above
// the document. The library refuses it, though what a file may hold means the
// same in YAML 1.1 and 1.2.
func withoutVersion(data []byte) []byte {
	at := 0
	for line := range bytes.Lines(data) {
		switch words := strings.Fields(string(line)); {
		case line[0] == '%' && len(words) > 1 && words[0] == "%YAML" && words[1] == "1.2":
			data = bytes.Clone(data)
			data[at] = '#'
			return data
		case len(words) > 0 && line[0] != '#' && line[0] != '%':
			return data
		}
		at += len(line)
	}
	return data
}

// withoutSurrogates writes the pairs of escapes by which JSON has a character beyond
// 16 bits as YAML's one escape. The library refuses the pairs. Text that is no JSON stays
// as it is.
func withoutSurrogates(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u`)) || !json.Valid(data) {
		return data
	}
	var out []byte
	for i := 0; i < len(data); i++ {
		if data[i] == '\\' && i+12 <= len(data) {
			if r := utf16.DecodeRune(escaped(data[i:]), escaped(data[i+6:])); r != utf8.RuneError {
				out = fmt.Appendf(out, `\U%08x`, r)
				i += 11
				continue
			}
		}
		out = append(out, data[i])
		if data[i] == '\\' { // what it escapes begins no escape; valid JSON has one more byte
			i++
			out = append(out, data[i])
		}
	}
	return out
}

// escaped returns the code of an escape, as \u0041, at the front of b; -1 for none.
func escaped(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(n)
}
