// Bench measures Headgate against the limiters that people use today, all in
// one run, on servers that it starts itself. It prints a table a workload and
// writes benchmarks.md with its pictures.
//
//	go run .                                    # all, some 11 minutes
//	go run . -only redis/hot -runs 1 -for 300ms # a glance; writes nothing
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/report"
)

func main() {
	if child() {
		return
	}
	s := defaults
	only := flag.String("only", "", "regular expression: the workloads to run; then nothing is written unless -out is given")
	flag.IntVar(&s.runs, "runs", s.runs, "measurements of each subject in each workload")
	flag.DurationVar(&s.length, "for", s.length, "length of a measurement; those in memory take half of it")
	out := flag.String("out", "../docs", "directory for benchmarks.md and the pictures")
	flag.Parse()
	if s.runs < 1 || s.length <= 0 || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(s, *only, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(s settings, only, out string) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	b := newBench(s)
	defer b.stage.close()
	r, err := b.all(chosen)
	if err != nil {
		return err
	}
	fmt.Printf("\n%d of %d targets hold\n", r.Held(), len(r.Verdicts()))
	if only != "" && !given("out") {
		return nil
	}
	r.Machine, r.Modules = b.facts(), modules()
	return write(r, out)
}

func given(name string) bool {
	found := false
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
}

func (b *bench) all(chosen *regexp.Regexp) (*report.Report, error) {
	r := &report.Report{}
	begin := time.Now()
	for _, t := range trials() {
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
	r.Notes = b.selfRemarks()
	fmt.Printf("\ntook %v\n", time.Since(begin).Round(time.Second))
	return r, nil
}

// trials are all workloads, in the order of the document.
func trials() []trial {
	var all []trial
	for _, some := range [][]trial{memoryTrials(), serverTrials(), otherServerTrials(), clusterTrials(), latencyTrials()} {
		all = append(all, some...)
	}
	return all
}

// write puts the document and its pictures into a directory.
func write(r *report.Report, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text strings.Builder
	if err := r.Markdown(&text); err != nil {
		return err
	}
	files := map[string]string{"benchmarks.md": text.String()}
	for _, chart := range r.Charts() {
		var picture strings.Builder
		if err := r.SVG(&picture, chart); err != nil {
			return err
		}
		files["benchmarks-"+chart+".svg"] = picture.String()
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
