// Package lua holds the algorithms of package algo as one script for Redis,
// with the same base names, the same steps and the same results.
//
// The script is assembled from the files once: a line "--@include file.part"
// is replaced with that part of that file, and a line "--@choose part" with that
// part of each algorithm's file. Everything it does is fixed; what
// changes from call to call comes as arguments, so that a server compiles and
// keeps one script. The wire format stands in decide.lua.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
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
			body := assemble(f, s)
			if body == nil {
				panic("lua: no section " + line) // the package can't have been tested
			}
			lines = append(lines, body...)
		} else if name, ok := strings.CutPrefix(line, "--@choose "); ok {
			section, below, _ := strings.Cut(name, " below ")
			lines = append(lines, choose(section, below)...)
		} else if line != "" && !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return lines
}

// choose returns an if-chain over the algorithms that have a section, without
// its end. With a number it is over those that stand for less on the wire.
func choose(section, below string) (lines []string) {
	word, most := "if", 256
	if below != "" {
		most, _ = strconv.Atoi(below)
	}
	for _, k := range Kinds() {
		if k.Wire >= most {
			continue
		}
		if body := assemble(k.File, section); body != nil {
			lines = append(append(lines, fmt.Sprintf("%s kind == %d then", word, k.Wire)), body...)
			word = "elseif"
		}
	}
	return lines
}

// Kind is an algorithm as kinds.lua lists it.
type Kind struct {
	Wire int    // what stands for it on the wire
	File string // its file's base name
}

// Kinds returns the algorithms that the script has.
func Kinds() (all []Kind) {
	for _, line := range read("kinds", "") {
		var k Kind
		if n, _ := fmt.Sscanf(line, "--@kind %d %s", &k.Wire, &k.File); n == 2 {
			all = append(all, k)
		}
	}
	return all
}

// read returns a section's lines, none where the file has no such section. The
// section "" is what stands before any.
func read(file, section string) []string {
	src, err := files.ReadFile(file + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // a file that a sibling names is missing: the package can't have been tested
	}
	parts := strings.Split(string(src), "--@section ")
	if section == "" {
		return strings.Split(parts[0], "\n")
	}
	for _, part := range parts[1:] {
		if rest, ok := strings.CutPrefix(part, section+"\n"); ok {
			return strings.Split(rest, "\n")
		}
	}
	return nil
}
