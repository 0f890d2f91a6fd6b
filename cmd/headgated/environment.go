package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// variables are the environment.
type variables map[string]string

func variablesOf(environ []string) variables {
	env := variables{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	return env
}

// prefix begins the variables that are flags.
const prefix = "HEADGATED_"

// variableOf returns the variable of a flag.
func variableOf(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// flags sets each flag whose variable is set. A deployment may keep its own version in
// HEADGATED_VERSION.
func (e variables) flags(f *flag.FlagSet) (err error) {
	f.VisitAll(func(fl *flag.Flag) {
		name := variableOf(fl.Name)
		if value, ok := e[name]; ok && err == nil && fl.Name != "version" {
			if wrong := f.Set(fl.Name, value); wrong != nil {
				err = fmt.Errorf("%s: %w", name, wrong)
			}
		}
	})
	return err
}

// serviceLinks are the variables that Kubernetes sets for a service named headgated, with
// their values: a PORT is a URL.
var serviceLinks = regexp.MustCompile(`^HEADGATED_([^=]+_)?(SERVICE_HOST=|SERVICE_PORT(_[^=]+)?=|` +
	`PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.+:\d+$|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=)`)

// unknown returns a warning for each variable that looks like a flag and is none.
func (e variables) unknown(f *flag.FlagSet) (warnings []string) {
	var known []string
	f.VisitAll(func(fl *flag.Flag) { known = append(known, variableOf(fl.Name)) })
	for name, value := range e {
		//mutant:unknown-variables
		if strings.HasPrefix(name, prefix) && !slices.Contains(known, name) && !serviceLinks.MatchString(name+"="+value) {
			warnings = append(warnings, fmt.Sprintf("%s is no variable of this server and is ignored; the nearest is %s", name, nearest(name, known)))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// nearest returns the word that the fewest changed bytes make of another.
func nearest(word string, of []string) string {
	return slices.MinFunc(of, func(a, b string) int { return distance(word, a) - distance(word, b) })
}

// distance is Levenshtein's: the bytes to insert, delete or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
