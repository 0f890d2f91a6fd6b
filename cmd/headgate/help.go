package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/headgate-go/headgate/middleware/httplimit"
)

// help answers a command line that asks for help or for the version, and reports whether
// it was one. words are those before -h. What was asked for goes to stdout; a line
// without a command is a mistake.
func (s *session) help(words []string, err error, flags *flag.FlagSet) (told bool, _ error) {
	asked := errors.Is(err, flag.ErrHelp)
	switch {
	case err != nil && !asked:
		return false, nil
	case len(words) == 0 && asked, len(words) == 1 && words[0] == "help":
		usage(s.out, flags)
	case len(words) == 0:
		usage(s.notes, flags)
		return true, errUsage
	case words[0] == "help":
		return true, s.helpOf(words[1], flags)
	case asked:
		return true, s.helpOf(words[0], flags)
	case words[0] == "version" && len(words) == 1:
		fmt.Fprintln(s.out, "headgate", version())
	default:
		return false, nil
	}
	return true, nil
}

// helpOf prints what a command does, and its flags.
func (s *session) helpOf(name string, flags *flag.FlagSet) error {
	if name == "help" || name == "version" { // they have no flags of their own
		usage(s.out, flags)
		return nil
	}
	c, ok := commands[name]
	if !ok {
		fmt.Fprintf(s.notes, "headgate: %s: unknown command\n%s\n", printable(name), hint(name))
		return errUsage
	}
	fmt.Fprintf(s.out, "usage: headgate %s [flags]\n\n%s\n%s\nflags:\n", strings.TrimSpace(name+" "+c.args), c.does, c.more)
	printFlags(s.out, flags, c.uses)
	return nil
}

// printFlags prints the flags of these names.
func printFlags(w io.Writer, flags *flag.FlagSet, names []string) {
	some := flag.NewFlagSet("", flag.ContinueOnError)
	some.SetOutput(w)
	flags.VisitAll(func(f *flag.Flag) {
		if slices.Contains(names, f.Name) {
			some.Var(f.Value, f.Name, f.Usage)
			some.Lookup(f.Name).DefValue = f.DefValue
		}
	})
	some.PrintDefaults()
}

// usage prints the commands and the flags. It is made of commands, so it lists
// all.
func usage(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprint(w, "usage: headgate COMMAND [flags]\n\n")
	for _, name := range slices.Sorted(maps.Keys(commands)) {
		c := commands[name]
		fmt.Fprintf(w, "  %-18s%s\n", name+" "+c.args, c.does)
	}
	fmt.Fprintf(w, "  %-18s%s\n  %-18s%s\n", "help [COMMAND]", "what a command does, and its flags", "version", "print the version")
	fmt.Fprint(w, "\nflags:\n")
	all := []string{}
	flags.VisitAll(func(f *flag.Flag) { all = append(all, f.Name) })
	printFlags(w, flags, all)
}

// version is that of the module, or the commit that it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return info.Main.Version
}

// keyed returns the words of a command with the key that they, or -header, name.
func (s *session) keyed(c command, words []string) ([]string, error) {
	if s.header == "" || c.run == nil {
		if c.args == "KEY" && len(words) == 2 {
			key, err := keyOf(words[1])
			return []string{words[0], key}, err
		}
		return words, nil
	}
	name, value, ok := strings.Cut(s.header, "=")
	switch {
	case len(words) > 1:
		return nil, misuse{errors.New("-header and a KEY: want one of them")}
	case !ok || value == "":
		return nil, misuse{fmt.Errorf("-header %s: want NAME=VALUE, such as X-API-Key=secret", printable(s.header))}
	}
	k := httplimit.Header(name)
	if strings.EqualFold(name, "Authorization") {
		k = httplimit.Authorization()
	}
	r := &http.Request{Header: http.Header{}}
	r.Header.Set(name, value)
	key, err := k.Of(r)
	if err != nil {
		return nil, misuse{err}
	}
	return append(words, key), nil
}
