// Bench measures Headgate against the limiters that people use today, all in
// one run, on servers that it starts itself. It prints a table per workload and
// writes benchmarks.md.
//
//	go run .                                    # all, some 14 minutes
//	go run . -only redis/hot -runs 1 -for 300ms # a glance; writes nothing
//	go run . -against ../before/caller          # Headgate with an older Headgate, by turns
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/report"
)

func main() {
	if child() {
		return
	}
	s := defaults
	only := flag.String("only", "", "regular expression: the workloads to run; nothing is written without -out")
	flag.IntVar(&s.runs, "runs", s.runs, "measurements of each subject in each workload")
	flag.DurationVar(&s.length, "for", s.length, "length of a measurement")
	out := flag.String("out", "../docs", "directory for benchmarks.md")
	against := flag.String("against", "", "compare with this binary of fleet/caller, on redis/ and cluster/")
	turns := flag.Int("turns", 7, "turns of each side, with -against")
	flag.Parse()
	chosen, err := regexp.Compile(*only)
	if err != nil || s.runs < 1 || s.length <= 0 || *turns < 1 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	b := newBench(s)
	defer b.tb.close()
	if *against != "" {
		err = b.compare(*against, *turns, chosen)
	} else {
		err = b.report(chosen, *out)
	}
	if err != nil {
		b.tb.Fatal(err)
	}
}

// report runs the chosen workloads and writes the document. A part of the
// workloads writes nothing unless -out is given, so a glance does not replace
// docs/benchmarks.md.
func (b *bench) report(chosen *regexp.Regexp, out string) error {
	r, err := b.all(chosen)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d of %d targets hold\n", r.Held(), r.Claimed())
	if chosen.String() != "" && !given("out") {
		return nil
	}
	r.Machine, r.Modules = b.facts(), modules()
	return write(r, out)
}

// given reports whether the flag is on the command line, as its default is not.
func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

// all prints each table as soon as it is complete: a run takes minutes, and one
// that fails late has shown the rest.
func (b *bench) all(chosen *regexp.Regexp) (*report.Report, error) {
	r := &report.Report{}
	begin := time.Now()
	for _, t := range workloads() {
		if !chosen.MatchString(t.name) {
			continue
		}
		tables, err := b.run(t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		for _, table := range tables {
			table.Text(os.Stdout)
		}
		r.Tables = append(r.Tables, tables...)
	}
	r.Notes = b.notes()
	fmt.Printf("\ntook %v\n", time.Since(begin).Round(time.Second))
	return r, nil
}

// workloads are all, in the order of the document. Memory comes first, while
// the benchmark has started no server that shares the processors.
func workloads() []workload {
	return slices.Concat(memoryWorkloads(), serverWorkloads(), clusterWorkloads(), latencyWorkloads())
}

// write puts the document into a directory.
func write(r *report.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	if err := r.Markdown(&text); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(text.String()), 0o644)
}
