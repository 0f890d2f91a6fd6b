// Caller is one process of a fleet, as a program of its own. Built from two
// commits, it is what `bench -against` compares: the benchmark's code is the
// same in both, only the core differs. See CONTRIBUTING.md for the commands.
package main

import (
	"fmt"
	"os"

	"github.com/headgate-go/headgate/bench/fleet"
)

func main() {
	if err := fleet.Serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "caller:", err)
		os.Exit(1)
	}
}
