// Package lua holds the algorithms of package algo as one script for Redis,
// with the same base names, the same steps and the same results.
//
// The script is assembled from the files once: a line "--@include file.part"
// is replaced with that part of that file. Everything it does is fixed; what
// changes from call to call comes as arguments, so that a server compiles and
// keeps one script. The wire format stands in decide.lua.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

//go:embed *.lua
var files embed.FS

// Script is the source that every server runs.
var Script = strings.Join(assemble("decide", ""), "\n")

// SHA is the script's name in an EVALSHA, as the server computes it.
var SHA = digest(Script)

// digest returns the SHA-1 of s in hex. It protects nothing: the name is part
// of Redis' protocol. So strict FIPS 140-3 mode (GODEBUG=fips140=only), in
// which crypto/sha1 panics, is suspended for it.
func digest(s string) (name string) {
	unenforced(func() {
		sum := sha1.Sum([]byte(s))
		name = hex.EncodeToString(sum[:])
	})
	return name
}

// assemble returns a section's lines with what they include. Comments stay in
// the files: they would only be sent.
func assemble(file, section string) []string {
	var lines []string
	for _, line := range read(file, section) {
		line, _, _ = strings.Cut(line, " -- ")
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "--@include "); ok {
			f, s, _ := strings.Cut(name, ".")
			lines = append(lines, assemble(f, s)...)
		} else if line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return lines
}

// read returns a section's lines; the section "" is what stands before any.
func read(file, section string) []string {
	src, err := files.ReadFile(file + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // a file that a sibling names is missing: the package can't have been tested
	}
	parts := strings.Split(string(src), "--@section ")
	for _, part := range parts[1:] {
		if rest, ok := strings.CutPrefix(part, section+"\n"); ok {
			return strings.Split(rest, "\n")
		}
	}
	return strings.Split(parts[0], "\n")
}
