//go:build go1.25

package sim

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
)

var seed = flag.Int64("seed", -1, "")

func TestSeed(t *testing.T) {
	var w *World
	synctest.Test(t, func(t *testing.T) { w = Run(NewPlan(uint64(*seed))) })
	h := sha256.New()
	all := w.traces()
	for _, l := range all {
		fmt.Fprintln(h, l.at, l.who, l.what)
	}
	for _, err := range w.failures {
		t.Error(err)
	}
	if testing.Verbose() {
		for _, l := range all {
			fmt.Println(l.at, l.who, l.what)
		}
	}
	fmt.Printf("trace %d %x\n", len(all), h.Sum(nil)[:8])
}
