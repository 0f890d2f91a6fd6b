package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// coded begins a key that is written in base64: in JSON one that is not UTF-8, and one
// that begins so itself. As an argument it stands for the key that it encodes.
const coded = "base64:"

// callerKey is a key as a caller names it. JSON can hold only text, and would fold keys
// of other bytes into one.
type callerKey string

// MarshalJSON returns the key as an argument that names it.
func (k callerKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.arg()) }

// arg returns the key as an argument that names it.
func (k callerKey) arg() string {
	text := string(k)
	if !utf8.ValidString(text) || strings.HasPrefix(text, coded) {
		text = coded + base64.StdEncoding.EncodeToString([]byte(text))
	}
	return text
}

// keyOf returns the key that an argument names.
func keyOf(arg string) (string, error) {
	text, ok := strings.CutPrefix(arg, coded)
	if !ok {
		return arg, nil
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return "", misuse{err}
	}
	return string(key), nil
}
