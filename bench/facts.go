package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate-go/headgate/bench/load"
	"github.com/headgate-go/headgate/bench/report"
)

// facts are what a reader needs to repeat the run and to judge it: machine,
// versions, command, and what the run found out about itself. A fact that was
// not measured, as the capacity without Poisson workloads, is left out.
func (b *bench) facts() []report.Fact {
	all := []report.Fact{
		{Name: "date", Value: time.Now().UTC().Format(time.DateOnly)},
		{Name: "command", Value: "`" + command() + "`"},
		{Name: "Headgate", Value: commit()},
		{Name: "processor", Value: processor()},
		{Name: "cores", Value: fmt.Sprintf("%d, shared by clients and servers", runtime.NumCPU())},
		{Name: "system", Value: system()},
		{Name: "check", Value: "each limiter passes exactly 25 of 32 calls under a limit of 25 before it is timed"},
		{Name: "Go", Value: strings.TrimPrefix(runtime.Version(), "go")},
	}
	if b.load >= 0 {
		all = append(all, report.Fact{Name: "load before the run", Value: report.Figure(b.load)})
	}
	if b.server != nil {
		all = append(all, report.Fact{Name: "Redis", Value: b.version()})
	}
	if b.capacity > 0 {
		all = append(all, report.Fact{Name: "redis_rate's capacity", Value: report.Figure(b.capacity) + " per second"})
	}
	if len(b.late) > 0 {
		late := b.lateness(0.50) + " µs (p50), " + b.lateness(0.99) + " µs (p99)"
		all = append(all, report.Fact{Name: "Poisson arrivals begun late by", Value: late})
	}
	turns := fmt.Sprintf("%d of %v; of Poisson arrivals %d of %v", b.runs, b.length, b.runs*often, b.length/quarter)
	return append(all, report.Fact{Name: "turns", Value: turns})
}

// command is the command line without -out, which names a directory of this
// machine.
func command() string {
	words := []string{"cd bench && go run ."}
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "out" {
			words = append(words, "-"+f.Name, f.Value.String())
		}
	})
	if len(words) == 1 {
		return "make bench"
	}
	return strings.ReplaceAll(strings.Join(words, " "), "|", `\|`) // it stands in a table
}

// commit ends in "-dirty" where the working tree has changes.
func commit() string {
	id, err := exec.Command("git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit " + strings.TrimSpace(string(id))
}

// processor is the model's name, or the architecture where /proc has none.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// system is the kernel's name and release: schedulers and network stacks differ
// between them.
func system() string {
	kernel, err := exec.Command("uname", "-sr").Output()
	if err != nil {
		return runtime.GOOS + "/" + runtime.GOARCH
	}
	return strings.TrimSpace(string(kernel)) + ", " + runtime.GOARCH
}

func (b *bench) version() string {
	text, _ := b.admin.Info(ctx, "server").Result()
	for line := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return v
		}
	}
	return "unknown"
}

// loadAverage is that of the last minute, or negative where the system has
// none.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg")
	var x float64
	if _, err := fmt.Sscan(string(text), &x); err != nil {
		return -1
	}
	return x
}

// modules are all that are linked in, with their versions, from the binary
// itself: go.mod also lists those that are not used.
func modules() []report.Fact {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	var all []report.Fact
	for _, m := range info.Deps {
		if m.Replace == nil { // Headgate itself is the commit above
			all = append(all, report.Fact{Name: m.Path, Value: m.Version})
		}
	}
	return all
}

// lateness is how late arrivals were begun, in µs. It is part of every
// subject's latency alike, so a reader can tell what of a p50 is the
// benchmark's own.
func (b *bench) lateness(q float64) string {
	return report.Figure(float64(load.Quantile(b.late, q)) / float64(time.Microsecond))
}

// notes are warnings that the document prints above its tables, so that no one
// quotes figures of a busy machine or of a short run.
func (b *bench) notes() []string {
	var all []string
	if b.load >= float64(runtime.NumCPU()) { // less is what compiling the benchmark leaves
		all = append(all, "**The machine had other work to do.** The figures are too low, and the ratios are chance.")
	}
	if b.runs < defaults.runs || b.length < defaults.length {
		all = append(all, "**This was a short run.** It shows the form; its figures are coarse.")
	}
	return all
}
