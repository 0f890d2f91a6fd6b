// Package lua holds the algorithms of package algo as one script for Redis,
// with the same base names, the same steps and the same results.
//
// The script is assembled from the files once: a line "--@include file.part"
// is replaced with that part of that file. A line "--@choose part" becomes that
// part of each algorithm's file. A name of names.lua is replaced with its number.
// Everything it does is fixed; what changes from call to call comes as arguments, so
// that a server compiles and keeps one script. The wire format stands in decide.lua.
package lua

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"regexp"
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

// assemble returns a section's lines with what they include.
func assemble(file, section string) []string {
	var lines []string
	for _, line := range read(file, section) {
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
		} else {
			lines = append(lines, line)
		}
	}
	return lines
}

// numbered returns a line with numbers in place of names.
func numbered(line string) string {
	return name.ReplaceAllStringFunc(line, func(word string) string {
		if table, slot, ok := strings.Cut(word, "."); ok && slots[slot] != "" && word[0] != '\'' {
			return table + "[" + slots[slot] + "]"
		} else if n := numbers[word]; n != "" {
			return n
		}
		return word
	})
}

// name matches what may be a name, and a string, in which there is none.
var name = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|\b(?:s|states\[p\])\.\w+|\b[A-Z][A-Z_]+\b`)

// numbers and slots are the names of names.lua. Those of the algorithms are numbers.
var numbers, slots = func() (numbers, slots map[string]string) {
	numbers, slots = map[string]string{}, map[string]string{}
	for _, k := range Kinds() {
		numbers[strings.ToUpper(k.File)] = strconv.Itoa(k.Wire)
	}
	for _, f := range directives("names", "--@name") {
		numbers[f[0]] = f[1]
	}
	for _, f := range directives("names", "--@slot") {
		slots[f[0]] = f[1]
	}
	return numbers, slots
}()

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
	for _, f := range directives("kinds", "--@kind") {
		wire, _ := strconv.Atoi(f[0])
		all = append(all, Kind{wire, f[1]})
	}
	return all
}

// directives returns the two words behind each directive of a file.
func directives(file, name string) (all [][2]string) {
	for line := range strings.Lines(source(file)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == name {
			all = append(all, [2]string{f[1], f[2]})
		}
	}
	return all
}

func source(file string) string {
	src, err := files.ReadFile(file + ".lua")
	if err != nil {
		panic("lua: " + err.Error()) // a file that a sibling names is missing: the package can't have been tested
	}
	return string(src)
}

// sections are the files' sections, each by its name. The section "" is what stands
// before any. Comments stay in the files: they would only be sent.
var sections = parse()

func parse() map[string]map[string][]string {
	all := map[string]map[string][]string{}
	entries, _ := files.ReadDir(".") // it is there
	for _, e := range entries {
		file, section := strings.TrimSuffix(e.Name(), ".lua"), ""
		all[file] = map[string][]string{}
		for line := range strings.Lines(source(file)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " -- ")
			if name, ok := strings.CutPrefix(line, "--@section "); ok {
				section = name
			} else if strings.HasPrefix(line, "--@include ") || strings.HasPrefix(line, "--@choose ") {
				all[file][section] = append(all[file][section], line)
			} else if line != "" && !strings.HasPrefix(line, "--") {
				all[file][section] = append(all[file][section], numbered(line))
			}
		}
	}
	return all
}

// read returns a section's lines, nil if the file has no such section.
func read(file, section string) []string {
	if sections[file] == nil {
		panic("lua: no file " + file) // a sibling names it: the package can't have been tested
	}
	return sections[file][section]
}
